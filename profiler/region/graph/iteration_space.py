"""The iteration space of an operation: what two operations must have alike to share a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from profiler.region import op_kinds
from profiler.region.graph.operation import Operation, Tensor

ROWWISE = frozenset({op_kinds.REDUCTION, op_kinds.NORMALISATION, op_kinds.SOFTMAX, op_kinds.SCAN})


@dataclass(frozen=True, slots=True)
class Domain:
    """What one kernel iterates over: `rows` results, each of `columns` elements. Pointwise: columns 1.

    axis tells reductions over different axes of one tensor apart; they cannot share a loop.
    """

    rows: int
    columns: int
    axis: str = ""

    @property
    def elements(self) -> int:
        return self.rows * self.columns


def domain_of(operation: Operation) -> Domain:
    """The iteration space of one operation."""
    results = max((t.elements for t in operation.writes), default=1)
    sorts = op_kinds.base_name(operation.target) == "sort"  # what else is of its kind looks each element up
    if (operation.kind not in ROWWISE and not sorts) or not operation.reads:
        return Domain(results, 1)
    source = max(operation.reads, key=lambda t: t.elements)
    if op_kinds.base_name(operation.target) == "nll_loss_forward":
        return Domain(
            operation.reads[-1].elements, 1
        )  # one pick per target; the sum over them is a second, tiny kernel (splits)
    if operation.kind == op_kinds.NORMALISATION:
        return _normalisation_space(operation, source)
    axes = operation.axes or tuple(range(len(source.shape)))[-1 if sorts else 0 :]
    columns = math.prod(source.shape[a] for a in axes) if source.shape else 1
    trailing = axes == tuple(range(len(source.shape) - len(axes), len(source.shape)))
    axis = "last" if trailing else "strided " + ",".join(map(str, axes))
    return Domain(source.elements // max(1, columns), max(1, columns), axis)


def _normalisation_space(operation: Operation, source: Tensor) -> Domain:
    rows = [t.elements for t in operation.writes if 0 < t.elements < source.elements]
    columns = source.elements // rows[0] if rows else (source.shape[-1] if source.shape else 1)
    return Domain(max(1, source.elements // max(1, columns)), max(1, columns), "last")


def compatible(group: Domain, item: Domain) -> Domain | None:
    """The domain of a kernel that does both, or None."""
    if item.columns == 1 and group.columns == 1:
        return group if item.rows == group.rows else None
    if item.columns == 1:
        return group if item.rows in (group.elements, group.rows) else None
    if group.columns == 1:
        return item if group.rows in (item.elements, item.rows) else None
    same = (item.rows, item.columns, item.axis) == (group.rows, group.columns, group.axis)
    return group if same else None
