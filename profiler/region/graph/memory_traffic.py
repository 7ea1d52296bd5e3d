"""Which memory an operation touches: the one place where bytes are counted, for operations, kernels and regions.

Distinct bytes: a view costs nothing by itself, a broadcast dimension counts once, two views of one storage never count
for more than the storage. Gathers and scatters count the elements that are picked, not the table. Bytes are those of
elements: a strided read moves whole sectors of 32 bytes, which is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from profiler.region import op_kinds
from profiler.region.graph.operation import Operation, Tensor
from profiler.region.model import ITEMSIZE

FREE = frozenset({"empty", "new_empty", "empty_like", "empty_strided", "empty_permuted", "new_empty_strided",
                  "constant", "detach"})  # fmt: skip
SHAPE_ONLY = frozenset({"rand_like", "randn_like", "randint_like", "rand", "randn", "randint", "randperm"})
"""They take a tensor's sizes, not its values."""
OVERWRITING = frozenset({"fill_", "zero_", "normal_", "uniform_", "exponential_", "random_", "bernoulli_", "copy_",
                         "log_normal_", "geometric_", "cauchy_"})  # fmt: skip
"""Their first operand is written and not read."""
TABLES = frozenset({"index", "index_select", "gather", "embedding", "take", "_unsafe_index"})
PICKING = frozenset({"nll_loss_forward", "nll_loss2d_forward"})
WHOLE = frozenset({"segment_reduce", "histc", "bincount", "_unsafe_masked_index"})
"""Named as gathers or scatters, but they read what they are given."""
ADDING = frozenset({"index_add", "scatter_add", "scatter_reduce", "embedding_dense_backward"})
PADDED = frozenset({"slice_backward", "select_backward", "slice_scatter", "select_scatter", "diagonal_backward"})
"""Eager fills or copies the whole result, then writes the part in a second kernel."""


@dataclass(frozen=True, slots=True)
class Access:
    """Memory that is read or written. source: the value that is read, by name.

    view: tells addresses of one storage apart. limit: bytes of the storage, which all its views together cannot exceed.
    """

    storage: int
    view: tuple[object, ...]
    bytes: int
    limit: int
    source: str = ""


def distinct(accesses: Iterable[Access]) -> dict[int, int]:
    """Storage -> distinct bytes. Views that differ are taken as disjoint, up to the storage's size."""
    views: dict[tuple[int, tuple[object, ...]], int] = {}
    limits: dict[int, int] = {}
    for a in accesses:
        views[a.storage, a.view] = max(a.bytes, views.get((a.storage, a.view), 0))
        limits[a.storage] = a.limit
    by_storage = dict.fromkeys(limits, 0)
    for (storage, _), size in views.items():
        by_storage[storage] += size
    return {storage: min(size, limits[storage] or size) for storage, size in by_storage.items()}


def total(accesses: Iterable[Access]) -> int:
    """Distinct bytes of all of them together."""
    return sum(distinct(accesses).values())


def reads(operation: Operation) -> tuple[Access, ...]:
    """What one operation reads; nothing where its results have no elements."""
    name = op_kinds.base_name(operation.target)
    if nothing(operation) or operation.kind == op_kinds.CONSTANT or name in SHAPE_ONLY:
        return ()
    results = (*operation.writes, *operation.mutated)
    if results and not any(t.elements for t in results):
        return ()
    pairs = list(zip(operation.inputs, operation.reads, strict=False))
    if name in OVERWRITING:
        return tuple(_whole(s, t) for s, t in pairs[1:])
    if name in TABLES and pairs:
        return _picked_elements(operation, pairs, operation.writes[0].elements)
    if name in PICKING and len(pairs) > 1:
        return _picked_elements(operation, pairs, pairs[1][1].elements)
    if name in ("_embedding_bag", "embedding_bag"):
        table = pairs[0][1]
        return _picked_elements(operation, pairs, pairs[1][1].elements * math.prod(table.shape[1:]))
    if name == "nll_loss_backward":  # the log-probabilities give their shape only
        return tuple(_whole(s, t) for s, t in (pairs[0], *pairs[2:]))
    if _scatters(operation):
        return _scatter_reads(operation, pairs, name)
    return tuple(_whole(s, t) for s, t in pairs)


def writes(operation: Operation) -> tuple[Access, ...]:
    """What one operation writes, arguments that it changes included."""
    if nothing(operation):
        return ()
    if _scatters(operation) and operation.target.split(".")[1].endswith("_"):
        t = operation.writes[0]
        return (Access(t.storage, ("touched", operation.name), _touched_bytes(operation), t.extent, operation.name),)
    return tuple(_whole(operation.name, t) for t in (*operation.writes, *operation.mutated))


def eager_extra(operation: Operation) -> int:
    """Bytes that eager writes a second time: it fills or copies the whole result before it writes the part."""
    name = op_kinds.base_name(operation.target)
    if name in PADDED and operation.reads:
        return operation.reads[-1].bytes
    if name == "nll_loss_backward":
        return operation.reads[2].elements * _itemsize(operation.writes[0])
    functional = _scatters(operation) and not operation.target.split(".")[1].endswith("_")
    return _touched_bytes(operation) if functional else 0


def nothing(operation: Operation) -> bool:
    """Views, and memory that is not filled: no bytes, no launch."""
    return operation.kind == op_kinds.VIEW or op_kinds.base_name(operation.target) in FREE


def _whole(source: str, tensor: Tensor) -> Access:
    view = (tensor.offset, tensor.shape, tensor.stride)
    return Access(tensor.storage, view, tensor.bytes, tensor.extent, source)


def _itemsize(tensor: Tensor) -> int:
    return ITEMSIZE.get(tensor.dtype, 16 if "complex128" in tensor.dtype else 8)


def _picked_elements(operation: Operation, pairs: list[tuple[str, Tensor]], elements: int) -> tuple[Access, ...]:
    """Elements of a table, which is the first operand, and the indices whole."""
    source, table = pairs[0]
    size = min(elements * _itemsize(table), table.bytes)
    picked = Access(table.storage, ("picked", operation.name), size, table.extent, source)
    return (picked, *(_whole(s, t) for s, t in pairs[1:]))


def _scatters(operation: Operation) -> bool:
    name = op_kinds.base_name(operation.target)
    return operation.kind == op_kinds.SCATTER and name not in WHOLE and len(operation.reads) > 1


def _scatter_reads(operation: Operation, pairs: list[tuple[str, Tensor]], name: str) -> tuple[Access, ...]:
    """Indices and values; what is added to; and, where the result is new, all that it is a copy of."""
    adds = name.removesuffix("_") in ADDING or operation.accumulates
    if name.startswith("embedding_dense"):
        sources, target, source = pairs, operation.writes[0], operation.name
    else:
        sources, target, source = pairs[1:], pairs[0][1], pairs[0][0] if name.endswith("_") else operation.name
        if not name.endswith("_"):
            sources = pairs
    accesses = tuple(_whole(s, t) for s, t in sources)
    if not adds:
        return accesses
    storage = target.storage if name.endswith("_") else operation.writes[0].storage
    touched = Access(storage, ("touched", operation.name), _touched_bytes(operation), target.extent, source)
    return (*accesses, touched)


def _touched_bytes(operation: Operation) -> int:
    """Bytes of the target that a scatter writes: as many as there are values, at most all of it."""
    target = operation.writes[0]
    if op_kinds.base_name(operation.target).startswith("embedding_dense"):
        return min(operation.reads[0].elements * _itemsize(target), target.bytes)
    indices = [t for t in operation.reads[1:] if t.dtype in ("i64", "i32", "bool")]
    values = operation.reads[-1]
    elements = values.elements
    if values.elements == 1 or values in indices[-1:]:  # one value for every place: as many as the indices say
        name = op_kinds.base_name(operation.target)
        index = max((t.elements for t in indices), default=1)
        if "index_put" in name and not indices:  # a mask of u8, which torch still takes: how many places is unknown
            index = target.elements
        elif "index_put" in name:
            index *= math.prod(target.shape[max(len(t.shape) for t in indices) if indices[0].dtype == "bool"
                                            else len(indices) :])  # fmt: skip
        elif "index_fill" in name and operation.axes and target.shape:
            index *= target.elements // max(1, target.shape[operation.axes[0]])
        elements = index
    return min(elements * _itemsize(target), target.bytes)
