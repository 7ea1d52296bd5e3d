"""What a library's calls take once their operands have another size or layout, by the device's atlas. Pure functions.

A remedy is made of the operations as they run now, by changing their tensors; the atlas prices both alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from app.atlas.price import between
from app.atlas.shipped import Launched, basis_of, prices_of
from app.estimate.range import Range
from app.estimate.rates import Rates
from profiler.hardware import Device, find_device
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


Padding = Literal["rows", "sum", "both", "columns", "batch"]
"""Where a product's odd size is padded. rows: of a weight stored [out, in], its output size. sum: rows of a weight
stored [in, out], or of one stored [out, in] that a gradient is multiplied by. both: the last dimension of both factors,
which the product sums over. columns: of a weight, or of its gradient, and of the result. batch: of factors of as many
products as there are batches or heads."""
PADDINGS: tuple[Padding, ...] = get_args(Padding)


def odd_sizes(operations: Sequence[Operation]) -> dict[Padding, dict[int, int]]:
    """Where -> size -> padded, of rows of the products' operands and results that are no multiple of 16 bytes.

    A size that stands in several places is told of at the first of `PADDINGS`.
    """
    every: dict[Padding, dict[int, int]] = {}
    for operation in operations:
        if operation.kind != op_kinds.GEMM:
            continue
        odd = {s for t in (*operation.reads, *operation.writes) if (s := _odd_row(t))}
        for size in odd:
            every.setdefault(_padding(operation, size), {})[size] = math.ceil(size / PADDED_TO) * PADDED_TO
    told: set[int] = set()
    sizes: dict[Padding, dict[int, int]] = {}
    for where in PADDINGS:
        here = {s: p for s, p in every.get(where, {}).items() if s not in told}
        told |= here.keys()
        if here:
            sizes[where] = here
    return sizes


def _odd_row(tensor: Tensor) -> int:
    """The size of rows that are no multiple of 16 bytes; 0 for none."""
    if len(tensor.shape) < 2:
        return 0
    for size, stride in zip(tensor.shape[-2:], tensor.stride[-2:], strict=True):
        if stride == 1 and size > 1 and size * ITEMSIZE.get(tensor.dtype, 4) % ROW_BYTES:
            return size
    return 0


def factors(operation: Operation) -> tuple[Tensor, Tensor]:
    """The two matrices of a product, behind what is added to it; the same twice where it is read once."""
    matrices = [t for t in operation.reads if len(t.shape) >= 2]
    return (matrices[-2], matrices[-1]) if len(matrices) > 1 else (matrices[-1], matrices[-1])


def _padding(operation: Operation, size: int) -> Padding:
    left, right = factors(operation)
    if len(left.shape) > 2:
        return "batch"
    summed, out = right.shape
    if left.shape[0] == size and left.stride[0] == 1 != left.stride[1]:
        return "rows"  # a weight's gradient: what comes from behind, turned
    if out == size and right.stride[0] == 1 and summed != size:
        return "rows"
    if summed == size and right.stride[1] == 1 and out != size:
        return "sum"
    return "both" if summed == size and right.stride[0] == 1 else "columns"


def resized(operations: Sequence[Operation], sizes: Mapping[int, int]) -> tuple[Operation, ...]:
    """The operations with these sizes in the place of those, in the matrices of their products."""
    return tuple(_resized(o, sizes) if o.kind == op_kinds.GEMM else o for o in operations)


def copied_and_resized(operations: Sequence[Operation], sizes: Mapping[int, int]) -> tuple[Operation, ...]:
    """The same where whatever a product reads is copied into its padded size before each call."""
    made: list[Operation] = []
    for operation in operations:
        then = _resized(operation, sizes) if operation.kind == op_kinds.GEMM else operation
        made += _copies(operation, then)
        made.append(then)
    return tuple(made)


def _copies(operation: Operation, then: Operation) -> list[Operation]:
    """Of what the operation reads, into what it reads then."""
    return [
        replace(
            operation, name=f"{operation.name}_padded_{place}", target="aten.clone.default", kind=op_kinds.COPY,
            flops=0, reads=(now,), writes=(padded,), inputs=(),
        )
        for place, (now, padded) in enumerate(zip(operation.reads, then.reads, strict=True))
        if now.shape != padded.shape
    ]  # fmt: skip


def _resized(operation: Operation, sizes: Mapping[int, int]) -> Operation:
    left, right = factors(operation)
    more = math.prod(sizes.get(s, s) / s for s in (left.shape[-2], *right.shape[-2:]))
    return replace(
        operation, flops=int(operation.flops * more),
        reads=tuple(_with_rows(t, sizes) for t in operation.reads),
        writes=tuple(_with_rows(t, sizes) for t in operation.writes),
    )  # fmt: skip


def _with_rows(tensor: Tensor, sizes: Mapping[int, int]) -> Tensor:
    return _reshaped(tensor, (*tensor.shape[:-2], *(sizes.get(s, s) for s in tensor.shape[-2:])))


def _reshaped(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor in another shape, its dimensions in the same order in memory and without gaps."""
    if shape == tensor.shape:
        return tensor
    stride, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda i: (tensor.stride[i], tensor.shape[i])):
        if tensor.stride[axis]:
            stride[axis], step = step, step * shape[axis]
    return replace(
        tensor, shape=shape, stride=tuple(stride), bytes=tensor.bytes * math.prod(shape) // tensor.elements, extent=0
    )


def with_channels(operations: Sequence[Operation], now: int, padded: int) -> tuple[Operation, ...]:
    """Convolutions of images of so many channels on images and filters of more: each call copies its image."""
    made: list[Operation] = []
    for operation in operations:
        then = _with_channels(operation, now, padded) if operation.kind == op_kinds.CONVOLUTION else operation
        images = [] if "backward" in operation.target else _copies(operation, then)[:1]
        made += [*images, then]
    return tuple(made)


def _with_channels(operation: Operation, now: int, padded: int) -> Operation:
    """Dimension 1 of image and filters, and of their gradients, alone: other sizes may be as large."""
    first = 1 if "backward" in operation.target else 0
    image, filters = operation.reads[first : first + 2]
    if image.shape[1] != now or filters.shape[1] != now:
        return operation

    def widened(tensor: Tensor) -> Tensor:
        return _reshaped(tensor, (tensor.shape[0], padded, *tensor.shape[2:]))

    gradients = tuple(widened(t) if first and t.shape in (image.shape, filters.shape) else t for t in operation.writes)
    return replace(
        operation, flops=operation.flops * padded // now, writes=gradients,
        reads=(*operation.reads[:first], widened(image), widened(filters), *operation.reads[first + 2 :]),
    )  # fmt: skip


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
    """Attention that reads a mask as large as its scores, with as many rows as columns, the same for every head: it may
    be the causal one."""
    return _reads_squares(operation) and _heads(operation.reads[3]) == 1


def has_bias_of_heads(operation: Operation) -> bool:
    """Attention that reads a matrix as large as its scores for every head: a bias of positions, as T5's or ALiBi's."""
    return _reads_squares(operation) and _heads(operation.reads[3]) > 1


def _reads_squares(operation: Operation) -> bool:
    if operation.kind != op_kinds.ATTENTION or "backward" in operation.target or len(operation.reads) < 4:
        return False
    query, key, mask = operation.reads[0], operation.reads[1], operation.reads[3]
    rows, columns = query.shape[-2], key.shape[-2]
    return rows == columns and mask.shape[-2:] == (rows, columns)


def _heads(mask: Tensor) -> int:
    """Of how many heads it holds a matrix; 1 where all share one."""
    return mask.shape[-3] if len(mask.shape) > 2 and mask.stride[-3] else 1


def adds_shared_square(operation: Operation) -> bool:
    """Of attention by hand the sum of scores, for several heads, with a square as large as a head's that all share."""
    if not operation.target.startswith("aten.add.") or len(operation.reads) != 2:
        return False
    mask, scores = sorted(operation.reads, key=_heads)
    square = scores.shape[-2:]
    return _heads(mask) == 1 < _heads(scores) and len(set(square)) == 1 and mask.shape[-2:] == square


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
    """What the atlas says that they take together; None where it does not know one of them, or where it is another
    vendor's: that one's libraries are others, and say nothing about this one's."""
    if not rates.atlas or not operations or not _is_of_its_vendor(device, rates):
        return None
    known = prices_of(Launched(tuple(operations)), device, rates.scaled)
    if any(o.name not in known for o in operations):
        return None
    times = [(between(*known[o.name]), known[o.name][0].deviation) for o in operations]
    total = sum(t for t, _ in times)
    deviation = sum(t * d for t, d in times) / total
    factor = math.exp(EIGHTY_PERCENT * deviation)
    return Range(total / factor, total, total * factor)


def _is_of_its_vendor(device: Device, rates: Rates) -> bool:
    basis = basis_of(device, rates.scaled)
    measured = find_device(basis.atlas.device) if basis is not None else None
    return measured is not None and measured.is_amd == device.is_amd
