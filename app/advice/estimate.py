"""Estimate: predicted time of each candidate on a device, from bytes, FLOPs and launches. Pure functions; times in µs.

One kernel takes start + bytes / (copy rate x share), or FLOPs / (matmul rate x share) where that is longer; shares are
`rates.Rates`. Eager is the sum over operations, or the host's time to launch them where the GPU would wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.advice.facts import SPECIAL, KernelFacts, OperationFacts, RegionFacts, ShapeFacts
from app.advice.model import Range
from app.advice.rates import FITTED, MATRIX_KINDS, SIXTEEN_BIT, Fused, Rates, longest_prefix, spread
from profiler.hardware import Device
from profiler.region import kinds
from profiler.region.cost_model import Cost, KernelCost, OperationCost

SDPA = "torch.nn.functional.scaled_dot_product_attention"
LIGER_COLUMNS = 32768
SHORT_ROWS = 512
PERSISTENT_COLUMNS = 1024
"""Inductor keeps rows of up to so many elements in registers (torch._inductor.choices, persistent reductions)."""
UNROLLED = 64
"""Operations in one generated kernel from which on they are a loop written out, each waiting for the one before."""
UNPACKING = frozenset({"__rshift__", "__lshift__", "bitwise_right_shift", "bitwise_left_shift"})
ACCUMULATING = frozenset({"index_add", "scatter_add", "scatter_reduce"})
RESIDENT_ROWS = 264
"""Rows in flight on a GPU of 132 processors, two a processor: what has to stay in L2 to be read twice for one."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One candidate's time for one call, averaged over the workload's calls, and the bytes it writes on the way."""

    candidate: str
    time_us: Range
    launch_us: float  # of it, launches
    bytes_written: int


def eager(facts: RegionFacts, device: Device, rates: Rates = FITTED) -> Prediction | None:
    """Every operation on its own, as PyTorch launches it. None without sizes."""
    return _predict(
        "eager",
        facts,
        rates,
        time=lambda s: eager_us(s, device, rates),
        written=lambda c: c.unfused.bytes_written,
        launches=lambda s: s.cost.unfused.launches * rates.times.eager_kernel,
    )


def compiled(facts: RegionFacts, device: Device, mode: str = "default", rates: Rates = FITTED) -> Prediction | None:
    """torch.compile in mode default, max-autotune or reduce-overhead."""
    return _predict(
        "compile" if mode == "default" else f"compile-{mode}",
        facts,
        rates,
        time=lambda s: compiled_us(s, device, mode, rates, facts.requires_grad, facts.sdpa),
        written=lambda c: c.fused.bytes_written,
        launches=lambda s: s.cost.fused.launches * rates.times.fused_kernel,
    )


def library(
    facts: RegionFacts, device: Device, call: str, part: frozenset[str] | None = None, rates: Rates = FITTED
) -> Prediction | None:
    """One library call. call: the candidate's name behind `library:`; part: what it replaces, None for all of it."""
    return _predict(
        f"library:{call}",
        facts,
        rates,
        time=lambda s: library_us(s, device, call, rates, part, facts.requires_grad),
        written=lambda c: c.ideal.bytes_written,
        launches=lambda s: rates.times.fused_kernel,
    )


def triton(facts: RegionFacts, device: Device, whole: bool, rates: Rates = FITTED) -> Prediction | None:
    """Hand-written Triton. whole: one kernel for all; else the library's products stay and the rest is Triton."""
    return _predict(
        "triton:custom" if whole else "triton:generated",
        facts,
        rates,
        time=lambda s: triton_us(s, device, whole, rates, facts.requires_grad),
        written=lambda c: c.ideal.bytes_written if whole else c.fused.bytes_written,
        launches=lambda s: (1 if whole else s.cost.fused.launches) * rates.times.fused_kernel,
    )


def _predict(
    candidate: str,
    facts: RegionFacts,
    rates: Rates,
    *,
    time: Callable[[ShapeFacts], float],
    written: Callable[[Cost], int],
    launches: Callable[[ShapeFacts], float],
) -> Prediction | None:
    """Average over the bindings, weighted by their calls."""
    if not facts.shapes:
        return None
    calls = sum(s.calls for s in facts.shapes) or 1.0
    mid = sum(s.calls * time(s) for s in facts.shapes) / calls
    launch = sum(s.calls * launches(s) for s in facts.shapes) / calls
    most = max(written(s.cost) for s in facts.shapes)
    return Prediction(candidate, spread(mid, candidate, rates), launch, most)


def eager_us(shape: ShapeFacts, device: Device, rates: Rates = FITTED) -> float:
    """µs of device time for one call, run operation by operation."""
    cost = shape.cost
    by_name = {o.name: o for o in shape.operations}
    gpu = sum(operation_us(o, by_name.get(o.name), device, rates) for o in cost.operations if o.launches)
    launches = sum(o.launches for o in cost.operations)
    views = sum(1 for o in cost.operations if o.kind == kinds.VIEW)
    host = launches * rates.times.host_launch + views * rates.times.host_view - rates.times.host_ahead
    return rates.times.event + max(gpu, host)


def matrix_share(facts: RegionFacts, device: Device, rates: Rates = FITTED) -> float:
    """Share of eager's time that is matrix products, attention and convolutions, at the heaviest binding."""
    shape = facts.heaviest
    if shape is None:
        return 0.0
    by_name = {o.name: o for o in shape.operations}
    times = [(o.kind, operation_us(o, by_name.get(o.name), device, rates)) for o in shape.cost.operations if o.launches]
    total = sum(t for _, t in times)
    return sum(t for kind, t in times if kind in MATRIX_KINDS) / total if total else 0.0


def operation_us(item: OperationCost, facts: OperationFacts | None, device: Device, rates: Rates = FITTED) -> float:
    """µs of one eager operation behind another."""
    start = rates.times.eager_kernel
    if item.kind in MATRIX_KINDS:
        return start + matrix_us(item, facts, device, rates)
    reached = _eager_share(item, facts, rates)
    if facts is not None and item.kind in (kinds.SOFTMAX, kinds.NORMALISATION) and not facts.strided:
        reached = min(reached, facts.rows / device.processors)  # one block a row
    return start + 1e6 * item.bytes_moved / (device.copy_rate * reached)


def aligned(facts: OperationFacts) -> bool:
    """The rows of a matrix product's operands and result are multiples of 16 bytes."""
    return all(size * facts.itemsize % 16 == 0 for size in (facts.n, facts.k) if size > 1)


def matrix_us(
    item: OperationCost | KernelCost, facts: OperationFacts | None, device: Device, rates: Rates, padded: bool = False
) -> float:
    """µs of one matrix product, attention or convolution by its library. padded: to 16 bytes, as Inductor does."""
    shares = rates.matrix
    dtype = facts.dtype if facts else "bf16"
    peak = device.matmul_rate(dtype)
    by_bytes, by_flops = shares.gemm_bytes, shares.gemm
    if item.kind == kinds.GEMM and facts is not None:
        by_flops = shares.gemm_f32 if dtype in ("f32", "f64") else shares.gemm
        by_flops *= _waves(facts, device, rates) * (1.0 if aligned(facts) or padded else shares.gemm_unaligned)
        if min(facts.m, facts.n) == 1 and facts.batch > 1:
            by_bytes = shares.gemv_bytes
    elif item.kind == kinds.ATTENTION:
        by_flops = shares.attention
    elif item.kind == kinds.CONVOLUTION:
        by_bytes, by_flops = rates.eager.convolution, shares.convolution
    return 1e6 * max(item.bytes_moved / (device.copy_rate * by_bytes), item.flops / (peak * by_flops))


def _waves(facts: OperationFacts, device: Device, rates: Rates) -> float:
    """What is left of the rate when the last wave of output tiles (128 x 256, as cuBLAS's large ones) is not full."""
    tiles = facts.batch * math.ceil(facts.m / rates.matrix.wave_rows) * math.ceil(facts.n / rates.matrix.wave_columns)
    waves = tiles / device.processors
    return max(0.25, math.sqrt(min(1.0, waves / math.ceil(waves))))


def _eager_share(item: OperationCost, facts: OperationFacts | None, rates: Rates) -> float:
    shares = rates.eager
    if facts is None:
        return shares.pointwise
    special = {"topk": shares.topk, "logsumexp": shares.logsumexp, "index_add": shares.accumulate,
               "scatter_add": shares.accumulate, "native_group_norm_backward": shares.norm_backward,
               "native_layer_norm_backward": shares.norm_backward}.get(facts.target)  # fmt: skip
    if special is not None:
        return special
    strided = {kinds.REDUCTION: shares.strided_reduction, kinds.SOFTMAX: shares.strided_softmax}
    by_kind = {
        kinds.REDUCTION: shares.reduction, kinds.SOFTMAX: shares.softmax, kinds.NORMALISATION: shares.norm,
        kinds.SCAN: shares.scan, kinds.SORT: shares.sort, kinds.GATHER: shares.gather, kinds.SCATTER: shares.scatter,
        kinds.RANDOM: shares.random, kinds.FFT: shares.fft, kinds.CONSTANT: shares.constant, kinds.OTHER: shares.other,
        kinds.COPY: shares.strided_copy if facts.broadcast else shares.copy,
    }  # fmt: skip
    if item.kind == kinds.NORMALISATION and facts.columns <= SHORT_ROWS:
        return min(shares.short_norm, by_kind[item.kind])
    if facts.strided and item.kind in strided:
        return strided[item.kind]
    if item.kind in by_kind:
        return by_kind[item.kind]
    if facts.narrow:
        return shares.small_item
    if facts.broadcast:
        return shares.broadcast_16 if facts.dtype in SIXTEEN_BIT else shares.broadcast
    if facts.target in SPECIAL and facts.dtype in SIXTEEN_BIT:
        return shares.special_16
    return shares.pointwise


def compiled_us(
    shape: ShapeFacts, device: Device, mode: str = "default", rates: Rates = FITTED, grad: bool = False,
    sdpa: frozenset[str] = frozenset(),
) -> float:  # fmt: skip
    """µs of device time for one call under torch.compile. sdpa: operations that it makes one attention call of."""
    fused = rates.default if mode == "default" else rates.autotuned
    start = rates.times.graph_kernel if mode == "reduce-overhead" else rates.times.fused_kernel
    cost = shape.cost
    if mode == "max-autotune" and _gemv(shape):
        return rates.times.event + start + _bytes_us(cost.ideal.bytes_moved, fused.reduction, device)
    kernels = [k for k in cost.kernels if not sdpa.issuperset(k.operations)]
    total = rates.times.event + sum(start + kernel_us(k, shape, device, fused, rates) for k in kernels)
    if len(kernels) < len(cost.kernels):
        total += call_us(shape, device, SDPA, rates, sdpa)
    elif mode == "max-autotune":
        total = min(total, _epilogues_us(shape, device, fused, rates))
    return _with_backward(total, cost, device, rates) if grad else total


def _with_backward(total: float, cost: Cost, device: Device, rates: Rates) -> float:
    """Forward and backward are two graphs: what backward needs is read again, and autograd takes the host's time."""
    again = _bytes_us(1.5 * cost.ideal.bytes_read, rates.default.pointwise, device) + rates.times.fused_kernel
    return max(total + again, 2 * rates.times.autograd)


def _epilogues_us(shape: ShapeFacts, device: Device, fused: Fused, rates: Rates) -> float:
    """max-autotune with every tail that can be an epilogue inside its matrix product's own Triton kernel."""
    kept = {s.bytes_after for s in shape.cost.savings if s.name == "tail-epilogue"}
    alone = {s.bytes_after for s in shape.cost.savings if s.name == "tail-fused"}
    total, gemm = rates.times.event, None
    for kernel in shape.cost.kernels:
        intermediate = gemm.bytes_written if gemm is not None else 0
        tail = kernel.kind == "fused" and kernel.bytes_moved in alone and kernel.bytes_moved - intermediate in kept
        if gemm is not None and tail:
            facts = shape.operation(gemm.operations[0])
            moved = gemm.bytes_moved + kernel.bytes_moved - 2 * intermediate
            peak = device.matmul_rate(facts.dtype if facts else "bf16") * rates.matrix.triton_gemm
            total -= matrix_us(gemm, facts, device, rates)
            total += max(_bytes_us(moved, fused.special, device), 1e6 * gemm.flops / peak)
            gemm = None
            continue
        gemm = kernel if kernel.kind == kinds.GEMM else gemm
        total += rates.times.fused_kernel + kernel_us(kernel, shape, device, fused, rates)
    return total


def _gemv(shape: ShapeFacts) -> bool:
    """Its matrix products are with vectors: max-autotune turns them into one generated kernel with what feeds them."""
    gemms = [o for o in shape.operations if o.kind == kinds.GEMM]
    return bool(gemms) and all(min(g.m, g.n) == 1 for g in gemms)


def kernel_us(kernel: KernelCost, shape: ShapeFacts, device: Device, fused: Fused, rates: Rates) -> float:
    """µs of one kernel of the fused region, its start not counted."""
    if kernel.kind != "fused":
        facts = shape.operation(kernel.operations[0]) if kernel.operations else None
        if kernel.kind in MATRIX_KINDS:
            return matrix_us(kernel, facts, device, rates, padded=True)
        item = next((o for o in shape.cost.operations if o.name in kernel.operations), None)
        reached = _eager_share(item, facts, rates) if item is not None else rates.eager.other
        return _bytes_us(kernel.bytes_moved, reached, device)
    names = set(kernel.operations)
    inside = [o for o in shape.operations if o.name in names]
    here = (kernel.operations, kernel.stage)
    space = next((k for k in shape.kernels if (k.operations, k.stage) == here), None)
    again = space is not None and space.columns > PERSISTENT_COLUMNS and _beyond_l2(inside, space, device)
    small = kernel.bytes_written < 0.1 * kernel.bytes_read
    reached = fused_share(inside, space, fused, again and not small, small)
    moved = kernel.bytes_moved + (kernel.bytes_read if again and not small else 0)
    waiting = rates.times.unrolled * len(inside) if len(inside) > UNROLLED else 0.0
    return max(waiting, _bytes_us(moved, reached, device))


def fused_share(
    inside: Sequence[OperationFacts], space: KernelFacts | None, fused: Fused, again: bool = False, small: bool = False
) -> float:
    """Share of the copy rate that a generated kernel reaches, by what is in it.

    again: its rows are read twice from memory. small: it only reduces, so that nothing is read twice.
    """
    reached = fused.pointwise
    targets = {o.target for o in inside}
    if space is not None and space.columns > 1:
        reached = fused.reduction
        if any(o.kind == kinds.NORMALISATION for o in inside) and space.columns <= 8192:
            reached = fused.short_rows
        if any(o.kind == kinds.SOFTMAX or o.target == "logsumexp" for o in inside):
            long = fused.long_softmax if again else fused.softmax
            reached = long if space.columns > PERSISTENT_COLUMNS else fused.short_softmax
        if space.strided and not small:
            reached = min(reached, fused.strided)
    applied = space is not None and space.stage == "apply"
    limits = (
        (applied and any(o.kind == kinds.SOFTMAX for o in inside), fused.softmax),
        (targets & SPECIAL, fused.special),
        (any(o.kind == kinds.RANDOM for o in inside), fused.random),
        (targets & UNPACKING, fused.unpack),
        (any(o.written.startswith("f8") for o in inside), fused.f8),
        (targets & ACCUMULATING, fused.scatter),
        (any(o.kind == kinds.CONVOLUTION for o in inside), fused.convolution),
    )
    return min([reached, *(limit for holds, limit in limits if holds)])


def _beyond_l2(inside: Sequence[OperationFacts], space: KernelFacts, device: Device) -> bool:
    itemsize = min((o.itemsize for o in inside if o.columns > 1), default=2)
    return space.columns * itemsize * RESIDENT_ROWS > 0.5 * device.l2_bytes


def _bytes_us(moved: float, reached: float, device: Device) -> float:
    return 1e6 * moved / (device.copy_rate * reached)


def library_us(
    shape: ShapeFacts, device: Device, call: str, rates: Rates = FITTED, part: frozenset[str] | None = None,
    grad: bool = False,
) -> float:  # fmt: skip
    """µs of one library call from its fewest bytes and its FLOPs; with `part`, the rest of the region stays eager."""
    cost = shape.cost
    if part is not None:
        return _part_us(shape, device, call, rates, part)
    reached = longest_prefix(rates.library_bytes, call, 0.85)
    if call.startswith("liger") and max((k.columns for k in shape.kernels), default=1) > LIGER_COLUMNS:
        reached *= 0.35  # its kernels hold one row in one block and spill: 840 µs for 265 at rows of 65,536
    moved = _bytes_us(cost.ideal.bytes_moved, reached, device)
    computed = 0.0
    if cost.gemm_flops:
        share = longest_prefix(rates.library_flops, call, 0.70)
        if cost.matmul_dtype in ("f32", "f64"):
            share = min(share, rates.matrix.gemm_f32)
        computed = 1e6 * cost.gemm_flops / (device.matmul_rate(cost.matmul_dtype or "bf16") * share)
    total = rates.times.event + rates.times.fused_kernel + max(moved, computed)
    return max(total, rates.times.autograd) if grad else total


def _part_us(shape: ShapeFacts, device: Device, call: str, rates: Rates, part: frozenset[str]) -> float:
    """A call for some of the operations: it reads what the first of them read and writes what the last writes."""
    by_name = {o.name: o for o in shape.operations}
    rest = [o for o in shape.cost.operations if o.name not in part and o.launches]
    left = rates.times.event + sum(operation_us(o, by_name.get(o.name), device, rates) for o in rest)
    return left + call_us(shape, device, call, rates, part)


def call_us(shape: ShapeFacts, device: Device, call: str, rates: Rates, part: frozenset[str]) -> float:
    """µs of one library call for some of the operations; 0 where none of them launches anything."""
    inside = [o for o in shape.cost.operations if o.name in part and o.launches]
    if not inside:
        return 0.0
    moved = inside[0].bytes_read + inside[-1].bytes_written
    reached = longest_prefix(rates.library_bytes, call, 0.85)
    flops = sum(o.flops for o in inside if o.kind in MATRIX_KINDS)
    dtype = shape.cost.matmul_dtype or "bf16"
    computed = 1e6 * flops / (device.matmul_rate(dtype) * longest_prefix(rates.library_flops, call, 0.70))
    return rates.times.fused_kernel + max(_bytes_us(moved, reached, device), computed)


def triton_us(shape: ShapeFacts, device: Device, whole: bool, rates: Rates = FITTED, grad: bool = False) -> float:
    """µs of hand-written Triton: one kernel for all, or the library's products with a kernel for each fused group."""
    cost = shape.cost
    start = rates.times.fused_kernel
    if not whole:
        parts = (start + kernel_us(k, shape, device, rates.hand, rates) for k in cost.kernels)
        total = rates.times.event + sum(parts)
        return _with_backward(total, cost, device, rates) if grad else total
    reached = fused_share(shape.operations, _whole_space(shape), rates.hand)
    moved = _bytes_us(cost.ideal.bytes_moved, reached, device)
    computed = 0.0
    if cost.gemm_flops:
        share = rates.matrix.triton_gemm
        if cost.matmul_dtype in ("f32", "f64"):
            share *= rates.matrix.gemm_f32
        computed = 1e6 * cost.gemm_flops / (device.matmul_rate(cost.matmul_dtype or "bf16") * share)
    total = rates.times.event + start + max(moved, computed)
    return _with_backward(total, cost, device, rates) if grad else total


def _whole_space(shape: ShapeFacts) -> KernelFacts | None:
    return max((k for k in shape.kernels if k.columns > 1), key=lambda k: k.rows * k.columns, default=None)
