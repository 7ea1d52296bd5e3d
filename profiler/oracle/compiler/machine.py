"""What a compiler made of one kernel for one GPU, as data. Torch- and Triton-free: pages and the API read it.

Counts are of instructions in the listing, not of executions: a load in a loop counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

GLOBAL_LOAD = "global load"
GLOBAL_STORE = "global store"
ATOMIC = "atomic"
ASYNC_COPY = "asynchronous copy"
SHARED_LOAD = "shared load"
SHARED_STORE = "shared store"
LOCAL_LOAD = "local load"
LOCAL_STORE = "local store"
TENSOR_MEMORY = "tensor memory"
MATRIX = "matrix"
BARRIER = "barrier"
MBARRIER = "memory barrier object"
WAIT = "wait"
SHUFFLE = "shuffle"
SPECIAL = "special function"
CONVERSION = "conversion"
FLOAT = "floating point"
INTEGER = "integer"
CONTROL = "control"
OTHER = "other"
KINDS = (
    GLOBAL_LOAD, GLOBAL_STORE, ATOMIC, ASYNC_COPY, SHARED_LOAD, SHARED_STORE, LOCAL_LOAD, LOCAL_STORE, TENSOR_MEMORY,
    MATRIX, BARRIER, MBARRIER, WAIT, SHUFFLE, SPECIAL, CONVERSION, FLOAT, INTEGER, CONTROL, OTHER,
)  # fmt: skip
"""Classes of instructions, in the order in which a table shows them."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a listing. line: of the kernel's source, 0 where the compiler names none.

    bits: what one thread moves with it, None where it moves nothing or the listing does not say.
    """

    line: int
    opcode: str
    kind: str
    bits: int | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """How many instructions of one kind and width."""

    kind: str
    bits: int | None
    count: int


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the kernel's source and the instructions that came of it. number 0: those without a line."""

    number: int
    text: str
    tallies: tuple[Tally, ...]

    def count(self, kind: str) -> int:
        """Instructions of one kind."""
        return sum(t.count for t in self.tallies if t.kind == kind)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix instruction: "wgmma", "mma.sync", "tcgen05.mma", "v_mfma". shape: "m64n128k16", "" where not named."""

    instruction: str
    shape: str
    types: str
    count: int
    line: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """Shared memory that a pipelined loop fills ahead: `copies` tiles of one shape and element type."""

    copies: int
    shape: tuple[int, ...]
    dtype: str
    line: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What one configuration of a kernel became.

    num_warps, num_stages: as asked for; block_warps: of a block, more where warps are specialised. registers: of a
    thread. stack_bytes: local memory of a thread, which holds spilled registers and arrays that are indexed at run
    time; spill_bytes, spill_load_bytes: what the instructions that ptxas added for lack of registers store and load,
    each counted once, so that they can exceed the stack. None: not reported for the target. blocks, occupancy: what
    a processor holds at once, and the share of its threads that it is; limited_by: what runs out first. texts: "ttir",
    "ttgir", "llir", "ptx", "sass", "amdgcn"; cut: the full length in characters of those that were cut. config: which
    of `configs` configurations.
    """

    target: str
    kernel: str
    num_warps: int
    num_stages: int
    block_warps: int
    constants: tuple[tuple[str, bool | int | float | str | None], ...]
    registers: int | None
    stack_bytes: int | None
    spill_bytes: int | None
    spill_load_bytes: int | None
    shared_bytes: int
    blocks: int | None
    occupancy: float | None
    limited_by: str
    lines: tuple[Line, ...]
    matrix: tuple[Matrix, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    warp_specialized: bool = False
    config: int = 0
    configs: int = 1
    source: str = ""
    triton: str = ""
    took_s: float = 0.0
    texts: Mapping[str, str] = field(default_factory=dict)
    cut: Mapping[str, int] = field(default_factory=dict)

    @property
    def ptx(self) -> str:
        return self.texts.get("ptx", "")

    @property
    def sass(self) -> str:
        return self.texts.get("sass", "")

    def count(self, *kinds: str) -> int:
        """Instructions of these kinds in the whole kernel."""
        return sum(line.count(kind) for line in self.lines for kind in kinds)

    def bits(self, *kinds: str) -> tuple[int, ...]:
        """Widths in bits that occur with these kinds, narrowest first."""
        return tuple(sorted({t.bits for _, t in self.tallies(*kinds) if t.bits}))

    def tallies(self, *kinds: str) -> Iterator[tuple[Line, Tally]]:
        """Every tally of these kinds with its line."""
        return ((line, t) for line in self.lines for t in line.tallies if t.kind in kinds)

    @property
    def barriers(self) -> int:
        """Barriers of a whole block."""
        return self.count(BARRIER)

    @property
    def stages(self) -> int:
        """Tiles that a pipelined loop holds in shared memory at once; 1 where no loop is pipelined through it."""
        return max((b.copies for b in self.buffers), default=1)

    def to_dict(self, texts: bool = True) -> dict[str, object]:
        """Plain values for JSON. texts: with the listings, which are most of it."""
        values = asdict(self)
        return values if texts else {k: v for k, v in values.items() if k != "texts"}


def table(instructions: Iterable[Instruction], text_of: Mapping[int, str]) -> tuple[Line, ...]:
    """Instructions counted by source line, kind and width. text_of: line number -> its text."""
    counted: dict[int, dict[tuple[str, int | None], int]] = {}
    for one in instructions:
        of_line = counted.setdefault(one.line, {})
        key = (one.kind, one.bits)
        of_line[key] = of_line.get(key, 0) + 1
    order = {kind: at for at, kind in enumerate(KINDS)}
    return tuple(
        Line(
            number,
            text_of.get(number, "").strip(),
            tuple(
                Tally(kind, bits, count)
                for (kind, bits), count in sorted(of_line.items(), key=lambda i: (order[i[0][0]], i[0][1] or 0))
            ),
        )
        for number, of_line in sorted(counted.items())
    )
