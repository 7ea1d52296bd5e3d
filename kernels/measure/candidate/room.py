"""How far from float64 right results of a region may lie on these inputs: element by element, and in steps.

Several runs with roundings by chance say how far off each number is in the root mean square (`Room.size`). A number
that a step is made of (a rounding to integers, a comparison) may lie on the other side of the step's border if it is
nearer to it than `BORDER` times that: two more runs move all such numbers up and down, and what integers come of it is
their room (`Room.low`, `Room.high`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from kernels.measure.candidate.reference import Reference, Wide, label, result_nodes, selections
from kernels.measure.candidate.rounded_run import Run, kept_in, rounded_run, run_of
from kernels.measure.candidate.rounding import MANTISSA, Rounding

BORDER = 3.0
"""How many times its own error a number may be from a border and still fall on either side."""
FEW_RUNS, MANY_RUNS = 5, 8
SMALL = 1 << 20
"""Elements of all results up to which there are many runs."""
SCALES, SAMPLED = 64, 1 << 16
"""On how many grids a result is tried for rounding one way all at once, and how many of its elements."""
TWICE = 2.0 / 8.0
"""Two such roundings as what `Room.slope` says, of which a candidate may have eight times (judge.SLOPE_ROOM)."""
FEW_NUMBERS, MANY_NUMBERS, TOGETHER = 2.0, 8.0, 5.0
"""Independent numbers that a row's error is made of: from so few on it is held like an element, five times further
(judge.OUTLIER_ROOM over ROW_ROOM), from so many on like a row."""
NEGLIGIBLE = 2.0**-6
"""Of a unit in the last place of a result of usual size: smaller errors count for nothing, however small the number."""
COMPARING = frozenset({"gt", "lt", "ge", "le", "eq", "ne", "greater", "less", "greater_equal", "less_equal"})
STEPPING = COMPARING | frozenset(
    """round floor ceil trunc sign sgn heaviside frac fmod remainder floor_divide floordiv mod int long char short byte
    bool argmax argmin topk sort argsort max min kthvalue median to type bucketize searchsorted isin signbit""".split()
)
WHOLE = frozenset({"round", "floor", "ceil", "trunc", "sign", "sgn", "floor_divide", "floordiv"})
CASTS = frozenset({"to", "type", "bool", "int", "long", "char", "short", "byte"})
BOUNDING = frozenset({"clamp", "clip", "clamp_min", "clamp_max"})
BYTES = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
UNCHANGED = frozenset(
    """view reshape permute transpose t expand expand_as unsqueeze squeeze flatten contiguous clone getitem select
    narrow slice chunk split float double half bfloat16 to""".split()
)
"""What is made of an input by these alone is as exact as it."""


@dataclass(frozen=True, slots=True)
class Room:
    """Of one output. size: of its error, per element (floats); low, high: what steps leave possible (others).

    slope: how far rounding by chance makes all of an output too large or too small, relative, in the root mean square.
    flips: how many elements end on another step, in the mean. of_source: size of what an index output selects from.
    together: how many times further a row may be off where its elements are off together, by one number a row.
    """

    size: torch.Tensor | None = None
    low: torch.Tensor | None = None
    high: torch.Tensor | None = None
    slope: float = 0.0
    flips: float = 0.0
    of_source: torch.Tensor | None = None
    together: float = 1.0


class _Bordered(Wide):
    """The program with every number that a step is made of moved by its room. sign: up or down."""

    def __init__(self, module: torch.fx.GraphModule, wide: torch.dtype, moves: Mapping[torch.fx.Node, torch.Tensor],
                 sign: float) -> None:  # fmt: skip
        super().__init__(module, wide, ())
        self.moves, self.sign = moves, sign

    def run_node(self, n: torch.fx.Node) -> Any:
        if not _steps(n):
            return super().run_node(n)
        first = _operands(n)[0]
        kept = self.env[first]
        room = sum((self.moves[o] for o in _operands(n) if o in self.moves), start=torch.zeros((), device=kept.device))
        self.env[first] = kept + self.sign * BORDER * room.to(kept.dtype)
        try:
            return super().run_node(n)
        finally:
            self.env[first] = kept


def _operands(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Floating tensors that a step is made of."""
    return [a for a in node.all_input_nodes if _floating(a)]


def _floating(node: torch.fx.Node) -> bool:
    value: Any = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _steps(node: torch.fx.Node) -> bool:
    """Whether the node makes steps of floating numbers: of casts those to integers, of numbers that are not whole."""
    name = label(node).strip("_")
    if node.op in ("placeholder", "output") or name not in STEPPING or not _operands(node):
        return False
    return name not in CASTS or not (_floating(node) or _whole(node.all_input_nodes[0]))


def _whole(node: torch.fx.Node) -> bool:
    """Its numbers are whole already."""
    while label(node).strip("_") in UNCHANGED | BOUNDING and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return label(node).strip("_") in WHOLE


def _exact(node: torch.fx.Node) -> bool:
    """It is an input, looked at another way: nobody rounds it."""
    while node.op != "placeholder":
        if label(node) not in UNCHANGED or len(node.all_input_nodes) != 1:
            return False
        node = node.all_input_nodes[0]
    return True


def rooms(
    module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor], requires_grad: Sequence[bool],
    upstream: Sequence[torch.Tensor | None], expected: Reference, seed: int,
) -> list[Room]:  # fmt: skip
    """The room of each of `expected`'s outputs. inputs are copied. Raises what running the program does."""
    wide = torch.float64 if expected.precision == "float64" else torch.float32
    chosen = selections(module)
    stepping = [n for n in module.graph.nodes if _steps(n)]
    sources = dict.fromkeys([o for n in stepping for o in _operands(n)] + [s for s, _, _ in chosen.values()])
    results = result_nodes(module)
    narrow = [_narrow(v) for v in results] + [x.dtype for x, g in zip(inputs, requires_grad, strict=True) if g]
    narrow += [inputs[n].dtype for n in expected.written]
    unrounded = frozenset(v for v, d in zip(results, narrow, strict=False) if d in BYTES)
    exact = run_of(Wide(module, wide, list(sources)), inputs, requires_grad, upstream, expected.written)
    spread = _Spread(
        [o.to(wide) for o in exact.outputs], {n: exact.kept[n] for n in sources},
        [d if d in BYTES or not d.is_floating_point else None for d in narrow],
    )  # fmt: skip
    count = MANY_RUNS if sum(o.numel() for o in expected.outputs) <= SMALL else FEW_RUNS
    device = inputs[0].device if inputs else torch.device("cpu")
    for number in range(count):
        generator = torch.Generator(device=device).manual_seed(seed + number) if number else None
        spread.add(
            rounded_run(
                module, inputs, requires_grad, upstream, wide, Rounding(generator), list(sources), unrounded,
                expected.written,
            )
        )  # fmt: skip
    moves = {n: _even(spread.of_source(n), exact.kept[n], kept_in(n)) for n in sources if not _exact(n)}
    if stepping:
        spread.borders(
            [
                run_of(_Bordered(module, wide, moves, sign), inputs, requires_grad, upstream, expected.written)
                for sign in (1.0, -1.0)
            ]
        )
    made = []
    for number, (out, dtype) in enumerate(zip(exact.outputs, narrow, strict=True)):
        of_source = moves.get(chosen[number][0], torch.zeros(())) if number in chosen else None
        made.append(spread.room(number, out, dtype, of_source))
    return made


def _narrow(node: Any) -> torch.dtype:
    value: Any = node.meta["val"]
    dtype: torch.dtype = value.dtype
    return dtype


class _Spread:
    """Sums over the runs of what they differ from the exact one by."""

    def __init__(self, outputs: list[torch.Tensor], sources: dict[torch.fx.Node, torch.Tensor],
                 stepped: list[torch.dtype | None]) -> None:  # fmt: skip
        self.outputs, self.sources, self.stepped = outputs, sources, stepped
        self.flips = [0.0] * len(outputs)
        self.squares = [torch.zeros_like(o) for o in outputs]
        self.most: list[torch.Tensor | None] = [None] * len(outputs)
        self.ends = [(o, o) for o in outputs]
        self.slopes = [0.0] * len(outputs)
        self.of = {n: torch.zeros_like(v) for n, v in sources.items()}
        self.of_rows = [_Rows() for _ in outputs]
        self.runs = 0

    def add(self, run: Run) -> None:
        self.runs += 1
        for n, (right, other) in enumerate(zip(self.outputs, run.outputs, strict=True)):
            off = _difference(other, right)
            self.squares[n].add_(off.square())
            self.of_rows[n].add(off)
            self.slopes[n] += slope_of(off, right) ** 2
            if (dtype := self.stepped[n]) is not None:
                self.flips[n] += float((other.to(dtype).float() != right.to(dtype).float()).sum())
        for node, right in self.sources.items():
            self.of[node].add_(_difference(run.kept[node], right).square())

    def borders(self, runs: Sequence[Run]) -> None:
        """Runs in which steps fell to either side."""
        for run in runs:
            for n, (right, other) in enumerate(zip(self.outputs, run.outputs, strict=True)):
                other, before = other.to(right.dtype), self.most[n]
                off = _difference(other, right).abs()
                self.most[n] = off if before is None else torch.maximum(before, off)
                if self.stepped[n] is not None:
                    low, high = self.ends[n]
                    self.ends[n] = (torch.minimum(low, other), torch.maximum(high, other))

    def of_source(self, node: torch.fx.Node) -> torch.Tensor:
        return (self.of[node] / self.runs).sqrt()

    def room(self, number: int, out: torch.Tensor, dtype: torch.dtype, of_source: torch.Tensor | None) -> Room:
        # Numbers on a coarse grid are rounded one way all at once: rounding the exact result shows it.
        once = slope_of(_difference(Rounding().to(out, dtype), out), out) if out.is_floating_point() else 0.0
        slope = max(math.sqrt(self.slopes[number] / self.runs), abs(once), TWICE * _of_few_values(out, dtype))
        size, most = (self.squares[number] / self.runs).sqrt(), self.most[number]
        low, high = self.ends[number]
        flips = self.flips[number] / self.runs
        if not out.is_floating_point():
            return Room(None, low, high, slope, flips, of_source)
        if dtype in BYTES:
            reach = BORDER * _even(size, out, torch.float32)
            reach = reach if most is None else torch.maximum(reach, most)
            return Room(None, out - reach, out + reach, slope, flips)
        even = _even(size, out, dtype)
        size = even if most is None else torch.maximum(even, most)
        return Room(size, slope=slope, together=self.of_rows[number].further())


@dataclass(slots=True)
class _Rows:
    """How much the mean square of a row's error varies from run to run."""

    runs: int = 0
    total: torch.Tensor | float = 0.0
    squares: torch.Tensor | float = 0.0

    def add(self, off: torch.Tensor) -> None:
        if off.dim() < 2 or not off.is_floating_point():
            return
        row = off.square().mean(-1)
        self.runs, self.total, self.squares = self.runs + 1, self.total + row, self.squares + row.square()

    def further(self) -> float:
        """How many times further than a row of independent errors a row may be off: up to TOGETHER.

        The mean square of n independent errors varies by 2 / n of its square; of one number that all elements share,
        such as what an attention's backward subtracts from a row, by 2: then few runs say little of the one row, and of
        many rows one is as far off as one element of many is.
        """
        if self.runs < 2 or not isinstance(self.total, torch.Tensor) or not isinstance(self.squares, torch.Tensor):
            return 1.0
        mean = self.total / self.runs
        varies = (self.squares - self.total * mean) / (self.runs - 1)
        known = mean > 0
        if not bool(known.any()):
            return 1.0
        numbers = 2.0 / max(1e-9, float((varies[known] / mean[known].square()).mean()))
        share = math.log(MANY_NUMBERS / max(numbers, 1.0)) / math.log(MANY_NUMBERS / FEW_NUMBERS)
        return float(TOGETHER ** min(1.0, max(0.0, share)))


def _difference(value: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """NaN and infinities are judged by their places."""
    off = value.to(right.dtype) - right
    return torch.where(off.isfinite(), off, 0.0)


def slope_of(off: torch.Tensor, right: torch.Tensor) -> float:
    """What share of the right values the difference is, by least squares."""
    finite = torch.where(right.isfinite(), right, 0.0)
    square = float(finite.square().sum())
    return float((off * finite).sum()) / square if square else 0.0


def _of_few_values(out: torch.Tensor, dtype: torch.dtype) -> float:
    """How far one rounding to a short type makes all of a result too large or small, whatever factor it is kept by.

    A result whose weight lies on a few values (a cross entropy's gradient where all rows have nearly the same) is
    rounded the same way everywhere, by up to half a unit. A kernel that keeps it before a factor (the upstream
    gradient, 1 / rows) rounds it on another grid, and once more behind it. Over results of many values this is nothing.
    """
    if not out.is_floating_point() or dtype not in MANTISSA or MANTISSA[dtype] > MANTISSA[torch.float16]:
        return 0.0
    flat = out.reshape(-1)
    flat = flat[:: flat.numel() // SAMPLED | 1]
    grids = [flat * (1.0 + number / SCALES) for number in range(SCALES)]
    return max(abs(slope_of(_difference(Rounding().to(x, dtype), x), x)) for x in grids)


def _even(size: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Sizes of errors that few runs say, made even: none is below what its row, or rows in general, have of it.

    To these comes the rounding of the result itself, and what counts for nothing.
    """
    if not size.numel():
        return size
    finite = torch.where(right.isfinite(), right, 0.0).abs()
    step = 2.0 ** -MANTISSA[dtype] if dtype in MANTISSA else 0.0
    usual = float(finite.square().mean().sqrt())
    rows, values = (t.reshape(-1, t.shape[-1]) if t.dim() > 1 else t.reshape(1, -1) for t in (size, finite))
    in_row = rows.median(-1, keepdim=True).values
    lengths = values.square().sum(-1).sqrt()
    relative = rows.square().sum(-1).sqrt() / lengths.clamp_min(1e-300 if size.dtype == torch.float64 else 1e-30)
    general = float(relative[lengths > 0].median()) if bool((lengths > 0).any()) else 0.0
    general = general if math.isfinite(general) else 0.0
    total = rows.square() + (in_row / 2).square() + (values * min(general, 1.0) / 2).square()
    total += (in_row.median() / 16).square()
    total += (values * step).square() / 12 + (NEGLIGIBLE * step * usual) ** 2
    return total.sqrt().reshape(size.shape)
