"""Gradient: what each tool costs to write against what it gains, as ranges. More effort gains more, and less each time.

Lines of code are the sources'. Speed-ups over eager are those that the shipped Archive measured; where it has none for
a tool, the sources' words about it, and the picture says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.estimate.range import Range

LINES: dict[str, tuple[int, int]] = {
    "eager": (0, 0), "library": (1, 1), "compile": (1, 1), "triton": (50, 200), "cuda": (500, 5000),
}  # fmt: skip
"""Lines to write. Sources: a library one call; torch.compile one decorator; Triton 50 to 200; CUDA 500 to 5,000."""

OF_HAND_TUNED = (0.80, 0.95)
"""Share of hand-tuned CUDA that Triton reaches on compute-bound work. Sources: 80 to 95 %; memory-bound it matches."""

BEHIND_CUBLAS = (0.85, 0.95)
"""What Triton reaches of cuBLAS, which is what eager calls, on a plain matrix product. Sources: 5 to 15 % behind."""


MANY = 4
"""From so many recorded regions on a range is their middle half."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The best candidate of one tool on one recorded region. kind: one of the widget's."""

    kind: str
    tool: str
    speedup: float


@dataclass(frozen=True, slots=True)
class Rung:
    """One tool. speedup: over eager, None where nobody says; source: whose figure it is."""

    tool: str
    lines: tuple[int, int]
    speedup: Range | None
    source: str


def gradient(measured: Iterable[Measured], kind: str | None = None, bound: str | None = None) -> tuple[Rung, ...]:
    """The tools in order of effort; the library only where one was recorded. kind: only regions of it, if there are."""
    every_one = tuple(measured)
    chosen = tuple(m for m in every_one if m.kind == kind) or every_one
    which = "of this kind" if chosen is not every_one else "of all kinds"
    one = Range(1.0, 1.0, 1.0)
    called, compiled, triton = (
        _range(m.speedup for m in chosen if m.tool == tool) for tool in ("library", "compile", "triton")
    )
    counts = {tool: _count_text(sum(m.tool == tool for m in chosen), which) for tool in LINES}
    if triton is None and kind == "gemm":
        triton, counts["triton"] = _between(one, BEHIND_CUBLAS), "sources: 5 to 15 % behind cuBLAS"
    cuda, said = _cuda(triton, kind, bound)
    return (
        Rung("eager", LINES["eager"], one, "what the others are held against"),
        *((Rung("library", LINES["library"], called, counts["library"]),) if called else ()),
        Rung("compile", LINES["compile"], compiled, counts["compile"] if compiled else "nothing recorded"),
        Rung("triton", LINES["triton"], triton, counts["triton"] if triton else "nothing recorded"),
        Rung("cuda", LINES["cuda"], cuda, said),
    )


def _count_text(count: int, which: str) -> str:
    part = "their middle half" if count >= MANY else "the least and the most"
    return f"measured on {count} recorded regions {which}, {part}"


def _cuda(triton: Range | None, kind: str | None, bound: str | None) -> tuple[Range | None, str]:
    """Not measured: by what the sources say of Triton compared with it."""
    if kind == "gemm":
        return Range(1.0, 1.0, 1.0), "sources: cuBLAS is hand-tuned CUDA already"
    if triton is None:
        return None, "nothing recorded"
    if bound == "memory":
        return triton, "sources: memory-bound, Triton matches CUDA"
    low, high = OF_HAND_TUNED
    middle = (low + high) / 2
    return Range(triton.low / high, triton.mid / middle, triton.high / low), (
        "sources: Triton reaches 80 to 95 % of it; not measured"
    )


def _between(span: Range, shares: tuple[float, float]) -> Range:
    low, high = shares
    return Range(span.low * low, span.mid * (low + high) / 2, span.high * high)


def _range(values: Iterable[float]) -> Range | None:
    """Median and the middle half; lowest and highest of fewer than `MANY`."""
    ordered = sorted(values)
    if not ordered:
        return None
    low, mid, high = (_quantile(ordered, part) for part in (0.25, 0.5, 0.75))
    return Range(low, mid, high) if len(ordered) >= MANY else Range(ordered[0], mid, ordered[-1])


def _quantile(ordered: list[float], part: float) -> float:
    """Linear between the two nearest of a sorted list."""
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
