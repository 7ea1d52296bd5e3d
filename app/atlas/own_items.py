"""Items of this project's hand-written kernels: by the operations that they take the place of."""

from __future__ import annotations

from collections.abc import Sequence

from app.atlas.item import Item, alignment, log2
from app.atlas.operation_items import PROCESSORS, UNPRICED, operation_item
from profiler.region import op_kinds
from profiler.region.graph.operation import Operation, Tensor
from profiler.region.model import ITEMSIZE

GROUP = "hand-written"
LEADING = (
    op_kinds.MATRIX_KINDS,
    frozenset({op_kinds.NORMALISATION, op_kinds.SOFTMAX, op_kinds.SCAN, op_kinds.SORT}),
    frozenset({op_kinds.REDUCTION}),
)
"""Kinds by which a region's sizes are told, the first that it has."""
SIZES = (
    "rows", "columns", "stride of the axis", "m", "n", "k", "batch", "query rows", "key rows", "head", "causal", "mask",
    "batch and heads", "heads a key",
)  # fmt: skip


def own_item(candidate: str, operations: Sequence[Operation]) -> Item | None:
    """candidate: "triton:KERNEL". operations: all that it computes, with their gradients' where it has any. None where
    nothing of it has a size."""
    done = [o for o in operations if o.kind not in UNPRICED and o.reads and o.writes]
    leading = _leading(done)
    item = None if leading is None else operation_item(leading)
    if leading is None or item is None:
        return None
    read, written = _through(done)
    moved = sum(t.bytes for t in (*read, *written))
    flops = sum(o.flops for o in done if o.kind in op_kinds.MATRIX_KINDS)
    source = max(leading.reads, key=lambda t: t.elements)
    backward = any("backward" in o.target for o in done)
    columns = 2.0 ** item.numbers.get("columns", 0.0)
    rows = source.elements / max(1.0, columns)
    numbers = {
        **{name: item.numbers[name] for name in SIZES if name in item.numbers},
        "bytes": log2(moved), "bytes read": log2(sum(t.bytes for t in read)),
        "bytes written": log2(sum(t.bytes for t in written)), "elements": log2(source.elements),
        "item bytes": float(ITEMSIZE.get(source.dtype, 4)), "operations": log2(len(done)), "work": log2(flops),
        "rows a processor": min(4.0, rows / PROCESSORS), "aligned columns": float(alignment(int(columns))),
        "with gradients": float(backward), f"kernel={candidate.removeprefix('triton:')}": 1.0,
        f"dtype={source.dtype}": 1.0,
    }  # fmt: skip
    return Item(GROUP, max(1, moved), numbers, flops, source.dtype if flops else "f32")


def _leading(operations: Sequence[Operation]) -> Operation | None:
    """The one that the others stand around: by kind, then by size."""
    for kinds in LEADING:
        of_these = [o for o in operations if o.kind in kinds]
        if of_these:
            return max(of_these, key=lambda o: (o.flops, max(t.elements for t in o.reads)))
    return max(operations, key=lambda o: max(t.elements for t in (*o.reads, *o.writes)), default=None)


def _through(operations: Sequence[Operation]) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors that come in and that go out, each once."""
    made = {t.storage for o in operations for t in o.writes}
    used = {t.storage for o in operations for t in o.reads}
    read: dict[object, Tensor] = {}
    written: dict[object, Tensor] = {}
    for operation in operations:
        for tensor in operation.reads:
            if tensor.storage not in made:
                read.setdefault((tensor.storage, tensor.offset, tensor.shape), tensor)
        for tensor in operation.writes:
            if tensor.storage not in used:
                written.setdefault(tensor.storage, tensor)
    return list(read.values()), list(written.values())
