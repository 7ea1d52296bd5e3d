"""LayerNorm over the last axis: (x - mean) * rsqrt(variance + eps) * weight + bias; a residual may be added first.

Mean and variance are two sums over a held row, so that a large mean costs no digits. Traffic: x read once, y written
once, 2 * rows * columns * itemsize bytes (4 with a residual, whose sum is returned too), while a row fits into one
program's registers; longer rows are read twice. The kernels are the family's: forward_kernels.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernels.ops.norm.forward import Form, checked, forward
from kernels.ops.norm.rms_norm import builds
from kernels.spec import Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner

CALL = "from kernels.layer_norm import layer_norm\ny = layer_norm({x}, {weight}, {bias}, {eps})"

tuner = Tuner("layer_norm")


def reference(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    """LayerNorm over the last axis as torch has it."""
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def reference_added(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same of x + residual, and that sum."""
    s = x + residual
    return reference(s, weight, bias, eps), s


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5
) -> torch.Tensor:
    """LayerNorm over the last axis of x [..., N] in f32, f16 or bf16; weight [N], bias [N] or None.

    Computed in f32, result like x, contiguous. x is copied where its rows are not contiguous or its leading dimensions
    are not one stride. Raises TypeError for other dtypes, ValueError for a weight or bias of another size.
    """
    checked(x, "layer_norm", weight=weight, bias=bias)
    return forward(tuner, Form(False, True, weight is not None, bias is not None), x, None, weight, bias, eps)[0]


def rounded_mean(arguments: Sequence[Any]) -> float:
    """Relative error that comes with a mean in f32: half of its last digit, over the row's standard deviation.

    Eager's own is that times its luck: of 22 rows with a mean of 1000 deviations it was 1.4e-5, ours 3.6e-5 (H200).
    """
    return rounded_mean_of(arguments[0])


def rounded_mean_of(x: torch.Tensor) -> float:
    """rounded_mean, over the last dimension."""
    if x.dtype != torch.float32 or not x.numel():
        return 0.0
    rows = x.double().nan_to_num(0.0, 0.0, 0.0)
    ratio = rows.mean(-1).abs() / rows.std(-1, correction=0).clamp_min(1e-30)
    usual = ratio[ratio.isfinite() & (ratio < 1e6)]  # a constant row has no deviation, and a result of 0
    return float(usual.square().mean().sqrt()) * 2.0**-24 if usual.numel() else 0.0


def layer_norm_with_stats(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm, and mean and 1 / standard deviation of each row, [...] in f32: what layer_norm_backward takes."""
    checked(x, "layer_norm", weight=weight, bias=bias)
    form = Form(False, True, weight is not None, bias is not None, stats=True)
    y, _, mean, rstd = forward(tuner, form, x, None, weight, bias, eps)
    return y, mean, rstd


def add_layer_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """(layer_norm(x + residual), x + residual), both like x; the sum is normalised as it is stored, rounded.

    Raises what layer_norm does, TypeError and ValueError also for a residual of another dtype or shape than x.
    """
    checked(x, "add_layer_norm", weight=weight, bias=bias)
    if residual.dtype != x.dtype:
        raise TypeError(f"x is {x.dtype}, the residual {residual.dtype}")
    if residual.shape != x.shape:
        raise ValueError(f"x has shape {tuple(x.shape)}, the residual {tuple(residual.shape)}")
    form = Form(True, True, weight is not None, bias is not None)
    y, s, _, _ = forward(tuner, form, x, residual, weight, bias, eps)
    return y, s


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, float]:
    """Arguments to try it on."""
    x = make.normal((c["rows"], c["columns"]), c.torch_dtype, mean=c.get("mean", 0.0))
    weight = make.normal((c["columns"],), c.torch_dtype) if c.get("weight", True) else None
    return x, weight, make.normal((c["columns"],), c.torch_dtype) if c.get("bias", True) else None, 1e-5


def inputs_added(
    c: Case, make: Maker
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None, float]:
    """Arguments to try add_layer_norm on."""
    x, weight, bias, eps = inputs(c, make)
    return x, make.normal((c["rows"], c["columns"]), c.torch_dtype), weight, bias, eps


OPERATIONS = (
    Operation(
        name="layer_norm", conditioned=rounded_mean, run=layer_norm, reference=reference, inputs=inputs,
        beyond=case("bf16", rows=131_200, columns=16384),
        cost=lambda c: Cost(bytes=(2 * c["rows"] + 2) * c["columns"] * c.itemsize),
        checks=(
            *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16") for r, n in ((5, 130), (3, 2050), (1, 1))),
            *(case("bf16", rows=r, columns=n) for r, n in ((0, 64), (3, 0), (2, 5120), (3, 1025))),
            case("f32", rows=40, columns=700, mean=1000.0), case("f32", rows=2, columns=33000, mean=10.0),
            case("f16", rows=2, columns=66000), case("f16", rows=3, columns=2048, weight=False, bias=False),
            case("bf16", rows=3, columns=2048, bias=False),
            case("bf16", rows=6, columns=1200),
        ),
        forms=("plain", "strided", "misaligned", "special"),
        cases=(
            *(case("bf16", "layernorm_fwd", rows=r, columns=n)
              for r, n in ((16384, 4096), (8192, 16384), (4096, 65536))),
            case("f32", rows=8192, columns=1024),
        ),
        builds=builds(Form(centered=True, bias=True)),
    ),
    Operation(
        name="add_layer_norm", run=add_layer_norm, reference=reference_added, inputs=inputs_added,
        beyond=case("bf16", rows=131_200, columns=16384),
        cost=lambda c: Cost(bytes=(4 * c["rows"] + 2) * c["columns"] * c.itemsize),
        checks=(
            *(case(d, rows=3, columns=n) for d in ("f32", "f16", "bf16") for n in (130, 2050)),
            case("bf16", rows=0, columns=8),
            case("bf16", rows=6, columns=1200),
        ),
        forms=("plain", "strided", "misaligned", "special"),
        cases=(case("bf16", rows=16384, columns=4096), case("bf16", rows=8192, columns=16384)),
        builds=builds(Form(residual=True, centered=True, bias=True)),
    ),
)  # fmt: skip
