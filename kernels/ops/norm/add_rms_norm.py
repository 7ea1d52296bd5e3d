"""Residual add and RMSNorm in one: s = x + residual; y = s * rsqrt(mean(s²) + eps) * weight; both are returned.

s is rounded to the dtype and normalised as it was stored, which is what the backward will see. Traffic: two read, two
written, 4 * rows * columns * itemsize bytes, and the weight once, while a row fits into one program's registers; longer
rows are read twice. The kernels are the family's: forward_kernels.py. The one by
16 programs a row of 2 warps spills 12 bytes a thread on sm_90 (Triton 3.7.1), and was the fastest of its kind at
4096 x 65536 all the same (559 us on an H200).
"""

from __future__ import annotations

import torch

from kernels.ops.norm.forward import Form, checked, forward
from kernels.ops.norm.rms_norm import CLUSTERED, builds
from kernels.spec import Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner

tuner = Tuner("add_rms_norm")


def reference(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """What is computed, in plain PyTorch."""
    s = x + residual
    y = wide(s) * torch.rsqrt(wide(s).pow(2).mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight).to(x.dtype), s


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """(RMSNorm of x + residual, x + residual) over the last axis of x [..., N] in f32, f16, bf16; weight [N] or None.

    Computed in f32; both results like x, contiguous. Inputs are copied where their rows are not contiguous or their
    leading dimensions are not one stride. Raises TypeError for other dtypes or two that differ, ValueError for shapes
    that do not belong together.
    """
    checked(x, "add_rms_norm", weight=weight)
    if residual.dtype != x.dtype:
        raise TypeError(f"x is {x.dtype}, the residual {residual.dtype}")
    if residual.shape != x.shape:
        raise ValueError(f"x has shape {tuple(x.shape)}, the residual {tuple(residual.shape)}")
    y, s, _, _ = forward(tuner, Form(residual=True, weight=weight is not None), x, residual, weight, None, eps)
    return y, s


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, float]:
    """Arguments to try it on."""
    shape = (c["rows"], c["columns"])
    x, residual = make.normal(shape, c.torch_dtype), make.normal(shape, c.torch_dtype)
    return x, residual, make.normal((c["columns"],), c.torch_dtype) if c.get("weight", True) else None, 1e-6


OPERATIONS = (
    Operation(
        name="add_rms_norm", run=add_rms_norm, reference=reference, inputs=inputs,
        beyond=case("bf16", rows=32_800, columns=65536),
        cost=lambda c: Cost(bytes=(4 * c["rows"] + 1) * c["columns"] * c.itemsize),
        checks=(
            *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16") for r, n in ((5, 130), (3, 2050), (1, 1))),
            *(case("bf16", rows=r, columns=n) for r, n in ((0, 64), (3, 0), (2, 5120), (3, 1025))),
            case("bf16", rows=1, columns=65540),
            case("f16", rows=3, columns=2048, weight=False),
            case("bf16", rows=6, columns=1200),
            *CLUSTERED,
        ),
        forms=("plain", "strided", "misaligned", "special"),
        cases=(
            *(case("bf16", "add_rmsnorm_fwd", rows=r, columns=n)
              for r, n in ((16384, 4096), (8192, 16384), (4096, 65536))),
            case("bf16", region="add_rmsnorm_residual", rows=2048, columns=5120),
        ),
        builds=builds(Form(residual=True)),
    ),
)  # fmt: skip
