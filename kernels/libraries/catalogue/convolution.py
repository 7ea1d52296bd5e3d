"""Convolutions, pooling, FFT, linear algebra. Torch-free."""

from __future__ import annotations

from math import prod

from kernels.libraries.conditions import CHANNELS_LAST, FLOATING, compiled, rank
from kernels.libraries.model import Condition, Entry, Facts, Operation

CONV, DEEP = frozenset({"convolution"}), frozenset({"depthwise_convolution"})
POOL, FFT = frozenset({"pooling"}), frozenset({"fft"})
WINDOW = 25
"""torch._inductor.lowering.should_fallback_max_pool_with_indices (torch 2.13): above, the pool is left to aten."""


def _window(f: Facts) -> bool | None:
    size = f.roles.get("kernel_size")
    return prod(size) <= WINDOW if isinstance(size, tuple) else None


OPERATIONS: tuple[Operation, ...] = (
    Operation(63, "conv1d, conv2d, conv3d", "Y", CONV),
    Operation(64, "depthwise convolution", "N*", DEEP),
    Operation(65, "pooling, in three dimensions above all", "N*", POOL),
    Operation(66, "FFT", "skip", FFT),
    Operation(67, "svd, eigh, solve, cholesky", "skip",
              inexpressible="torch.linalg's factorisations are not in the region language",
              note="cuSOLVER and MAGMA; torch.compile calls the same"),
)  # fmt: skip

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "library:torch.nn.functional.conv2d", "torch", CONV | DEEP, "F.conv2d({x}, {weight}, ...)",
        (FLOATING, CHANNELS_LAST), (63,), since="always", unmeasured="it is the call already",
        source="torch documentation", note="cuDNN: channels_last and torch.backends.cudnn.benchmark = True.",
        targets=frozenset({"convolution", "cudnn_convolution"}),
    ),
    compiled(
        DEEP, 64, conditions=(rank("x", 3, "one dimension: Inductor has a template for conv1d alone"),),
        note="In two dimensions Triton took a third of torch.compile's time, H100.", source="pytorch/pytorch#175280",
    ),
    compiled(
        POOL, 65, conditions=(Condition(f"windows of up to {WINDOW} numbers: larger ones are left to aten", _window),),
        note="In three dimensions Triton took less than a third of torch.compile's time, H100.",
        source="torch 2.13, torch/_inductor/lowering.py",
    ),
    Entry(
        "library:torch.nn.functional.pool", "torch", POOL, "F.{function}({x}, {kernel_size})", (FLOATING,), (65,),
        since="always", unmeasured="it is the call already", source="torch documentation",
        targets=frozenset({"max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d",
                           "max_pool1d", "avg_pool1d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
                           "adaptive_max_pool2d", "adaptive_max_pool3d"}),
    ),
    Entry(
        "library:torch.fft", "torch", FFT, "torch.fft.rfft({x})",
        (), (66,), since="always", unmeasured="it is the call already",
        note="cuFFT; torch.compile calls the same.", source="cuFFT documentation",
        targets=frozenset({"_fft_r2c", "_fft_c2r", "_fft_c2c"}),
    ),
)  # fmt: skip
