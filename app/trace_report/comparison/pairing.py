"""Which parts of two steps are the same part: by text, module, sizes, name, then by operations. Pure functions.

An eager part and its compiled form share neither text nor name: torch.compile fuses across parts, and calls a library
for what it does not fuse. Both then stand in one group: the eager parts with the kernels that compute their operations.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.objects.trace import PairedBy
from app.trace_report.part_operations import COPYING, PRODUCT, WEAK

ENOUGH = 0.5
"""How alike the operations of a kernel and a part are at least, 0 to 1, to stand together."""
SIMILAR_CALLS = 2.5
"""How many times as many calls of one there may be, where operations that stand in most kernels are all they share."""


@dataclass(frozen=True, slots=True)
class Part:
    """A region or a rest of one step. key: of a region. ops: `part_operations.operations`; fused: a kernel that
    torch.compile wrote; sizes: of its larger operands."""

    name: str
    kind: Literal["region", "rest"]
    time_us: float
    tool: str
    key: str | None = None
    id: str | None = None
    module: str = ""
    calls: float = 0.0
    ops: frozenset[str] = frozenset()
    fused: bool = False
    sizes: tuple[int, ...] = ()


Parts = list[Part]
Same = Callable[[Part], Hashable]
"""The name by which a part is known again; None for none."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Parts of both that are the same work; one side is empty for what is new or gone."""

    a: tuple[Part, ...]
    b: tuple[Part, ...]
    by: PairedBy


def pair(ours: Parts, theirs: Parts) -> list[Pair]:
    """Every part of either side in one pair."""
    pairs: list[Pair] = []
    steps: tuple[tuple[PairedBy, Same], ...] = (
        ("text", _key), ("module", _place), ("sizes", _product), ("name", _name)
    )  # fmt: skip
    for by, same in steps:
        ours, theirs, matched = _match(ours, theirs, same)
        pairs += [Pair((a,), (b,), by) for a, b in matched]
    ours, theirs, together = _by_name(ours, theirs)
    pairs += together
    return [*pairs, *_by_operations(ours, theirs)]


def _key(part: Part) -> Hashable:
    return (part.kind, part.key) if part.key else None


def _place(part: Part) -> Hashable:
    return (part.kind, part.name, part.module) if part.module else None


def _product(part: Part) -> Hashable:
    """A matrix product and what it does along with it: a bias."""
    alone = PRODUCT in part.ops and part.ops <= {PRODUCT, "add"} and not part.fused
    return ("product", part.sizes, round(part.calls, 2)) if alone and part.sizes else None


def _name(part: Part) -> Hashable:
    return (part.kind, part.name)


def _match(ours: Parts, theirs: Parts, same: Same) -> tuple[Parts, Parts, list[tuple[Part, Part]]]:
    """What is left of both, and the pairs whose name by `same` is one part's alone on either side."""
    mine, other = _unique(ours, same), _unique(theirs, same)
    paired = [(part, other[name]) for name, part in mine.items() if name in other]
    taken = {id(part) for both in paired for part in both}
    return _without(ours, taken), _without(theirs, taken), paired


def _without(parts: Parts, taken: set[int]) -> Parts:
    return [p for p in parts if id(p) not in taken]


def _unique(parts: Parts, same: Same) -> dict[Hashable, Part]:
    named: dict[Hashable, Parts] = {}
    for part in parts:
        if (name := same(part)) is not None:
            named.setdefault(name, []).append(part)
    return {name: held[0] for name, held in named.items() if len(held) == 1}


def _by_name(ours: Parts, theirs: Parts) -> tuple[Parts, Parts, list[Pair]]:
    """Several of one name on either side, and no telling which is which: together. Not where one side has fewer
    calls of them: the others are part of something else there."""
    pairs, taken = [], set[int]()
    for name in dict.fromkeys(_name(p) for p in ours):
        here, there = ([p for p in parts if _name(p) == name] for parts in (ours, theirs))
        if here and there and _calls(here) == _calls(there):
            pairs.append(Pair(tuple(here), tuple(there), "name"))
            taken |= {id(p) for p in (*here, *there)}
    return _without(ours, taken), _without(theirs, taken), pairs


def _calls(parts: Iterable[Part]) -> float:
    return round(sum(p.calls for p in parts), 1)


# ------------------------------------------------------------------------------------------------------- by operations


def _by_operations(ours: Parts, theirs: Parts) -> list[Pair]:
    """Groups of parts whose operations are the same, and every other part alone."""
    one, other = _regions(ours), _regions(theirs)
    swapped = sum(p.fused for p in one) > sum(p.fused for p in other)
    plain, fused = (other, one) if swapped else (one, other)
    groups = _groups(plain, fused)
    pairs, taken = [], set[int]()
    for here, there in groups:
        left, right = (there, here) if swapped else (here, there)
        weak = all(p.ops <= WEAK for p in here)
        pairs.append(Pair(tuple(left), tuple(right), "weak operations" if weak else "operations"))
        taken |= {id(p) for p in (*here, *there)}
    ours, theirs, named = _rest_by_name(_without(ours, taken), _without(theirs, taken))
    pairs += named
    return [*pairs, *(Pair((p,), (), "alone") for p in ours), *(Pair((), (p,), "alone") for p in theirs)]


def _regions(parts: Parts) -> Parts:
    return [p for p in parts if p.kind == "region" and p.ops]


def _groups(plain: Parts, fused: Parts) -> list[tuple[Parts, Parts]]:
    """Each kernel of the fused side goes to the plain part that its operations are most like; a plain part that is
    left joins the group with a kernel that has all of its operations."""
    worth = _worth([*plain, *fused])
    members: dict[int, tuple[Parts, Parts]] = {id(p): ([p], []) for p in plain}
    for kernel in fused:
        ranked = sorted(plain, key=lambda p: (-_alike(p, kernel, worth), -p.time_us))
        if ranked and _alike(ranked[0], kernel, worth) >= ENOUGH:
            members[id(ranked[0])][1].append(kernel)
    groups = {owner: group for owner, group in members.items() if group[1]}
    for part in plain:
        if id(part) in groups:
            continue
        if COPYING in part.ops:
            continue
        holding = [(_fit(part, k), g[0]) for g in groups.values() for k in g[1] if k.fused and part.ops <= k.ops]
        if holding:
            max(holding, key=lambda h: h[0])[1].append(part)
    return list(groups.values())


def _fit(part: Part, kernel: Part) -> tuple[bool, int, float]:
    """How well a kernel that has all of a part's operations may hold it: by its operands, and by what else it does."""
    return _holds(kernel.sizes, part.sizes), -len(kernel.ops), kernel.time_us


def _holds(sizes: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a kernel takes operands of these sizes, each as often."""
    return bool(wanted) and not Counter(wanted) - Counter(sizes)


def _worth(parts: Sequence[Part]) -> dict[str, float]:
    """How much an operation tells: the fewer parts have it, the more."""
    having = Counter(op for p in parts for op in p.ops)
    return defaultdict(lambda: 1.0, {op: math.log(1 + len(parts) / n) for op, n in having.items()})


def _alike(part: Part, kernel: Part, worth: dict[str, float]) -> float:
    """0 to 1: a product within a larger part by its sizes and calls, else the harmonic mean of what either has of the
    other's operations, and enough where it has all of a part's telling ones."""
    if PRODUCT in kernel.ops and not kernel.fused:
        fits = PRODUCT in part.ops and part.calls == kernel.calls and _holds(part.sizes, kernel.sizes)
        return 1.0 if fits else 0.0
    own = part.ops - {PRODUCT} if kernel.fused else part.ops
    if own <= WEAK and not 1 / SIMILAR_CALLS <= kernel.calls / max(part.calls, 1e-9) <= SIMILAR_CALLS:
        return 0.0
    both = sum(worth[op] for op in own & kernel.ops)
    if not both:
        return 0.0
    recall, precision = both / sum(worth[op] for op in own), both / sum(worth[op] for op in kernel.ops)
    if recall > 0.99 and not own <= WEAK:
        return max(ENOUGH, 2 * recall * precision / (recall + precision))
    return 2 * recall * precision / (recall + precision)


def _rest_by_name(ours: Parts, theirs: Parts) -> tuple[Parts, Parts, list[Pair]]:
    """What is left of one name, whatever its calls."""
    pairs, taken = [], set[int]()
    for name in dict.fromkeys(_name(p) for p in ours):
        here, there = ([p for p in parts if _name(p) == name] for parts in (ours, theirs))
        if here and there:
            pairs.append(Pair(tuple(here), tuple(there), "name"))
            taken |= {id(p) for p in (*here, *there)}
    return _without(ours, taken), _without(theirs, taken), pairs
