"""Rates: how much of a device's copy and matmul rate each kind of kernel reaches. Fitted, and where on is said here.

They were fitted with tools/calibrate_estimate.py on two tables measured on one NVIDIA H200 (torch 2.11.0+cu130, triton
3.6.0, do_bench median, L2 flushed): 42 regions timed eager, under torch.compile and under max-autotune, and 75 rows of
kernels and libraries at their shapes. Nothing was held out: what the tool prints is the fit, not a test. They are
shares of measured ceilings (4.3 TB/s copied, 790 TFLOP/s in bf16), so that another device's own ceilings can stand in
for them; on other devices nobody has checked that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app.advice.model import Range
from profiler.region import kinds


@dataclass(frozen=True, slots=True)
class Times:
    """Fixed costs in µs."""

    event: float = 3.9  # what device events add to any measurement
    eager_kernel: float = 3.7  # start and drain of one eager kernel behind another
    fused_kernel: float = 2.9  # the same for a generated one
    host_launch: float = 6.9  # host time of one eager operation; hidden while the GPU has work
    host_view: float = 2.1
    host_ahead: float = (
        60.0  # work that the GPU has queued when the region begins (the L2 flush, or the operation before)
    )
    graph_kernel: float = 1.6  # one kernel inside a CUDA graph
    unrolled: float = 0.47  # one operation of a loop written out in one kernel (linear_recurrence_loop alone)
    autograd: float = 80.0  # one pass through autograd and a compiled function, on the host


@dataclass(frozen=True, slots=True)
class Eager:
    """Shares of the copy rate that PyTorch's own kernels reach, by class of operation."""

    pointwise: float = 0.98
    broadcast: float = 0.7
    broadcast_16: float = 0.45  # 16-bit types lose the vectorised path
    special_16: float = 0.59  # erf and the like in 16-bit types: arithmetic sets the pace
    small_item: float = 0.27  # one-byte types
    copy: float = 0.90
    strided_copy: float = 0.53
    reduction: float = 0.65
    strided_reduction: float = 0.60
    scan: float = 0.44
    norm: float = 0.55
    short_norm: float = 0.25  # rows of a few hundred elements
    norm_backward: float = 0.23
    softmax: float = 0.45
    strided_softmax: float = 0.30
    sort: float = 0.043
    topk: float = 0.025
    gather: float = 0.80
    scatter: float = 0.95
    accumulate: float = 0.15  # index_add and scatter_add: atomics
    random: float = 0.80
    fft: float = 0.47
    convolution: float = 0.19
    logsumexp: float = 0.108  # six passes in eager
    constant: float = 0.80
    other: float = 0.40


@dataclass(frozen=True, slots=True)
class Fused:
    """Shares of the copy rate that generated kernels reach, by what is in the kernel."""

    pointwise: float = 0.97
    special: float = 0.8
    reduction: float = 0.95
    short_rows: float = 0.70  # a loop over rows that do not fill it, several reductions
    softmax: float = 0.42
    long_softmax: float = 0.75  # rows beyond L2, their second pass counted as bytes
    short_softmax: float = 0.90  # rows of up to 1,024 elements stay in registers
    strided: float = 0.50  # a reduction over another axis than the last whose input is used again
    random: float = 0.25
    unpack: float = 0.26  # shifts and masks of packed weights
    f8: float = 0.50  # conversion to fp8
    scatter: float = 0.3
    scan: float = 0.90
    convolution: float = (
        0.50  # depthwise, by hand: 2.95 times torch.compile's on an H100 (kernelagent, KernelBench L1 82)
    )


@dataclass(frozen=True, slots=True)
class Matrix:
    """Shares of the matmul rate and of the copy rate for matrix products, attention and convolutions."""

    gemm: float = 0.9
    gemm_f32: float = 0.765
    gemm_unaligned: float = 0.19  # of the above: rows that are no multiple of 16 bytes (one vocabulary of 50,257)
    gemm_bytes: float = 0.85
    gemv_bytes: float = 0.13  # a batch of products with vectors
    wave_rows: int = 128
    wave_columns: int = 256
    attention: float = 0.62
    convolution: float = 0.50
    triton_gemm: float = 0.74  # of the matmul rate: flag_gems' and Inductor's Triton products beside cuBLAS's


DEFAULT = Fused()
AUTOTUNED = Fused(softmax=0.47, strided=0.93, random=0.33, unpack=0.47, short_rows=0.85)
HAND = Fused(
    softmax=0.92, long_softmax=0.80, strided=0.90, short_rows=0.93, random=0.60, unpack=0.60, scatter=0.40
)  # fmt: skip
"""A hand-written kernel.

Softmax and norms: the best rows of the table of kernels and libraries. strided, random, unpack and scatter are
guesses that nobody has measured here.
"""

LIBRARY_BYTES: Mapping[str, float] = {
    # rows of the peers table, geometric mean over the three shapes
    "torch.nn.functional.rms_norm": 0.62,
    "torch.nn.functional.layer_norm": 0.54,
    "torch.nn.functional.softmax": 0.42,
    "torch.softmax": 0.42,
    "torch.nn.functional.cross_entropy": 0.24,
    "quack.rmsnorm": 0.93,
    "quack.softmax": 0.94,
    "quack.cross_entropy": 0.81,
    "quack.topk": 0.25,
    "quack": 0.90,
    "liger": 0.85,
    "flashinfer": 0.85,
    "flag_gems": 0.85,
    "vllm.marlin_gemm": 0.70,  # vllm-project/vllm#2497: 3.1 to 3.2 times fp16 up to 16 rows
    "torch.optim": 0.90,
    "torch": 0.80,
}
"""Share of the copy rate on the region's fewest bytes, by the longest prefix of the call's name."""

LIBRARY_FLOPS: Mapping[str, float] = {
    # attn_causal_fwd: cuDNN 524 TFLOP/s, Flash 314, FlexAttention 381 to 395, of 790
    "torch.nn.functional.scaled_dot_product_attention": 0.62,
    # with an additive mask at [4, 16, 2048, 128]: cuDNN 289 TFLOP/s, FlexAttention 383 (H200, torch 2.11)
    "torch.nn.functional.scaled_dot_product_attention with a mask": 0.365,
    "torch.nn.attention.flex_attention": 0.49,
    "flash_attn": 0.62,
    "flashinfer": 0.55,
    "torch.nn.functional.grouped_mm": 0.55,
    "torch.nn.functional.scaled_mm": 0.70,
    "torch._scaled_mm": 0.70,
    "torch.ops.aten._addmm_activation": 0.81,
    "quack.gemm": 0.90,
    "torch": 0.88,
}
"""Share of the matmul rate, by the longest prefix of the call's name."""

SPREAD: Mapping[str, tuple[float, float]] = {
    "eager": (0.82, 1.28),
    "compile": (0.78, 1.32),
    "compile-max-autotune": (0.78, 1.42),
    "compile-reduce-overhead": (0.65, 1.60),
    "library": (0.76, 1.35),
    "triton": (0.75, 1.60),
    "cuda": (0.75, 1.60),
}
"""Measured over predicted time, which every Range spans.

The tenth and ninetieth per cent of the fit, a little wider since nothing was held out. Triton, CUDA and reduce-overhead
were not in the tables: their spread is a guess on the wide side.
"""


@dataclass(frozen=True, slots=True)
class Rates:
    """Everything the estimate multiplies with."""

    times: Times = Times()
    eager: Eager = Eager()
    default: Fused = DEFAULT
    autotuned: Fused = AUTOTUNED
    hand: Fused = HAND
    matrix: Matrix = Matrix()
    library_bytes: Mapping[str, float] = field(default_factory=lambda: LIBRARY_BYTES)
    library_flops: Mapping[str, float] = field(default_factory=lambda: LIBRARY_FLOPS)
    spread: Mapping[str, tuple[float, float]] = field(default_factory=lambda: SPREAD)


FITTED = Rates()
TRACED = replace(
    FITTED,
    times=Times(event=0.0, eager_kernel=1.2, fused_kernel=1.2, graph_kernel=1.2, host_ahead=math.inf, autograd=0.0),
)
"""For times as a trace has them: durations of kernels, without the gaps between them.

The shortest kernels of the traces recorded on the H200 take 1.1 to 1.8 µs.
"""

SIXTEEN_BIT = frozenset({"bf16", "f16"})
ONE_BYTE = frozenset({"i8", "u8", "f8e4m3", "f8e5m2", "bool"})
MATRIX_KINDS = frozenset({kinds.GEMM, kinds.ATTENTION, kinds.CONVOLUTION})


def longest_prefix(table: Mapping[str, float], name: str, default: float) -> float:
    """The entry whose key is the longest prefix of name."""
    found = max((k for k in table if name.startswith(k)), key=len, default=None)
    return default if found is None else table[found]


def spread(mid: float, candidate: str, rates: Rates = FITTED) -> Range:
    """mid with the spread that the calibration found for this candidate's tool."""
    tool = candidate.split(":", 1)[0]
    low, high = rates.spread.get(tool, rates.spread["compile"])
    return Range(mid * min(low, 1.0), mid, mid * max(high, 1.0))
