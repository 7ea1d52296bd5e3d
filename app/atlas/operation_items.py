"""Items of operations as eager runs them, and of library calls inside compiled code: by their tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from app.atlas.item import Item, alignment, log2
from profiler.oracle.model import CallSite, Operand
from profiler.region import op_kinds
from profiler.region.graph.operation import Operation, Tensor
from profiler.region.model import ITEMSIZE
from profiler.region.operations import kind_of

PROCESSORS = 132
"""Of the GPUs with an atlas; only a scale for how many tiles or rows there are to a processor."""
TILE = 128
"""Rows and columns of a matrix product's output tile, as cuBLAS's large kernels have them."""
UNPRICED = frozenset({op_kinds.VIEW, op_kinds.CONSTANT, op_kinds.FFT, op_kinds.COMMUNICATION, op_kinds.OTHER})
INDICES = frozenset({"i64", "i32"})
TF32_BY_DEFAULT = op_kinds.CONVOLUTION
"""Convolutions of f32 run in TF32 as torch comes (torch.backends.cudnn.allow_tf32)."""


def operation_item(operation: Operation) -> Item | None:
    """None for an operation that writes or reads nothing, and for kinds of which nothing was measured."""
    kind = operation.kind
    if kind in UNPRICED or not operation.writes or not operation.reads:
        return None
    reads, writes = operation.reads, operation.writes
    source = max(reads, key=lambda t: t.elements)
    result = max(writes, key=lambda t: t.elements)
    if not source.elements:
        return None
    moved = sum(t.bytes for t in (*reads, *writes))
    name = op_kinds.base_name(operation.target)
    columns = _columns(operation, source)
    numbers = {
        f"target={name}": 1.0,
        f"dtype={source.dtype}": 1.0,
        "bytes read": log2(sum(t.bytes for t in reads)),
        "bytes written": log2(sum(t.bytes for t in writes)),
        "bytes": log2(moved),
        "elements": log2(max(source.elements, result.elements)),
        "result elements": log2(result.elements),
        "item bytes": float(ITEMSIZE.get(source.dtype, 4)),
        "result item bytes": float(ITEMSIZE.get(result.dtype, 4)),
        "tensors read": float(len(reads)),
        "dimensions": float(max(len(source.shape), len(result.shape))),
        "shortest run read": min((log2(_run(t)) for t in reads if t.elements > 1), default=0.0),
        "run written": log2(_run(result)),
        "input permuted": float(_permuted(source)),
        "result permuted": float(_permuted(result)),
        "channels last": float(_channels_last(source)),
        "broadcast": float(any(t.elements not in (1, result.elements) for t in reads)),
        "last size": log2(result.shape[-1]) if result.shape else 0.0,
        "smallest read": log2(min(t.elements for t in reads)),
        "second read": log2(sorted(t.elements for t in reads)[-2]) if len(reads) > 1 else 0.0,
        "aligned input": float(alignment(source.shape[-1])) if source.shape else 7.0,
        "aligned result": float(alignment(result.shape[-1])) if result.shape else 7.0,
        "columns": log2(columns),
        "rows": log2(source.elements / columns),
        "aligned columns": float(alignment(columns)),
        "rows a processor": min(4.0, source.elements / columns / PROCESSORS),
        "columns of few rows": log2(columns) if source.elements / columns < PROCESSORS else -1.0,
        "bytes a row": min(1.0, columns * ITEMSIZE.get(source.dtype, 4) / 1e6),
        "columns are a power of 2": float(columns & (columns - 1) == 0),
        "stride of the axis": _axis_stride(operation, source),
        "axes": float(len(operation.axes)),
    }
    more = MORE.get(kind)
    group = kind
    if kind == op_kinds.CONVOLUTION and "backward" in name:
        group = "convolution backward"
    elif kind in (op_kinds.NORMALISATION, op_kinds.ATTENTION) and "backward" in name:
        group = f"{kind} backward"
    if more is not None:
        try:
            numbers |= more(operation, name)
        except (IndexError, ValueError, ZeroDivisionError):
            return None  # tensors in another order than the kind's calls have them
    dtype = "tf32" if kind == TF32_BY_DEFAULT and source.dtype == "f32" else source.dtype
    flops = operation.flops if kind in op_kinds.MATRIX_KINDS else 0.0
    return Item(f"eager {group}", moved, numbers, flops, dtype, serial_us=serial_us(f"eager {group}", numbers))


def serial_us(group: str, numbers: Mapping[str, float]) -> float:
    """What one row takes that nothing else goes along with."""
    columns = math.exp2(numbers.get("columns", 0.0))
    if group == f"eager {op_kinds.SCAN}":
        along_outer = numbers.get("stride of the axis", 0.0) > 0
        return columns * (STEP_ALONG_OUTER_US if along_outer else STEP_ALONG_INNER_US)
    if group.startswith((f"eager {op_kinds.SOFTMAX}", f"eager {op_kinds.NORMALISATION}")):
        return columns * numbers.get("item bytes", 4.0) / PROCESSOR_BYTES_US
    return 0.0


STEP_ALONG_OUTER_US, STEP_ALONG_INNER_US = 0.15, 0.0015
"""Of a scan's row, for each element: at least 0.15 µs where a thread goes along it, at least 0.0015 where a block does
(recorded points of the H100 and the H200)."""
PROCESSOR_BYTES_US = 4e4
"""Bytes that one processor reads in a µs: twice its share of the H200's copy rate. A guess."""


def _columns(operation: Operation, source: Tensor) -> int:
    """Elements that one result is made of; 1 where nothing is reduced."""
    if operation.kind == op_kinds.NORMALISATION:
        saved = [t.elements for t in operation.writes if 0 < t.elements < source.elements]
        return source.elements // saved[0] if saved else (source.shape[-1] if source.shape else 1)
    if operation.kind == op_kinds.SORT:
        return source.shape[-1] if source.shape else 1
    axes: Sequence[int] = operation.axes
    if not axes and operation.kind == op_kinds.REDUCTION:
        axes = range(len(source.shape))
    sizes = [source.shape[a] for a in axes if a < len(source.shape)]
    return max(1, math.prod(sizes)) if sizes else 1


def _axis_stride(operation: Operation, source: Tensor) -> float:
    strides = [source.stride[a] for a in operation.axes if a < len(source.shape) and source.shape[a] > 1]
    return log2(min(strides)) if strides else 0.0


def _run(tensor: Tensor) -> int:
    """Elements that lie one after another in memory."""
    run = 1
    for size, stride in sorted(zip(tensor.shape, tensor.stride, strict=True), key=lambda p: p[1]):
        if size == 1:
            continue
        if stride != run:
            break
        run *= size
    return run


def _permuted(tensor: Tensor) -> bool:
    strides = [stride for size, stride in zip(tensor.shape, tensor.stride, strict=True) if size > 1]
    return any(a < b for a, b in itertools.pairwise(strides))


def _channels_last(tensor: Tensor) -> bool:
    return len(tensor.shape) >= 4 and tensor.shape[1] > 1 and tensor.stride[1] == 1


def _gemm(operation: Operation, name: str) -> dict[str, float]:
    """m, n, k, batch, alignment and order of the operands."""
    result = max(operation.writes, key=lambda t: t.elements)
    m, n = result.shape[-2:] if len(result.shape) > 1 else (1, result.elements)
    batch = result.elements // max(1, m * n)
    k = max(1, operation.flops // max(1, 2 * result.elements))
    factors = _factors(name, operation.reads) or list(operation.reads[:2])
    tiles = math.ceil(m / TILE) * math.ceil(n / TILE) * batch
    return {
        "m": log2(m), "n": log2(n), "k": log2(k), "batch": log2(batch), "narrower side": log2(min(m, n)),
        "aligned operands": float(min((_aligned_bytes(t) for t in factors), default=6)),
        "first transposed": float(factors[0].stride[-1] != 1), "second transposed": float(factors[-1].stride[-1] != 1),
        "tiles": log2(tiles), "last wave": tiles / PROCESSORS / math.ceil(tiles / PROCESSORS) if tiles else 1.0,
        "intensity": log2(operation.flops / max(1, sum(t.bytes for t in (*factors, result)))),
        "k of few tiles": log2(k) if tiles < PROCESSORS else -1.0, f"factors={factors[0].dtype}": 1.0,
    }  # fmt: skip


def _aligned_bytes(tensor: Tensor) -> int:
    """How often 2 divides the bytes from row to row, at most 6: 16 bytes (4) is what cuBLAS's fast kernels need."""
    strides = [
        stride for size, stride in zip(tensor.shape[-2:], tensor.stride[-2:], strict=True) if size > 1 and stride > 1
    ]
    return min((alignment(s * ITEMSIZE.get(tensor.dtype, 4), 6) for s in strides), default=6)


def _convolution(operation: Operation, name: str) -> dict[str, float]:
    """Channels, groups, filter, positions. Of a backward pass the upstream gradient stands first."""
    backward = "backward" in name
    if backward:
        result, image, weights = operation.reads[:3]
    else:
        (image, weights), result = operation.reads[:2], operation.writes[0]
    spatial = len(image.shape) - 2
    positions, taps = math.prod(result.shape[2:]), math.prod(weights.shape[2:])
    transposed = result.shape[1] != weights.shape[0]
    groups = max(1, image.shape[1] // max(1, weights.shape[1]))
    if transposed:
        groups = max(1, result.shape[1] // max(1, weights.shape[1]))
    gradients = sum(t.elements > 0 for t in operation.writes)
    return {
        "channels in": log2(image.shape[1]), "channels out": log2(result.shape[1]), "groups": log2(groups),
        "channels of a group": log2(image.shape[1] / groups), "taps": log2(taps), "positions": log2(positions),
        "images": log2(image.shape[0]), "spatial axes": float(spatial),
        "shrinks": log2(image.shape[-1] / max(1, result.shape[-1])) if result.shape[-1] else 0.0,
        "last tap": float(weights.shape[-1]), "one tap": float(taps == 1), "transposed": float(transposed),
        "depthwise": float(groups > 1 and groups == image.shape[1]), "grouped": float(groups > 1),
        "m": log2(positions * image.shape[0]), "k": log2(taps * weights.shape[1]), "gradients": float(gradients),
        "aligned channels in": float(alignment(image.shape[1])), "work": log2(operation.flops),
        "aligned channels out": float(alignment(result.shape[1])), "aligned width": float(alignment(image.shape[-1])),
        "result channels last": float(_channels_last(result)), f"image={image.dtype}": 1.0,
        "weights channels last": float(_channels_last(weights)),
        "intensity": log2(operation.flops / max(1, image.bytes + result.bytes)),
    }  # fmt: skip


def _attention(operation: Operation, name: str) -> dict[str, float]:
    """Rows, keys, head size, batch times heads; a mask; fewer heads of keys. A backward reads its upstream first."""
    query, key = operation.reads[1:3] if "backward" in name else operation.reads[:2]
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    products = BACKWARD_OF_ATTENTION if "backward" in name else 1.0
    causal = operation.flops and operation.flops < 3.0 * products * pairs * query.shape[-1]
    return {
        "query rows": log2(query.shape[-2]), "key rows": log2(key.shape[-2]), "head": float(query.shape[-1]),
        "batch and heads": log2(math.prod(query.shape[:-2])), "mask": float(len(operation.reads) > 3),
        "heads a key": log2(query.shape[1] / key.shape[1]) if len(query.shape) == 4 and key.shape[1] else 0.0,
        "causal": float(bool(causal)), "work": log2(operation.flops),
    }  # fmt: skip


def _indexed(operation: Operation, name: str) -> dict[str, float]:
    """Places, how long a row at one place is, how large the table, how often a place comes again."""
    tensors = [t for t in (*operation.reads, *operation.writes) if t.dtype not in INDICES and t.shape]
    places = max((t.elements for t in operation.reads if t.dtype in INDICES), default=1)
    width, table = min(t.shape[-1] for t in tensors), max(t.shape[0] for t in tensors)
    return {
        "width": log2(width), "aligned width": float(alignment(width)), "places": log2(places),
        "table bytes": log2(max(t.bytes for t in tensors)), "places a row": log2(places) - log2(table),
        "rows of the table": log2(table),
    }  # fmt: skip


def _normalised(operation: Operation, name: str) -> dict[str, float]:
    """Whether statistics are taken, and over how long runs."""
    source = max(operation.reads, key=lambda t: t.elements)
    images = source.shape[0] if source.shape else 1
    return {
        "statistics": float(sum(0 < t.elements < source.elements for t in operation.writes)),
        "plane": log2(math.prod(source.shape[2:])), "images": log2(images),
        "channels": log2(source.shape[1]) if len(source.shape) > 1 else 0.0,
    }  # fmt: skip


def _by_element(operation: Operation, name: str) -> dict[str, float]:
    """Whether an operand lies in another order than the largest, and how far apart its neighbours along the last axis
    of the result are: each element is then a read of its own.

    bf16 [4, 71, 1024, 1024] plus [71, 1024, 1024] with the first axis innermost: 7.7 ms, in order 0.6 (H100).
    """
    source = max(operation.reads, key=lambda t: t.elements)
    others = [t for t in operation.reads if t is not source and t.elements > 1]
    steps = [t.stride[-1] for t in others if t.shape and t.shape[-1] > 1]
    return {
        "operand in another order": float(any(_permuted(t) != _permuted(source) for t in others)),
        "operand's step": log2(max((abs(s) for s in steps), default=1)),
    }  # fmt: skip


MORE: Mapping[str, Callable[[Operation, str], dict[str, float]]] = {
    op_kinds.GEMM: _gemm,
    op_kinds.CONVOLUTION: _convolution,
    op_kinds.ATTENTION: _attention,
    op_kinds.GATHER: _indexed,
    op_kinds.SCATTER: _indexed,
    op_kinds.NORMALISATION: _normalised,
    op_kinds.POINTWISE: _by_element,
}
"""What is told besides of the kinds whose times need more than sizes."""


# ------------------------------------------------------------------------------------------------------- library calls


def site_item(name: str, site: CallSite) -> Item | None:
    """The item of a library call inside compiled code. None where the call was not described."""
    operation = site_operation(name, site)
    return None if operation is None else operation_item(operation)


def site_operation(name: str, site: CallSite) -> Operation | None:
    """The call as an operation, its FLOPs counted from its shapes and constants."""
    if not site.inputs or not site.outputs:
        return None
    base = name.removeprefix("aten.").removeprefix("extern_kernels.").split(".")[0]
    base = EAGER_NAMES.get(base, base)
    reads = tuple(_tensor(o, n) for n, o in enumerate(site.inputs))
    writes = tuple(_tensor(o, -1 - n) for n, o in enumerate(site.outputs))
    target = f"aten.{base}.default"
    kind = kind_of(target)
    if "attention" in base:
        kind = op_kinds.ATTENTION
        target = "tritonworthy.attention_backward.default" if "backward" in base else "tritonworthy.attention.default"
        reads = reads if "backward" in base else reads[:4]
    flops = _flops(kind, base, reads, writes, site)
    axes: tuple[int, ...] = ()
    dimensions, axis = len(reads[0].shape), site.constant("dim", -1)
    if kind in (op_kinds.SORT, op_kinds.SCAN) and dimensions and isinstance(axis, int):
        axes = (axis % dimensions,)
    return Operation(base, target, base, kind, (), reads, writes, flops, 0, axes)


def attention_item(heads: int, queries: int, keys: int, depth: int, dtype: str) -> Item | None:
    """One forward call of scaled_dot_product_attention without a mask. heads: of all of the batch."""
    sizes = ((1, heads, queries, depth), (1, heads, keys, depth), (1, heads, keys, depth), (1, heads, queries, depth))
    query, key, value, result = (_dense(shape, dtype, number) for number, shape in enumerate(sizes))
    target = "tritonworthy.attention.default"
    flops = 4 * heads * queries * keys * depth
    return operation_item(
        Operation("attention", target, "attention", op_kinds.ATTENTION, (), (query, key, value), (result,), flops, 0)
    )


def _dense(shape: tuple[int, ...], dtype: str, storage: int) -> Tensor:
    """One whose elements lie in the order of its axes."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= size
    return Tensor(shape, tuple(reversed(stride)), dtype, storage, step * ITEMSIZE.get(dtype, 4))


EAGER_NAMES: Mapping[str, str] = {"bias_addmm": "addmm", "mm_dtype": "mm", "bmm_dtype": "bmm"}
"""Names under which Inductor calls what eager calls otherwise."""
BACKWARD_OF_ATTENTION = 2.5
"""Its five products to forward's two."""


def _tensor(operand: Operand, storage: int) -> Tensor:
    count = math.prod(size for size, stride in zip(operand.shape, operand.stride, strict=True) if stride)
    return Tensor(operand.shape, operand.stride, operand.dtype, storage, count * ITEMSIZE.get(operand.dtype, 4))


def _flops(kind: str, name: str, reads: Sequence[Tensor], writes: Sequence[Tensor], site: CallSite) -> int:
    """Two for each multiplication with its addition."""
    result = max(writes, key=lambda t: t.elements)
    if kind == op_kinds.GEMM:
        factors = _factors(name, reads)
        return 2 * result.elements * factors[0].shape[-1] if len(factors) == 2 and factors[0].shape else 0
    if kind == op_kinds.CONVOLUTION and len(reads) >= 2:
        image, weights = reads[1:3] if "backward" in name and len(reads) >= 3 else reads[:2]
        result = reads[0] if "backward" in name else result
        gradients = sum(1 for t in writes[:2] if t.elements) if "backward" in name else 1
        places = image if site.constant("transposed") is True else result
        return 2 * gradients * places.elements * math.prod(weights.shape[1:])
    if kind == op_kinds.ATTENTION:
        query, key = reads[1:3] if "backward" in name else reads[:2]
        forward = 4 * math.prod(query.shape[:-1]) * key.shape[-2] * query.shape[-1]
        seen = 0.5 if site.constant("is_causal") is True else 1.0  # as `flops` counts causal order
        return int(forward * seen * (BACKWARD_OF_ATTENTION if "backward" in name else 1.0))
    return 0


def _factors(name: str, reads: Sequence[Tensor]) -> list[Tensor]:
    """The two matrices of a product: behind what is added to it, in front of scales."""
    matrices = [t for t in reads if len(t.shape) >= 2]
    return matrices[:2] if name.endswith(("scaled_mm", "int_mm")) else matrices[-2:]
