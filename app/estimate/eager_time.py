"""Eager time: µs of operations as PyTorch launches them one by one, and of library matrix products. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from app.atlas.atlas import Price
from app.atlas.price import CALL_US, Part, Total, between
from app.atlas.shipped import prices_of
from app.estimate.facts import SPECIAL, OperationFacts, ShapeFacts
from app.estimate.rates import FITTED, SIXTEEN_BIT, Rates, interpolate
from profiler.hardware import Device
from profiler.region import op_kinds
from profiler.region.graph.cost_model import KernelCost, OperationCost

SHORT_ROWS = 512
EIGHT_BYTES = frozenset({"f64", "i64", "torch.complex64"})
"""Types that need no vectorised loads to fill a transaction."""
WARP_COLUMNS = 1024
"""Rows of up to so many elements are one warp's in PyTorch's softmax (aten/native/cuda/PersistentSoftmax.cuh)."""
SHORT_TOPK = 1024
SPLIT_K = 1024
"""Least inner size of a part. A weight's gradient over many rows ran in 132 parts on an H200, one a processor."""
ONE_BLOCK_A_ROW = frozenset({op_kinds.SOFTMAX, op_kinds.NORMALISATION, op_kinds.SCAN})
"""Kinds whose eager kernels give a row to one processor."""
HELD_COLUMN = 128
"""Elements to a result up to which a strided softmax finds them in the cache when it reads them again."""
SUMMED_IN_64_BITS = frozenset({"sum", "prod", "cumsum", "cumprod"})
"""Of integers and booleans ATen sums copies in i64: of 335 µs on an H200 converting booleans took 205."""
SMALL_INTEGERS = frozenset({"bool", "u8", "i8", "i16", "i32"})
RATES_DEVIATION = 2.0
"""Standard deviation of the logarithm of what the rates alone say of an operation, as its weight next to the atlas's.

Of six values from 0.5 to 100 the one by which most of the corpus's fit third came within 20 % of eager's time (H200):
with today's atlas 61 % of 44, by the rates alone 41 %. They count where the atlas has no points near.
"""
MOSTLY_KNOWN = 0.5
"""Share of a time that the atlas has to say for the atlas's own interval to be told."""
TORCH_CALLS = {
    "_softmax": "torch.nn.functional.softmax",
    "_log_softmax": "torch.nn.functional.softmax",
    "native_layer_norm": "torch.nn.functional.layer_norm",
    "_fused_rms_norm": "torch.nn.functional.rms_norm",
    "topk": "torch.topk",
}
"""An aten operation -> torch's call for it, whose rates by length of a row the tables have."""


def eager_us(shape: ShapeFacts, device: Device, rates: Rates = FITTED) -> float:
    """µs of device time for one call, run operation by operation."""
    return call_us(rates) + sum(operation_times(shape, device, rates).values())


def call_us(rates: Rates) -> float:
    """What a timed call takes besides its kernels. Nothing where kernels were observed one by one."""
    return CALL_US if rates.atlas and rates.times.event else rates.times.event


def operation_times(shape: ShapeFacts, device: Device, rates: Rates) -> dict[str, float]:
    """Operation -> µs as eager launches it behind another: by the device's atlas, by the rates where that has none."""
    by_name = {o.name: o for o in shape.operations}
    known = atlas_prices(shape, device, rates)
    times = {o.name: operation_us(o, by_name.get(o.name), device, rates) for o in shape.cost.operations if o.launches}
    return {name: weighed(time_us, *known[name]) if name in known else time_us for name, time_us in times.items()}


def attention_factor(shape: ShapeFacts, device: Device, rates: Rates) -> float:
    """What the atlas says of a forward attention call over what the rates say; 1 without one.

    Other calls for it do the same work on the same units: what the rates say of them is off by as much, and compared
    with eager's call only their ratio to it counts.
    """
    by_name = {o.name: o for o in shape.operations}
    calls, _ = attention_calls(shape)
    if not calls:
        return 1.0
    times = operation_times(shape, device, rates)
    said = sum(times[o.name] for o in calls)
    return said / sum(operation_us(o, by_name.get(o.name), device, rates) for o in calls)


def attention_calls(shape: ShapeFacts) -> tuple[list[OperationCost], list[OperationCost]]:
    """(forward, backward) calls of attention."""
    calls = [o for o in shape.cost.operations if o.kind == op_kinds.ATTENTION and o.launches]
    behind = [o for o in calls if "backward" in o.name]
    return [o for o in calls if o not in behind], behind


def weighed(time_us: float, price: Price, held: float) -> float:
    """Of a prediction by the rates and one by the atlas: their geometric mean, weighted by how sure each is."""
    sure = sureness(price.deviation)
    return math.exp(sure * math.log(between(price, held)) + (1 - sure) * math.log(time_us))


def sureness(deviation: float) -> float:
    """Weight of a prediction with that standard deviation next to one by the rates alone, 0 to 1."""
    return RATES_DEVIATION**2 / (RATES_DEVIATION**2 + deviation**2)


def atlas_prices(shape: ShapeFacts, device: Device, rates: Rates) -> Mapping[str, tuple[Price, float]]:
    """Operation -> (price, share of its inputs in L2), of those that the device's atlas knows."""
    return prices_of(shape.launched, device, rates.scaled) if rates.atlas and shape.launched is not None else {}


def eager_deviation(shape: ShapeFacts, device: Device, rates: Rates) -> float | None:
    """Standard deviation of the logarithm of eager's time; None where the atlas says less than half of it."""
    known = atlas_prices(shape, device, rates)
    parts = [
        Part(name, time_us, known[name][0].deviation if name in known else None)
        for name, time_us in operation_times(shape, device, rates).items()
    ]
    total = Total(tuple(parts))
    return total.deviation if total.known > MOSTLY_KNOWN else None


def operation_us(item: OperationCost, facts: OperationFacts | None, device: Device, rates: Rates) -> float:
    """µs of one eager operation behind another."""
    start = rates.times.eager_kernel
    if item.kind in op_kinds.MATRIX_KINDS:
        return start + matrix_us(item, facts, device, rates)
    reached = eager_share(item, facts, rates)
    walked = 0.0
    if facts is not None and facts.strided and item.kind == op_kinds.SOFTMAX:
        walked = rates.times.walked * facts.columns
    elif facts is not None and item.kind in ONE_BLOCK_A_ROW:
        walked = alone_us(facts, device, rates)
    converted = 0.0
    if facts is not None and facts.target in SUMMED_IN_64_BITS and facts.dtype in SMALL_INTEGERS:
        wide = 8 * facts.elements
        converted = start + 1e6 * (wide / rates.eager.widening + wide / reached) / device.copy_rate
    return start + converted + max(walked, 1e6 * item.bytes_moved / (device.copy_rate * reached))


def alone_us(facts: OperationFacts, device: Device, rates: Rates) -> float:
    """µs of a row that one processor goes along by itself, where there are too few rows for all processors."""
    few = facts.rows < device.processors and not facts.strided
    return rates.times.stepped * facts.columns if few else 0.0


def aligned(facts: OperationFacts) -> bool:
    """The rows of a matrix product's operands and result are multiples of 16 bytes."""
    return all(size * facts.itemsize % 16 == 0 for size in (facts.n, facts.k) if size > 1)


def matrix_us(
    item: OperationCost | KernelCost, facts: OperationFacts | None, device: Device, rates: Rates, padded: bool = False,
    convolution: float | None = None,
) -> float:  # fmt: skip
    """µs of one matrix product, attention or convolution by its library. padded: to 16 bytes, as Inductor does.

    convolution: share of the copy rate where another than eager's is meant.
    """
    shares = rates.matrix
    dtype = facts.dtype if facts else "bf16"
    peak = device.matmul_rate(dtype)
    by_bytes, by_flops = shares.gemm_bytes, shares.gemm
    if item.kind == op_kinds.GEMM and facts is not None:
        by_flops = shares.gemm_f32 if dtype in ("f32", "f64") else shares.gemm
        by_flops *= _waves(facts, device, rates) * (1.0 if aligned(facts) or padded else shares.gemm_unaligned)
        if min(facts.m, facts.n) == 1 and facts.batch > 1:
            by_bytes = shares.gemv_bytes
    elif item.kind == op_kinds.ATTENTION:
        by_flops = shares.attention
    elif item.kind == op_kinds.CONVOLUTION:
        # Inductor lays images out anew for cuDNN; along one axis there is nothing to lay out.
        laid_out = convolution if facts is None or facts.spatial != 1 else None
        by_bytes, by_flops = laid_out or rates.eager.convolution, shares.convolution
        if facts is not None and facts.dtype in SIXTEEN_BIT:
            by_bytes /= 2  # one element a thread, whatever its size
    return 1e6 * max(item.bytes_moved / (device.copy_rate * by_bytes), item.flops / (peak * by_flops))


def _waves(facts: OperationFacts, device: Device, rates: Rates) -> float:
    """What is left of the rate when the last wave of output tiles (128 x 256, as cuBLAS's large ones) is not full.

    A long inner size is split between processors that have no tile: cuBLAS's split-K.
    """
    tiles = facts.batch * math.ceil(facts.m / rates.matrix.wave_rows) * math.ceil(facts.n / rates.matrix.wave_columns)
    if not tiles:
        return 1.0  # a result of no elements
    splits = max(1, min(facts.k // SPLIT_K, device.processors // tiles))
    waves = tiles * splits / device.processors
    return max(0.25, math.sqrt(min(1.0, waves / math.ceil(waves))))


def eager_share(item: OperationCost, facts: OperationFacts | None, rates: Rates) -> float:
    """Share of the copy rate that PyTorch's kernel for an operation reaches."""
    shares = rates.eager
    if facts is None:
        return shares.pointwise
    added = shares.accumulate_16 if facts.dtype in SIXTEEN_BIT else shares.accumulate
    special = {"logsumexp": shares.logsumexp, "index_add": added, "scatter_add": added,
               "native_group_norm_backward": shares.norm_backward,
               "native_layer_norm_backward": shares.norm_backward}.get(facts.target)  # fmt: skip
    if special is not None:
        return special
    if facts.target == "topk" and facts.columns <= SHORT_TOPK:
        return shares.topk
    again = 2.0 if facts.columns <= HELD_COLUMN else 1.0
    # Each thread reads one element at a time: of a 16-bit type half the bytes.
    narrow = facts.itemsize / 4
    strided = {
        op_kinds.REDUCTION: shares.strided_reduction * min(1.0, narrow),
        op_kinds.SOFTMAX: min(1.0, shares.strided_softmax * again * narrow),
    }
    by_kind = {
        op_kinds.REDUCTION: shares.reduction, op_kinds.SOFTMAX: shares.softmax, op_kinds.NORMALISATION: shares.norm,
        op_kinds.SCAN: shares.scan * narrow, op_kinds.SORT: shares.sort, op_kinds.GATHER: shares.gather,
        op_kinds.SCATTER: shares.scatter,
        op_kinds.RANDOM: shares.random, op_kinds.FFT: shares.fft, op_kinds.CONSTANT: shares.constant, op_kinds.OTHER:
        shares.other,
        op_kinds.COPY: shares.joined if facts.pieces else shares.strided_copy if facts.broadcast else shares.copy,
    }  # fmt: skip
    if item.kind == op_kinds.NORMALISATION and facts.columns <= SHORT_ROWS:
        return min(shares.short_norm, by_kind[item.kind])
    if facts.strided and item.kind in strided:
        return strided[item.kind]
    if item.kind == op_kinds.SOFTMAX and facts.columns <= WARP_COLUMNS:
        return min(1.0, shares.short_softmax * narrow)
    curve = rates.rows.get(TORCH_CALLS.get(facts.target, ""))
    if curve:
        return interpolate(curve, item.bytes_moved / max(1, facts.rows))
    if item.kind in by_kind:
        return by_kind[item.kind]
    if facts.narrow:
        return shares.small_item
    if facts.broadcast and facts.dtype not in EIGHT_BYTES:
        return shares.broadcast_16 if facts.dtype in SIXTEEN_BIT else shares.broadcast
    if facts.target in SPECIAL and facts.dtype in SIXTEEN_BIT:
        return shares.special_16
    return shares.widening if facts.widens else shares.pointwise
