"""How much a step's calls work on at a time: whole sequences or one token of each, and the rows of its products.

Told by shapes alone: names of files, models and kernels say nothing here. Pure functions of API JSON.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.objects.region import AnyRegion
from app.objects.trace import Serving

MOST = 0.5
"""Of the calls that tell, those of one kind from which on the step is of that kind."""
LEAST_SHARED = 0.25
"""Of both steps' time in products, what must be on weights of the same sizes for their rows to be held against each
other: a model whose weights were joined (q, k and v as one) keeps less than half."""
OTHER_ROWS = 1.5
"""How many times as many rows there are from which on two steps of one model do other work."""
_DIMS = re.compile(r"\[([\d, ]+)\]")
_PRODUCTS = frozenset({"linear", "mm", "addmm", "matmul"})

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Product:
    """Calls of one size. weights: both sizes of the second operand, ascending, which every form of a call keeps."""

    weights: Sizes
    rows: int
    tokens: int | None
    calls: float
    time_us: float


def serving(regions: Sequence[AnyRegion]) -> Serving | None:
    """What a step's attention works on at a time, else what its products do; None where no shape tells it."""
    told = list(_queries(regions)) or [(p.tokens, p.calls) for p in _products(regions) if p.tokens is not None]
    calls = sum(n for _, n in told)
    if not calls:
        return None
    single = sum(n for tokens, n in told if tokens == 1) / calls
    return {"kind": "decode" if single > MOST else "prefill", "tokens": _median(told), "single_share": single}


def tokens_at_a_time(region: AnyRegion) -> list[tuple[int, float]]:
    """Of one region's calls the tokens of each sequence, with how often it is called with so many: by attention's
    queries, else by what has three dimensions, of which the second is the tokens."""
    told = list(_queries([region]))
    if told:
        return told
    return [
        (first[1], calls)
        for operands, calls, _ in _shapes([region])
        if (first := next(iter(operands.values()), ())) and len(first) == 3
    ]


def same_kind(ours: Serving | None, theirs: Serving | None) -> bool | None:
    """Whether both work on one token at a time, or neither does; None where one does not tell."""
    return None if ours is None or theirs is None else ours["kind"] == theirs["kind"]


def other_amount(left: Sequence[AnyRegion], right: Sequence[AnyRegion], names: tuple[str, str]) -> str:
    """What tells that one model's steps work on other amounts, in words; "" for nothing.

    names: what the words call the two.
    """
    both = [serving(left), serving(right)]
    ours, theirs = list(_products(left)), list(_products(right))
    weights = [{p.weights for p in side} for side in (ours, theirs)]
    if min(map(len, weights)) > 1 and not weights[0] & weights[1]:
        return "no matrix product of either has weights of a size that the other has"
    if both[0] is not None and both[1] is not None and both[0]["kind"] != both[1]["kind"]:
        counts = " and ".join(_tokens(of["tokens"]) for of in both if of)
        return (
            f"{names[0]} is a {both[0]['kind']}, {names[1]} a {both[1]['kind']} ({counts} of each sequence at a time)"
        )
    rows = _rows_of_both(ours, theirs)
    if rows is not None and not 1 / OTHER_ROWS < rows[0] / rows[1] < OTHER_ROWS:
        return f"the products of {names[0]} have {rows[0]:,} rows, those of {names[1]} {rows[1]:,}"
    return ""


def _tokens(tokens: int) -> str:
    return "1 token" if tokens == 1 else f"{tokens:,} tokens"


# ------------------------------------------------------------------------------------------------------- what is called


def _queries(regions: Iterable[AnyRegion]) -> Iterator[tuple[int, float]]:
    """Query tokens of each sequence and how often attention is called with so many."""
    for operands, calls, _ in _shapes(regions):
        q, k = operands.get("q"), operands.get("k")
        if q is not None and k is not None and len(q) == len(k) == 4:
            yield q[-2], calls


def _products(regions: Iterable[AnyRegion]) -> Iterator[_Product]:
    """Products of activations with a weight, wherever a part is one or begins with one."""
    for operands, calls, time_us in _shapes(r for r in regions if _PRODUCTS & _operations(r)):
        x, w = operands.get("x"), operands.get("w")
        if x is None or w is None or len(w) != 2 or len(x) < 2 or x[-1] not in w or not math.prod(x):
            continue
        one, other = sorted(w)
        yield _Product((one, other), math.prod(x[:-1]), x[-2] if len(x) == 3 else None, calls, time_us)


def _operations(region: AnyRegion) -> frozenset[str]:
    source = region.get("source")
    return frozenset(source.get("ops") or ()) if source else frozenset()


def _shapes(regions: Iterable[AnyRegion]) -> Iterator[tuple[dict[str, Sizes], float, float]]:
    """Sizes of the operands by name, calls and time in a step, of each set of sizes."""
    for region in regions:
        for shape in region.get("shapes") or ():
            named: dict[str, Sizes] = {}
            for operand in shape.get("operands") or ():
                name, colon, rest = operand.partition(": ")
                if colon and (dims := _DIMS.search(rest)):
                    named[name] = tuple(int(d) for d in dims[1].split(",") if d.strip())
            yield named, shape["calls"], shape["time_us_per_step"] or 0.0


# ------------------------------------------------------------------------------------------------------------- the rows


def _rows_of_both(ours: Sequence[_Product], theirs: Sequence[_Product]) -> tuple[int, int] | None:
    """The rows of either's products in the middle of those on weights that both have; None where few are."""
    shared = {p.weights for p in ours} & {p.weights for p in theirs}
    for side in (ours, theirs):
        every = sum(p.time_us for p in side)
        if not every or sum(p.time_us for p in side if p.weights in shared) < LEAST_SHARED * every:
            return None
    one, other = (_median([(p.rows, p.time_us) for p in side if p.weights in shared]) for side in (ours, theirs))
    return one, other


def _median(weighted: Iterable[tuple[int | None, float]]) -> int:
    """The value in the middle by weight."""
    sums: dict[int, float] = defaultdict(float)
    for value, weight in weighted:
        if value is not None:
            sums[value] += weight
    half, so_far = sum(sums.values()) / 2, 0.0
    for value in sorted(sums):
        so_far += sums[value]
        if so_far >= half:
            return value
    return 0
