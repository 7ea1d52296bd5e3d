"""Sizes that change: what torch.compile would compile again for. Only sizes that the trace recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from profiler.trace.analyze.forward_calls import Call, heavy
from profiler.trace.model import NONE, Trace

MIN_SIZES = 3
"""Distinct sizes from which a tensor counts as changing: one other size may be the last, smaller batch."""

Found = tuple[str, str, int, str, tuple[str, ...]]
"""Kind, operation, calls, what was seen, sizes as text."""


def changing(trace: Trace, every: Sequence[Sequence[Call]]) -> list[Found]:
    """Steps whose first heavy operation of the forward has other sizes from step to step."""
    if not trace.has_shapes or trace.step_source == "window":
        return []
    firsts: dict[str, list[tuple[tuple[tuple[object, ...], ...], Call]]] = defaultdict(list)
    for made in every:
        first = next((c for c in made if c.within and heavy(c)), None)
        sizes = _sizes(trace, first)
        if first is not None and sizes:
            firsts[first.name].append((sizes, first))
    for name, seen in firsts.items():
        distinct = list(dict.fromkeys(sizes for sizes, _ in seen))
        if len(distinct) >= MIN_SIZES:
            shown = tuple(_text(s) for s in _varying(distinct))
            words = f"{len(distinct)} different sizes in {len(seen)} steps"
            return [("many-shapes", name, len(seen), words, shown)]
    return []


def growing(trace: Trace, every: Sequence[Sequence[Call]]) -> list[Found]:
    """A concatenation that adds to the same tensor call by call, as a cache of keys and values does."""
    series: dict[tuple[object, ...], list[tuple[int, Call]]] = defaultdict(list)
    for made in every:
        for call in made:
            if call.name == "aten::cat" and call.within:
                found = _find_appended(trace, call)
                if found is not None:
                    series[found[0]].append((found[1], call))
    best: list[tuple[int, Call]] = []
    for rows in series.values():
        lengths = sorted({length for length, _ in rows})
        steady = len(lengths) >= MIN_SIZES and lengths[-1] - lengths[0] == len(lengths) - 1
        if steady and len(rows) > len(best):
            best = rows
    if not best:
        return []
    lengths = sorted({length for length, _ in best})
    words = f"it grows from {lengths[0]} to {lengths[-1]}, one at a time"
    first, last = min(best, key=lambda r: r[0])[1], max(best, key=lambda r: r[0])[1]
    shown = tuple(_text(s[0][:1]) for c in (first, last) if (s := _sizes(trace, c)) and isinstance(s[0], tuple))
    return [("growing-shapes", "aten::cat", len(best), words, shown)]


def _varying(distinct: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Only the tensors whose sizes differ: not the weight."""
    if len({len(sizes) for sizes in distinct}) > 1:
        return list(distinct)
    kept = [i for i in range(len(distinct[0])) if len({sizes[i] for sizes in distinct}) > 1]
    return [tuple(sizes[i] for i in kept) for sizes in distinct]


def _find_appended(trace: Trace, call: Call) -> tuple[tuple[object, ...], int] | None:
    """(the other sizes and the dimension, the length so far) of a concatenation of one more row; None otherwise."""
    detail = int(trace.ops.detail[call.op])
    dims = trace.details[detail].dims if detail != NONE else ()
    if not dims or len(dims[0]) != 2:
        return None
    old, new = dims[0]
    if not isinstance(old, tuple) or not isinstance(new, tuple) or len(old) != len(new):
        return None
    differing = [d for d, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    if len(differing) != 1 or new[differing[0]] != 1:
        return None
    where = differing[0]
    return (where, *(n for d, n in enumerate(old) if d != where)), int(old[where])


def _sizes(trace: Trace, call: Call | None) -> tuple[tuple[object, ...], ...]:
    """Sizes of the tensors that a call was made on."""
    if call is None or (detail := int(trace.ops.detail[call.op])) == NONE:
        return ()
    return tuple(d for d in trace.details[detail].dims if d)


def _text(sizes: Sequence[object]) -> str:
    return " ".join(str(list(s)) for s in sizes if isinstance(s, tuple))
