"""The five primitives of Triton, each with a line of a kernel that this app launches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from app.web.learning.tuned import ROOT


@dataclass(frozen=True, slots=True)
class Primitive:
    """What it is called, what it does, and a line from a file of this app that uses it (`begins` finds it)."""

    name: str
    does: str
    trap: str
    file: str
    begins: str

    @property
    def line(self) -> str:
        """The line itself, read from the file. Raises LookupError where the file has it no more."""
        return _line(self.file, self.begins)


PRIMITIVES: tuple[Primitive, ...] = (
    Primitive("tl.program_id", "Which tile is mine. Every program gets its number and works out its own part.",
              "Left out, every program does the first tile.", "app/examples/ladder/program.txt", "at = tl.program_id"),
    Primitive("tl.load with mask", "A tile from memory to the chip. Lanes beyond the end are off and hold `other`.",
              "`other` must be what the reduction leaves alone: 0 for a sum, -inf for a maximum, 1 for a product.",
              "app/examples/ladder/program.txt", "x = tl.load"),
    Primitive("tl.dot", "The product of two tiles, on the matrix units.",
              "Sizes of 16 and more; accumulate in f32.", "kernels/ops/matmul/gemm.py", "acc = tl.dot(x, y, acc)"),
    Primitive("tl.sum, tl.max", "A reduction over an axis of the tile: the compiler makes the tree and its barriers.",
              "Over more than one tile a running value is kept, as flash attention does.",
              "kernels/ops/softmax/softmax.py", "y = rounded(x * (1.0 / tl.sum"),
    Primitive("@triton.autotune", "Tries tile sizes, warps and stages once for each key, and keeps the fastest.",
              "Every value of the key is tuned anew: a size that changes each call must not be in it.",
              "app/examples/ladder/triton.txt", "[triton.Config("),
)  # fmt: skip


@cache
def _line(file: str, begins: str) -> str:
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        if line.strip().startswith(begins):
            return line.strip()
    raise LookupError(f"{file} has no line that begins with {begins!r}")
