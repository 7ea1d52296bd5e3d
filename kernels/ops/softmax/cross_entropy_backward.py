"""Cross entropy's backward where the forward kept the logits' gradient: it times the loss's own gradient, in place.

That gradient is 1 where the loss is what `backward()` is called on, and nothing is read or written then: the factor
stays on the device, where the host would have to wait for it, and programs that find 1 end. Traffic otherwise:
the gradient read and written once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.shared.rows import rows_of
from kernels.spec import Build
from kernels.tuning import Variant


@triton.jit
def scale_rows(d_ptr, factor_ptr, d_stride, N, factor_stride, BLOCK: tl.constexpr):
    """One row a program, which ends at once where its factor is 1."""
    row = tl.program_id(0).to(tl.int64)
    factor = tl.load(factor_ptr + row * factor_stride)
    if factor != 1.0:
        d_ptr += row * d_stride
        for start in range(0, N, BLOCK):
            at = start + tl.arange(0, BLOCK)
            values = tl.load(d_ptr + at, mask=at < N, other=0.0).to(tl.float32)
            tl.store(d_ptr + at, values * factor, mask=at < N)


VARIANT = Variant(scale_rows, (("BLOCK", 4096),), 8)
BUILD = Build(
    VARIANT,
    {"d_ptr": "*bf16", "factor_ptr": "*fp32", "d_stride": "i32", "N": "i32", "factor_stride": "i32"},
    divisible=("d_stride", "N"),
)


def scale_gradient(gradient: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """gradient [..., N] in f32, f16 or bf16 times factor, of one element or [...], in place: the same tensor.

    Computed in f32. ValueError for a factor of another shape, or a gradient whose rows are not contiguous.
    """
    if factor.numel() != 1 and factor.shape != gradient.shape[:-1]:
        raise ValueError(f"a gradient of {[*gradient.shape]} takes one factor or {[*gradient.shape[:-1]]}")
    flat = rows_of(gradient)
    if flat.data_ptr() != gradient.data_ptr():
        raise ValueError("scale_gradient takes contiguous rows, one stride apart")
    if gradient.numel():
        factors = factor.float().reshape(-1)
        step = 0 if factor.numel() == 1 else factors.stride(0)
        scale_rows[(flat.shape[0],)](flat, factors, flat.stride(0), flat.shape[1], step, **VARIANT.meta)
    return gradient
