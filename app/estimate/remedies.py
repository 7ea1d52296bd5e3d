"""What a library's calls take once their operands have another size or layout, by the device's atlas. Pure functions.

A remedy is made of the operations as they run now, by changing their tensors; the atlas prices both alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.atlas.price import between
from app.atlas.shipped import Launched, prices_of
from app.estimate.range import Range
from app.estimate.rates import Rates
from profiler.hardware import Device
from profiler.region import op_kinds
from profiler.region.graph.operation import Operation, Tensor
from profiler.region.model import ITEMSIZE

ROW_BYTES = 16
"""To which rows of a product's operands have to be aligned for the kernels that load them by tensor memory or by 16
bytes (cuBLAS's documentation)."""
PADDED_TO = 64
"""Elements to which sizes are padded: whole rows of 128 bytes of a 16-bit type, and whole tiles of the kernels."""
EIGHTY_PERCENT = 1.2816
"""Standard deviations to either side that hold 80 % of a normal distribution: the range of every prediction."""


def odd_sizes(operations: Sequence[Operation]) -> dict[int, int]:
    """Size -> padded, of rows of the products' operands and results that are no multiple of 16 bytes."""
    padded: dict[int, int] = {}
    for operation in operations:
        if operation.kind != op_kinds.GEMM:
            continue
        for tensor in (*operation.reads, *operation.writes):
            if len(tensor.shape) < 2:
                continue
            for size, stride in zip(tensor.shape[-2:], tensor.stride[-2:], strict=True):
                row = size * ITEMSIZE.get(tensor.dtype, 4)
                if stride == 1 and size > 1 and row % ROW_BYTES:
                    padded[size] = math.ceil(size / PADDED_TO) * PADDED_TO
    return padded


def resized(operations: Sequence[Operation], sizes: Mapping[int, int]) -> tuple[Operation, ...]:
    """The operations with these sizes in the place of those, wherever they stand."""
    return tuple(_resized(o, sizes) for o in operations)


def _resized(operation: Operation, sizes: Mapping[int, int]) -> Operation:
    present = {s for t in (*operation.reads, *operation.writes) for s in t.shape} & sizes.keys()
    more = math.prod(sizes[s] / s for s in present)
    return replace(
        operation, flops=int(operation.flops * more),
        reads=tuple(_with_sizes(t, sizes) for t in operation.reads),
        writes=tuple(_with_sizes(t, sizes) for t in operation.writes),
    )  # fmt: skip


def _with_sizes(tensor: Tensor, sizes: Mapping[int, int]) -> Tensor:
    shape = tuple(sizes.get(s, s) for s in tensor.shape)
    if shape == tensor.shape:
        return tensor
    stride = tuple(_restrided(s, tensor.shape, sizes) for s in tensor.stride)
    return replace(tensor, shape=shape, stride=stride, bytes=tensor.bytes * math.prod(shape) // tensor.elements)


def _restrided(stride: int, shape: Sequence[int], sizes: Mapping[int, int]) -> int:
    """A stride that skips a row of a size that changes skips one of the new size."""
    for size in shape:
        if size in sizes and stride and stride % size == 0:
            return stride // size * sizes[size]
    return stride


def channels_last(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Convolutions on images, filters and gradients whose channels lie next to each other."""
    return tuple(
        replace(o, reads=tuple(map(_channels_last, o.reads)), writes=tuple(map(_channels_last, o.writes)))
        if o.kind == op_kinds.CONVOLUTION
        else o
        for o in operations
    )


def _channels_last(tensor: Tensor) -> Tensor:
    if len(tensor.shape) < 4:
        return tensor
    order = (0, *range(2, len(tensor.shape)), 1)
    stride, step = [0] * len(tensor.shape), 1
    for axis in reversed(order):
        stride[axis], step = step, step * tensor.shape[axis]
    return replace(tensor, stride=tuple(stride))


def is_channels_first(operation: Operation) -> bool:
    """A convolution of images, or of volumes, whose channels do not lie next to each other."""
    image = max(operation.reads, key=lambda t: t.elements)
    return len(image.shape) >= 4 and image.shape[1] > 1 and image.stride[1] != 1


def has_square_mask(operation: Operation) -> bool:
    """Attention that reads a mask as large as its scores, with as many rows as columns: it may be the causal one."""
    if operation.kind != op_kinds.ATTENTION or "backward" in operation.target or len(operation.reads) < 4:
        return False
    query, key, mask = operation.reads[0], operation.reads[1], operation.reads[3]
    rows, columns = query.shape[-2], key.shape[-2]
    return rows == columns and mask.shape[-2:] == (rows, columns)


def causal(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Attention told that it is causal: no mask is read, and half of the scores are computed."""
    return tuple(
        replace(o, reads=o.reads[:3], inputs=o.inputs[:3], flops=o.flops // 2) if has_square_mask(o) else o
        for o in operations
    )


def is_of_patches(operation: Operation) -> bool:
    """A forward convolution that reads every pixel once: its filter is as large as its stride, without padding."""
    if operation.kind != op_kinds.CONVOLUTION or "backward" in operation.target:
        return False
    (image, filters), result = operation.reads[:2], operation.writes[0]
    taps, places = math.prod(filters.shape[2:]), math.prod(result.shape[2:])
    return image.shape[1] == filters.shape[1] and taps > 1 and taps * places == math.prod(image.shape[2:])


def as_products(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Convolutions of patches as a copy that puts each patch into a row, and a matrix product."""
    made: list[Operation] = []
    for operation in operations:
        made += _as_product(operation) if is_of_patches(operation) else [operation]
    return tuple(made)


def _as_product(operation: Operation) -> list[Operation]:
    (image, filters), result = operation.reads[:2], operation.writes[0]
    rows = image.shape[0] * math.prod(result.shape[2:])
    width, outputs = math.prod(filters.shape[1:]), filters.shape[0]
    patches = replace(image, shape=(rows, width), stride=(width, 1), storage=-1)
    turned = replace(filters, shape=(width, outputs), stride=(1, width))
    product = replace(result, shape=(rows, outputs), stride=(outputs, 1))
    copy = replace(
        operation, name=f"{operation.name}_patches", target="aten.clone.default", kind=op_kinds.COPY, flops=0,
        reads=(image,), writes=(patches,), inputs=operation.inputs[:1],
    )  # fmt: skip
    return [
        copy,
        replace(operation, target="aten.mm.default", kind=op_kinds.GEMM, reads=(patches, turned), writes=(product,)),
    ]


def price(operations: Sequence[Operation], device: Device, rates: Rates) -> Range | None:
    """What the atlas says that they take together; None where it does not know one of them."""
    if not rates.atlas or not operations:
        return None
    known = prices_of(Launched(tuple(operations)), device, rates.scaled)
    if any(o.name not in known for o in operations):
        return None
    times = [(between(*known[o.name]), known[o.name][0].deviation) for o in operations]
    total = sum(t for t, _ in times)
    deviation = sum(t * d for t, d in times) / total
    factor = math.exp(EIGHTY_PERCENT * deviation)
    return Range(total / factor, total, total * factor)
