"""Fused time: µs of generated kernels, by torch.compile or from this project's generator. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.estimate.eager_time import aligned, atlas_prices, eager_share, matrix_us, operation_times
from app.estimate.facts import ACCUMULATING, SPECIAL, KernelFacts, OperationFacts, ShapeFacts
from app.estimate.rates import SIXTEEN_BIT, Fused, Rates
from profiler.hardware import Device
from profiler.region import op_kinds
from profiler.region.graph.cost_model import KernelCost

PERSISTENT_COLUMNS = 1024
"""Inductor keeps rows of up to so many elements in registers (torch._inductor.choices, persistent reductions)."""
PERSISTENT_OUTER = 64
"""The same for a reduction over another axis than the last (its `should_use_persistent_reduction`)."""
LOOPED_COLUMNS = 8192
"""Rows of up to so many elements stay in the caches between a loop that reduces them and one that applies it."""
NARROW_BYTES = 2.5
"""What an element of a row reads at most where a loop's loads are narrow: one 16-bit tensor, and what is read once a
row or column. Inductor's only configuration of such a loop without tuning is 2,048 elements by 16 warps, four a thread
(torch._inductor.runtime.triton_heuristics): 8 bytes a load, half of what an f32 row or two 16-bit ones keep in flight.
"""
UNROLLED = 64
"""Operations in one generated kernel from which on they are a loop written out, each waiting for the one before."""
UNPACKING = frozenset({"__rshift__", "__lshift__", "bitwise_right_shift", "bitwise_left_shift"})
PADDING_BALANCE = 0.5
"""Of the datasheet's FLOPs to a byte: Inductor halves them, since much of a product is read from the caches
(torch._inductor.fx_passes.pad_mm)."""
SMALL = 0.1
"""Of the bytes that a kernel reads: one that writes less only reduces."""
MOST_AXES = 2
"""Of Inductor's tiles for additions to memory: by three it takes three times as long until it is tuned (H200)."""
RESIDENT_ROWS = 264
"""Rows in flight on a GPU of 132 processors, two a processor: what has to stay in L2 to be read twice for one."""


def bytes_us(moved: float, reached: float, device: Device) -> float:
    """µs of so many bytes at a share of the device's copy rate."""
    return 1e6 * moved / (device.copy_rate * reached)


def kernels_us(
    shape: ShapeFacts, kernels: Sequence[KernelCost], device: Device, fused: Fused, rates: Rates, start: float,
    called_us: Mapping[str, float] | None = None,
) -> float:  # fmt: skip
    """µs of these kernels one behind the other. start: of each. What is forward and backward in one is split in two.

    called_us: `calls_by_atlas`, where it is at hand.
    """
    spaces = {(k.operations, k.stage): k for k in shape.kernels}
    known = calls_by_atlas(shape, device, rates) if called_us is None else called_us
    total = 0.0
    for kernel in kernels:
        called = kernel.operations[0] if kernel.operations else ""
        if kernel.kind != "fused" and called in known:
            total += known[called]  # the same call as eager's
            continue
        space = spaces.get((kernel.operations, kernel.stage))
        total += start + kernel_us(kernel, shape, device, fused, rates)
        if kernel.kind == "fused" and any(o.target.endswith("norm_backward") for o in _inside(kernel, shape)):
            total += 2 * start  # the weights' gradients, sums over another axis: in parts, and of those
        if space is not None and space.again:
            total += start + bytes_us(space.again, fused.pointwise, device)
        if space is not None and _summed_apart(kernel, space, fused):
            summed = space.rows * space.columns * _itemsize(_inside(kernel, shape), op_kinds.REDUCTION)
            total += start + bytes_us(summed, fused.reduction, device)
    return total


def calls_by_atlas(shape: ShapeFacts, device: Device, rates: Rates) -> dict[str, float]:
    """Operation -> µs of those that the atlas knows and that torch.compile calls as eager does."""
    known = atlas_prices(shape, device, rates)
    times = operation_times(shape, device, rates) if known else {}
    return {name: times[name] for name in known if name in times and not padded(shape.operation(name), device)}


def padded(facts: OperationFacts | None, device: Device) -> bool:
    """A matrix product whose operands Inductor makes longer, so that rows begin at multiples of 16 bytes.

    It tries that only of products with more multiplications to an element than half of the device's FLOPs to a byte
    (torch._inductor.fx_passes.pad_mm, is_mm_compute_bound).
    """
    if facts is None or facts.kind != op_kinds.GEMM or aligned(facts):
        return False
    m, n, k = facts.m, facts.n, facts.k
    elements = m * k + k * n + m * n
    return m * n * k * device.memory_rate > PADDING_BALANCE * elements * device.datasheet_matmul_rate(facts.dtype)


def _summed_apart(kernel: KernelCost, space: KernelFacts, fused: Fused) -> bool:
    """Columns summed in parts whose numbers are stored as well: Inductor's sum is a kernel that reads them again.

    A bias's gradient behind GELU's: 151 µs and then 36, for 462 and 154 MB (H200).
    """
    return fused.sums_apart and not _only_reduces(kernel) and space.strided and space.stage == "partial"


def _only_reduces(kernel: KernelCost) -> bool:
    return kernel.bytes_written < SMALL * kernel.bytes_read


def kernel_us(kernel: KernelCost, shape: ShapeFacts, device: Device, fused: Fused, rates: Rates) -> float:
    """µs of one kernel of the fused region, its start not counted."""
    if kernel.kind != "fused":
        facts = shape.operation(kernel.operations[0]) if kernel.operations else None
        if kernel.kind in op_kinds.MATRIX_KINDS:
            longer = padded(facts, device)
            return matrix_us(kernel, facts, device, rates, padded=longer, convolution=fused.convolution)
        item = next((o for o in shape.cost.operations if o.name in kernel.operations), None)
        reached = eager_share(item, facts, rates) if item is not None else rates.eager.other
        return bytes_us(kernel.bytes_moved, reached, device)
    inside = _inside(kernel, shape)
    # Inductor has no 16-bit additions to memory: the operation stays eager's.
    if any(o.target in ACCUMULATING and o.dtype in SIXTEEN_BIT for o in inside):
        return bytes_us(kernel.bytes_moved, rates.eager.accumulate_16, device)
    here = (kernel.operations, kernel.stage)
    space = next((k for k in shape.kernels if (k.operations, k.stage) == here), None)
    again = space is not None and space.columns > PERSISTENT_COLUMNS and _beyond_l2(inside, space, device)
    small = _only_reduces(kernel)
    apart = space is not None and _summed_apart(kernel, space, fused)
    narrow = space is not None and kernel.bytes_read <= NARROW_BYTES * space.rows * space.columns
    reached = fused_share(inside, None if apart else space, fused, again and not small, small, narrow)
    moved = kernel.bytes_moved + (kernel.bytes_read if again and not small else 0)
    waiting = rates.times.unrolled * len(inside) if len(inside) > UNROLLED else 0.0
    # A loop over a row that reduces it, and one that applies the result, draw the same numbers again.
    twice = 2 if fused.redraws and space is not None and space.columns > PERSISTENT_COLUMNS and not small else 1
    busy = arithmetic_us(inside, device, fused, space.axes if space is not None else 1, twice)
    return max(waiting, busy, bytes_us(moved, reached, device))


def _inside(kernel: KernelCost, shape: ShapeFacts) -> list[OperationFacts]:
    names = set(kernel.operations)
    return [o for o in shape.operations if o.name in names]


def arithmetic_us(
    inside: Sequence[OperationFacts], device: Device, fused: Fused, axes: int = 1, draws: int = 1
) -> float:
    """µs of what goes by elements and not by bytes: numbers drawn at random, additions to memory, erf and the like.

    axes: of the tiles by which the kernel adds. draws: how often it draws each number.
    """
    drawn = draws * sum(o.elements for o in inside if o.kind == op_kinds.RANDOM)
    added = sum(o.elements for o in inside if o.target in ACCUMULATING)
    special = sum(o.elements for o in inside if o.target in SPECIAL)
    atomics = fused.atomics_tiled if axes > MOST_AXES else fused.atomics
    return 1e-3 * (drawn / fused.random + added / atomics + special / fused.special) / device.processors


def executed_us(shape: ShapeFacts, device: Device) -> float:
    """µs that the vector units take at least, in however few kernels: an element of each operation's largest tensor is
    a multiply-add, at half of their rate, as in `app.atlas.item.Item.floor_us`."""
    elements = sum(o.elements for o in shape.operations if o.kind not in op_kinds.MATRIX_KINDS | {op_kinds.VIEW})
    return 2e6 * elements / device.f32_rate


def fused_share(
    inside: Sequence[OperationFacts],
    space: KernelFacts | None,
    fused: Fused,
    again: bool = False,
    small: bool = False,
    narrow: bool = False,
) -> float:
    """Share of the copy rate that a generated kernel reaches, by what is in it.

    again: its rows are read twice from memory. small: it only reduces, so that nothing is read twice. narrow: see
    NARROW_BYTES.
    """
    reached = fused.pointwise
    targets = {o.target for o in inside}
    if space is not None and space.columns > 1:
        reached = fused.reduction
        if not small and PERSISTENT_COLUMNS < space.columns <= LOOPED_COLUMNS:
            reached = fused.looped_narrow if narrow else fused.looped
        if any(o.kind == op_kinds.SOFTMAX or o.target == "logsumexp" for o in inside):
            long = fused.long_softmax if again else fused.softmax
            reached = long if space.columns > PERSISTENT_COLUMNS else fused.short_softmax
        if space.strided and not small:
            held = space.columns <= PERSISTENT_OUTER
            reached = min(reached, fused.short_strided if held else fused.strided)
    applied = space is not None and space.stage == "apply"
    limits = (
        (applied and any(o.kind == op_kinds.SOFTMAX for o in inside), fused.softmax),
        (targets & UNPACKING, fused.unpack),
        (any(o.written.startswith("f8") for o in inside), fused.f8),
        (any(o.kind == op_kinds.CONVOLUTION for o in inside), fused.convolution),
        (any(o.kind == op_kinds.SCAN for o in inside), fused.scan * min(1.0, _itemsize(inside, op_kinds.SCAN) / 4)),
    )
    return min([reached, *(limit for holds, limit in limits if holds)])


def _beyond_l2(inside: Sequence[OperationFacts], space: KernelFacts, device: Device) -> bool:
    return space.columns * _itemsize(inside) * RESIDENT_ROWS > 0.5 * device.l2_bytes


def _itemsize(inside: Sequence[OperationFacts], kind: str = "") -> int:
    """Bytes of an element in the narrowest operation on rows, of a kind where one is asked for."""
    return min((o.itemsize for o in inside if o.columns > 1 and kind in ("", o.kind)), default=2)
