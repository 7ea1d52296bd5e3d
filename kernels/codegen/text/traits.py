"""The traits of a generated kernel, as its plan says them before anything is launched."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from kernels.codegen.expressions.values import Value
from kernels.codegen.plan import Plan, Store
from kernels.codegen.text.loops import levels_of
from kernels.codegen.traits_model import GeneratedTraits
from profiler.region.model import ITEMSIZE

SPECIAL = re.compile(
    r"\b(?:exp2?|log2?|log1p|expm1|sqrt(?:_rn)?|rsqrt|sin|cos|tan|sigmoid|erf|tanh|pow|lgamma)\(|\blog_(?:add|sums)\b"
)
"""Calls in an expression that special-function units take, or tens of instructions."""
HEAVY = re.compile(r"\b(erf|tanh|pow|lgamma|log1p|expm1|tan)\(")
DRAWN = "(seed + "
WITH_PLACES = ("argmax", "argmin")


def traits_of(plan: Plan, form: str, configurations: int, parts: Sequence[Plan] = ()) -> GeneratedTraits:
    """plan: of the whole kernel. parts: of what it computes, each over a domain of its own, where that is not the
    plan's: of a product its operands and its result."""
    told = [_Part(part, 1 if form == "tile" else part.domain.columns) for part in parts or (plan,)]
    stores = plan.stores
    plain, added = [s for s in stores if not s.how], [s for s in stores if s.how]
    item_bytes = [ITEMSIZE[v.stored] for part in told for v in part.loads if part.is_full(v) and v.stored]
    rows, columns = plan.domain.rows, plan.domain.width
    if form == "flat":
        rows, columns = rows * columns, 1
    elif form == "tile":
        columns = plan.domain.sizes[-1]
        rows = math.prod(plan.domain.sizes[:-1])
    return GeneratedTraits(
        form=form,
        rows=rows,
        columns=columns,
        axes=max(len(part.plan.domain.sizes) for part in told),
        passes=_passes(plan) if form == "loop" else 1,
        strided=bool(plan.reduces and plan.strided),
        bytes_read=sum(
            min(_bytes(o.dtype, o.shape, o.strides), sum(part.asked(name) for part in told))
            for name, o in plan.operands.items()
        ),
        bytes_asked=sum(part.asked() for part in told),
        bytes_written=sum(_bytes(s.dtype, s.shape, s.strides) for s in plain),
        bytes_added=sum(_added(s, told[-1]) for s in added),
        bytes_started=sum(_started(s) for s in added),
        loads=sum(len(part.loads) for part in told),
        full_loads=sum(part.is_full(v) for part in told for v in part.loads),
        stores=len(stores),
        broken_bytes=sum(part.broken_bytes() for part in told),
        placed_bytes=sum(
            part.lanes(v) * ITEMSIZE.get(v.stored, 4) for part in told for v in part.loads if v.args and v.stride
        ),
        item_bytes=min(item_bytes, default=4),
        arithmetic=sum(part.executed(lambda v: True) for part in told),
        special=sum(part.executed(lambda v: SPECIAL.search(v.text) is not None) for part in told),
        heavy=sum(part.executed(lambda v: HEAVY.search(v.text) is not None) for part in told),
        drawn=sum(part.executed(lambda v: DRAWN in v.text) for part in told),
        reductions=sum(v.kind == "reduce" for part in told for v in part.plan.values),
        scans=sum(v.kind == "scan" for part in told for v in part.plan.values),
        sorts=sum(v.kind == "sort" for part in told for v in part.plan.values),
        places=sum(v.kind == "reduce" and v.text in WITH_PLACES for part in told for v in part.plan.values),
        scanned=sum(part.scanned() for part in told),
        ordered=sum(part.ordered() for part in told),
        configurations=configurations,
    )


class _Part:
    """What is computed over one domain."""

    def __init__(self, plan: Plan, columns: int) -> None:
        """columns: dimensions at the end that are the tile's or the row's columns."""
        self.plan = plan
        self.loads = [v for v in plan.values if v.kind == "load"]
        sizes = plan.domain.sizes
        self.first = len(sizes) - columns
        self.rows, self.width = math.prod(sizes[: self.first]), math.prod(sizes[self.first :])
        self.elements = self.rows * self.width

    def lanes(self, load: Value) -> int:
        """Elements that its lanes load: rows and columns are one number each, and what differs along some of their
        dimensions is loaded for all of them."""
        if load.args:
            return self.elements
        dims = [d for d, _ in load.where.terms]
        along_rows, along_columns = any(d < self.first for d in dims), any(d >= self.first for d in dims)
        return (self.rows if along_rows else 1) * (self.width if along_columns else 1)

    def asked(self, operand: str = "") -> int:
        """Bytes that its lanes load, of one operand where that is named: no more of a table than there are places."""
        loads = [v for v in self.loads if operand in ("", v.operand)]
        return sum(self.lanes(v) * ITEMSIZE.get(v.stored, 4) for v in loads)

    def scanned(self) -> int:
        """Of each scan an element is joined as often as a row can be halved."""
        return sum(self.elements * self._halvings() for v in self.plan.values if v.kind == "scan")

    def ordered(self) -> int:
        """Of a sorting network, or of the part of it that finds the first so many."""
        total = 0
        for value in self.plan.values:
            if value.kind == "sort":
                first = int(value.text) if value.text.isdigit() else self.width
                merged = max(1, (first - 1).bit_length())
                total += self.elements * self._halvings() * (merged + 1) // 2
        return total

    def _halvings(self) -> int:
        return max(1, (self.width - 1).bit_length())

    def is_full(self, load: Value) -> bool:
        return 2 * self.lanes(load) > self.elements

    def broken_bytes(self) -> int:
        """Of full loads and stores without a dimension along which the next element lies next in memory."""
        broken = [v for v in self.loads if self.is_full(v) and not v.args and self._is_broken(v.where.terms)]
        return sum(self.lanes(v) * ITEMSIZE.get(v.stored, 4) for v in broken) + sum(
            self.elements * ITEMSIZE.get(s.dtype, 4)
            for s in self.plan.stores
            if not s.how and s.where.terms and self._is_broken(s.where.terms)
        )

    def _is_broken(self, terms: Sequence[tuple[int, int]]) -> bool:
        return bool(terms) and min(abs(c) for _, c in terms) > 1

    def executed(self, wanted: Callable[[Value], bool]) -> int:
        """Executions of the expressions that are wanted; each reduction and scan is one for each element as well."""
        total = 0
        for value in self.plan.values:
            if value.kind not in ("expression", "reduce", "scan") or not wanted(value):
                continue
            whole = value.columns or value.kind != "expression"
            times = self._halvings() if value.kind == "scan" else 1
            total += times * self.elements if whole else self.plan.domain.rows
        return total


def _bytes(dtype: str, shape: Sequence[int], strides: Sequence[int]) -> int:
    """Of its distinct elements: an expanded dimension is read once."""
    return ITEMSIZE.get(dtype, 4) * math.prod(n for n, s in zip(shape, strides, strict=True) if s or not n)


def _added(store: Store, part: _Part) -> int:
    """Bytes of the additions that are made to memory."""
    return part.elements * ITEMSIZE.get(store.dtype, 4)


def _started(store: Store) -> int:
    """Bytes that are moved so that an output holds what it begins with: twice its own where they are copied."""
    if store.start is None:
        return 0
    return _bytes(store.dtype, store.shape, store.strides) * (1 if store.start.number is not None else 2)


def _passes(plan: Plan) -> int:
    """Walks along a row: one for each level of reductions, one more where columns are stored."""
    return max(levels_of(plan.values)[0].values(), default=0) + any(s.value.columns for s in plan.stores)
