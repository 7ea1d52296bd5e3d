"""Loops that a program ran operation by operation: recurrences over time, experts in turn, an optimizer by hand.

Each is many kernels too small to matter alone and one region together. They are runs in which a sequence of operation
names repeats; what the rounds read and make decides what the loop is, and that it is none (a stack of layers repeats
too). Torch-free but for the outputs of operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from profiler.region.mining.output_shapes import alike, outputs
from profiler.region.mining.units import Sig, Unit
from profiler.trace.model import NONE

MAX_PERIOD = 48
"""Operations of one round; a longer sequence that repeats is a layer of a model."""
MIN_ROUNDS = 4
CELL_ROUNDS = 8
"""Rounds of a loop with matrix products in which nothing says that it goes over time: few layers are as many."""
CELL_KERNEL_US = 20.0
"""Mean kernel time up to which operations are tiny: a model's layer works longer than a recurrence's cell."""
BREAKS = frozenset("YJQACE.")
"""Letters that are in no loop: library kernels of a size of their own."""
LAYERS = frozenset("SNBmvH")
"""Letters of what layers have and the cells of recurrences lack."""
MATRIX = frozenset("LM")
MOVES = frozenset("tcyFZIW_")
"""Letters of what one does to many tensors in a row without a loop being worth naming."""
CURSORS = frozenset({"select", "slice", "narrow"})
SEARCHES = frozenset({"nonzero", "where"})
LOOKBACK = 12
"""Units before a loop that are searched for the unbind it goes over."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Indices [start, stop) of a thread's busy units; each round is `period` of them."""

    kind: str
    title: str
    start: int
    stop: int
    period: int

    @property
    def rounds(self) -> int:
        return (self.stop - self.start) // self.period


def find_loops(
    units: Sequence[Unit], busy: Sequence[Unit], letters: Sequence[str], backward: bool = False
) -> list[Loop]:
    """The loops of one thread, none overlapping another. units: all of its, with those that launched nothing.

    backward: they run in autograd nodes, where each round is of another tensor.
    """
    position = {u.op: i for i, u in enumerate(units)}
    loops: list[Loop] = []
    taken = np.zeros(len(busy), dtype=bool)
    for start, stop, period in _repeats(busy, letters):
        while start < stop and taken[start]:
            start += 1
        if stop - start < 2 * period or taken[start:stop].any():
            continue
        run, symbols = busy[start:stop], letters[start : start + period]
        over_time = _goes_over_time(
            units[max(0, position[run[0].op] - LOOKBACK) : position[run[-1].op] + 1], len(run) // period
        )
        if over_time:
            start = _begin(busy, start, stop, period)
            run, symbols = busy[start:stop], letters[start : start + period]
        kind_and_title = None if over_time else _over_tensors(run, symbols, backward)
        if kind_and_title is None and not backward:
            kind_and_title = _name_loop(run, symbols, over_time)
        if kind_and_title is not None:
            taken[start:stop] = True
            loops.append(Loop(*kind_and_title, start, stop, period))
    return _bridge(sorted(loops, key=lambda item: item.start), busy, letters)


def _repeats(busy: Sequence[Unit], letters: Sequence[str]) -> list[tuple[int, int, int]]:
    """(start, stop, period) of every maximal run of at least two equal rounds; the longest first."""
    number: dict[str, int] = {}
    ids = np.array(
        [
            -1 - i if symbol in BREAKS or unit.optimizer else number.setdefault(unit.name, len(number))
            for i, (unit, symbol) in enumerate(zip(busy, letters, strict=True))
        ],
        dtype=np.int64,
    )
    runs = []
    for period in range(1, min(MAX_PERIOD, len(ids) // 2) + 1):
        equal = np.concatenate(([False], ids[:-period] == ids[period:], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            enough = end - start >= period * (1 if period > 1 else MIN_ROUNDS - 1)
            if enough and not _is_repeated(ids[start : start + period].tolist()):
                runs.append((start, end + period, period))
    return sorted(runs, key=lambda run: (run[0] - run[1], run[2]))


def _is_repeated(names: list[int]) -> bool:
    """The period is a shorter one several times over."""
    size = len(names)
    return any(size % part == 0 and names[:part] * (size // part) == names for part in range(1, size // 2 + 1))


def _over_tensors(run: Sequence[Unit], symbols: Sequence[str], backward: bool) -> tuple[str, str] | None:
    """(kind, title) of one operation or two that run over many tensors in turn."""
    period = len(symbols)
    first, present = run[:period], set(symbols)
    rounds = len(run) // period
    if period > 2 or rounds < MIN_ROUNDS or present & (MOVES | MATRIX | LAYERS) or _scalar(first):
        return None
    in_place = all(_in_place(u) for u in first)
    other = rounds >= CELL_ROUNDS and (backward or (_is_tiny(run) and not _same_sizes(run, period)))
    if not (in_place or other) or _scaled_add(first) or len({u.name for u in first}) < period:
        return None
    return "pointwise", f"{', '.join(u.base for u in first)} over many tensors"


def _name_loop(run: Sequence[Unit], symbols: Sequence[str], over_time: bool) -> tuple[str, str] | None:
    """(kind, title) of a loop of several operations; None where the repetition is none."""
    period = len(symbols)
    rounds = len(run) // period
    present, first = set(symbols), run[:period]
    if any(u.base in SEARCHES and _searches(u) for u in first) and present & MATRIX and present & set("IW"):
        return "expert_loop", "expert loop"
    if rounds < MIN_ROUNDS:
        return None
    if not over_time and not present & (MATRIX | LAYERS) and _updates(first):
        return "optimizer", "optimizer step (one tensor at a time)"
    if len({u.name for u in first}) == 1 or "_" in present or not _same_sizes(run, period):
        return None
    if not _carried(run, period) and not (over_time and _carried_inside(run, period)):
        return None
    has_sizes = any(u.args for u in first)
    is_plain = not present & MATRIX and rounds >= (MIN_ROUNDS + 2 if has_sizes else 2 * CELL_ROUNDS)
    if over_time or is_plain:
        return None if present & MATRIX and present & LAYERS else ("recurrence", "unrolled recurrence")
    return ("recurrence", "unrolled recurrence") if _is_cell(run, symbols, rounds) else None


def _in_place(unit: Unit) -> bool:
    return unit.name.endswith("_") and not unit.name.startswith("__")


def _updates(first: Sequence[Unit]) -> bool:
    """Parameters are changed in place: with addcdiv_, or by steps of which one adds a scaled tensor."""
    if any(u.base == "addcdiv" for u in first):
        return True
    return all(_in_place(u) for u in first) and _scaled_add(first) and not _scalar(first)


def _scaled_add(first: Sequence[Unit]) -> bool:
    """`p.add_(g, alpha=-lr)` among them; where its factor was not recorded: an add among other operations."""
    adds = [u for u in first if u.base in ("add", "sub", "addcmul")]
    factors = [u.args[-1] for u in adds if u.args and u.args[-1].kind in ("value", "lost")]
    if len(factors) < len(adds):
        return len(first) > 1
    return any(u.base == "addcmul" for u in adds) or any(f.kind == "lost" or f.value != 1 for f in factors)


def _is_cell(run: Sequence[Unit], symbols: Sequence[str], rounds: int) -> bool:
    """A loop with matrix products: a cell of many small operations, run many times by one module."""
    products = sum(s in MATRIX for s in symbols)
    if rounds < CELL_ROUNDS or not products or set(symbols) & LAYERS or len(symbols) < 3 * products:
        return False
    modules = {u.module for u in run if u.module != NONE}
    return len(modules) <= len(symbols) and _is_tiny(run)


def _is_tiny(run: Sequence[Unit]) -> bool:
    return sum(u.time_us for u in run) <= CELL_KERNEL_US * sum(len(u.kernels) for u in run)


def _searches(unit: Unit) -> bool:
    return unit.base == "nonzero" or sum(a.kind == "tensor" for a in unit.args) == 1 or not unit.args


def _scalar(first: Sequence[Unit]) -> bool:
    """Counters: batch norm adds one to a number on the GPU."""
    return any(u.args and u.args[0].sigs and not u.args[0].sigs[0].dims for u in first)


def _goes_over_time(between: Sequence[Unit], rounds: int) -> bool:
    """Views that step through a tensor: `x[:, t]` with another t in each round, or `for x in xs` before the loop."""
    if any(u.base == "unbind" and _pieces(u) >= rounds - 1 for u in between[: LOOKBACK + 1]):
        return True
    cursor_steps: dict[tuple[object, ...], set[object]] = {}
    for unit in between:
        if unit.base in CURSORS and not unit.kernels and unit.args and unit.args[0].sigs:
            values = [a.value for a in unit.args[1:] if a.kind == "value"]
            if len(values) >= 2:
                cursor_steps.setdefault((unit.base, unit.args[0].sigs, values[0]), set()).add(values[1])
    return any(len(steps) >= rounds - 1 for steps in cursor_steps.values())


def _pieces(unit: Unit) -> int:
    dims = unit.args[0].sigs[0].dims if unit.args and unit.args[0].sigs else ()
    dim = unit.args[1].value if len(unit.args) > 1 else 0
    return dims[dim] if isinstance(dim, int) and -len(dims) <= dim < len(dims) else 0


def _same_sizes(run: Sequence[Unit], period: int) -> bool:
    """Every round has the first one's sizes; true where none were recorded."""
    dims = [tuple(s.dims for a in u.args for s in a.sigs) for u in run]
    return all(dims[i] == dims[i % period] for i in range(len(dims)))


def _begin(busy: Sequence[Unit], start: int, stop: int, period: int) -> int:
    """Where the rounds begin: behind operations of the loop's names but other sizes, which only stand before it."""
    for at in range(start, min(start + period, stop - 2 * period + 1)):
        if _same_sizes((busy[at], busy[at + period]), 1):
            return at
    return start


def _carried(run: Sequence[Unit], period: int) -> bool:
    """The second round reads something like what the first one made last; true where sizes are unknown."""
    produced = outputs(run[period - 1])
    if not produced:
        return not any(u.args for u in run[:period])
    reads = [s for u in run[period : 2 * period] for a in u.args if a.kind != "lost" for s in a.sigs]
    return any(alike(r, m) for r in reads for m in produced)


def _carried_inside(run: Sequence[Unit], period: int) -> bool:
    """Some operation of the second round reads what the first one made at its place or behind it, and nothing in the
    second has made yet: the state, where a round goes on with what it gives away (`y = c * h` of a selective scan)."""
    first, second = run[:period], run[period : 2 * period]
    for at, unit in enumerate(second):
        carried = [m for u in first[at:] for m in outputs(u)]
        made_already = [m for u in second[:at] for m in outputs(u)]
        operands = (s for a in unit.args if a.kind != "lost" for s in a.sigs)
        if any(_like_one(s, carried) and not _like_one(s, made_already) for s in operands):
            return True
    return False


def _like_one(operand: Sig, values: Sequence[Sig]) -> bool:
    return any(alike(operand, value) for value in values)


def _bridge(loops: Sequence[Loop], busy: Sequence[Unit], letters: Sequence[str]) -> list[Loop]:
    """Runs of one expert loop joined, and a last expert added: one without tokens launches less than the others."""
    joined: list[Loop] = []
    for loop in loops:
        before = joined[-1] if joined else None
        if loop.kind == "expert_loop":
            begin = before.start if before is not None and before.title == loop.title else loop.start
            names = {u.name for u in busy[begin : begin + loop.period]}
            if begin < loop.start and {u.name for u in busy[begin : loop.stop]} <= names:
                joined.pop()
                loop = Loop(loop.kind, loop.title, begin, loop.stop, loop.period)
            loop = Loop(loop.kind, loop.title, loop.start, _last(loop, busy, letters), loop.period)
        joined.append(loop)
    return joined


def _last(loop: Loop, busy: Sequence[Unit], letters: Sequence[str]) -> int:
    """Where the loop ends with the rounds behind it that begin with a search and end with a scatter, as its own do."""
    names = {u.name for u in busy[loop.start : loop.stop]}
    stop = at = loop.stop
    while at < len(busy) and busy[at].name in names and at < stop + 2 * loop.period:
        at += 1
        if letters[at - 1] == "W" and any(u.base in SEARCHES for u in busy[stop:at]):
            stop = at
    return stop


def loop_units(loop: Loop, letters: Sequence[str], taken: Sequence[bool]) -> Iterator[int]:
    """Indices of the loop's units, with the list of its results stacked at its end."""
    yield from range(loop.start, loop.stop)
    if loop.kind == "recurrence" and loop.stop < len(letters):
        if letters[loop.stop] == "c" and not taken[loop.stop]:
            yield loop.stop
