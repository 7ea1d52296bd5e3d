"""Items of kernels that Inductor wrote: by what can be read off their text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from app.atlas.item import Item, alignment, log2
from profiler.oracle.model import PERSISTENT, POINTWISE, REDUCTION, SCAN
from profiler.oracle.traits_model import Access, KernelTraits

SPECIAL = frozenset(
    {"exp", "exp2", "log", "log2", "tanh", "erf", "sin", "cos", "pow", "sigmoid", "rsqrt", "sqrt", "tan", "lgamma"}
)
HEAVY = frozenset({"erf", "pow", "tanh", "lgamma"})
"""Of them those that take tens of instructions."""
MEMORY_LANES, SPECIAL_LANES, HEAVY_LANES = 4, 8, 40
"""Multiply-adds in whose time a load or store of one element is issued, a special function, one of many instructions.

A processor of Hopper issues 128 multiply-adds a clock, 32 loads and 16 special functions (CUDA programming guide, table
of arithmetic throughput); 40 is a guess.
"""
RANDOM = frozenset({"rand", "randn", "randint64"})
MAIN = 0.3
"""Accesses with so much of the largest one's lanes count for the width of its loads."""


def kernel_item(traits: KernelTraits, bytes_moved: int | None = None) -> Item | None:
    """None for a template and a text that could not be read. bytes_moved: Inductor's count, where the text has none."""
    if traits.kind not in (POINTWISE, REDUCTION, PERSISTENT, SCAN):
        return None
    loads, stores, atomics = traits.loads, traits.stores, traits.atomics
    memory = (*loads, *stores)
    touched = traits.bytes_touched or bytes_moved
    read, written, added = _bytes(loads), _bytes(stores), _bytes(atomics)
    asked = sum((a.lanes or 0) * (a.item_bytes or 0) for a in loads)
    moved = touched or read + written + 2 * added
    if not moved:
        return None
    outer = [size for axis, size in traits.sizes if not axis.startswith("r")]
    inner = [size for axis, size in traits.sizes if axis.startswith("r")]
    rows, columns = math.prod(outer), math.prod(inner)
    last = columns if columns > 1 else (outer[-1] if outer else 1)
    largest = max(memory, key=_lane_bytes, default=None)
    main = [a for a in memory if largest is not None and (a.lanes or 0) >= MAIN * (largest.lanes or 1)]
    executed: Counter[str] = Counter()
    for function in traits.functions:
        executed[function.name] += function.executions or 0
    names = [name for name, _ in traits.reductions]
    special = sum(n for f, n in executed.items() if f in SPECIAL)
    heavy = sum(n for f, n in executed.items() if f in HEAVY)
    touching = sum(a.lanes or 0 for a in (*memory, *atomics))
    lanes = (traits.arithmetic or 0) + MEMORY_LANES * touching + SPECIAL_LANES * special + HEAVY_LANES * heavy
    numbers = {
        "bytes": log2(moved), "bytes read": log2(read), "bytes written": log2(written), "bytes added": log2(added),
        "bytes asked for": log2(asked), "read again": log2(asked) - log2(read) if read and asked else 0.0,
        "bytes not in a row": log2(sum(_lane_bytes(a) for a in memory if not a.contiguous and a.stride != 0)),
        "bytes at places read": log2(sum(_lane_bytes(a) for a in memory if a.indirect)),
        "rows": log2(rows), "columns": log2(columns), "loops": float(traits.loops or 0),
        "loads": float(len(loads)), "stores": float(len(stores)), "atomics": float(len(atomics)),
        "tiles": float(traits.tiles or 1), "arithmetic": log2(traits.arithmetic), "lanes": log2(lanes),
        "special functions": log2(special),
        "heavy functions": log2(heavy),
        "random numbers": log2(sum(n for f, n in executed.items() if f in RANDOM)),
        "index divisions": float(traits.index_divisions or 0),
        "item bytes": float(min((a.item_bytes or 4 for a in main), default=4)),
        "shortest run": min((log2(a.run) for a in memory if a.run), default=0.0),
        "stride": log2(abs(largest.stride)) if largest is not None and largest.stride else -1.0,
        "outer": float(traits.reduction_hint == "OUTER"), "inner": float(traits.reduction_hint == "INNER"),
        "welford": float(any(n.startswith("welford") for n in names)),
        "reductions": float(sum(n for _, n in traits.reductions)),
        "scan": float(any("scan" in n for n in names)), "sort": float(any("sort" in n for n in names)),
        "conditional": float(sum(a.conditional for a in memory)),
        "kept in the cache": float(sum(a.eviction == "evict_last" for a in loads)),
        "written over": float(len(traits.mutated)), "aligned": float(alignment(last, 6)),
        "last size": log2(outer[-1]) if outer else 0.0, "axes": float(len(traits.sizes)), f"kind={traits.kind}": 1.0,
    }  # fmt: skip
    scans = traits.kind == SCAN or numbers["scan"] > 0
    group = "generated pointwise" if traits.kind == POINTWISE else SCANS if scans else REDUCTIONS
    return Item(group, moved, numbers, lanes=lanes)


REDUCTIONS, SCANS = "generated reduction", "generated scan"
"""Groups of what goes by rows. A scan's steps wait for each other, and its time says little of a reduction's."""
BROADER = {SCANS: REDUCTIONS}
"""Group -> the one that stands in where an atlas has too few points of it."""


def _lane_bytes(access: Access) -> int:
    return (access.lanes or 0) * (access.item_bytes or 0)


def _bytes(accesses: Sequence[Access]) -> int:
    return sum((a.elements or 0) * (a.item_bytes or 0) for a in accesses)
