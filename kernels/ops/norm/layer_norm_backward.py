"""LayerNorm's backward: dx, dw and db from dy, x, the weight, and the mean and rstd that layer_norm_with_stats kept.

With xhat = (x - mean) * rstd and g = dy * weight: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), dw = the sum over
rows of dy * xhat, db = that of dy. Where mean and rstd are not given they are computed again from the rows, which are
held anyway. Traffic: dy and x read once, dx written once, 3 * rows * columns * itemsize bytes, and the partial sums of
dw and db, f32, one row of each a program, written and read. Where a row and its sums leave no registers for the weight,
it is read again for every row; longer rows are loaded twice, from memory and from L2 (gradient_chunks), or shared by a
team (gradient_team). How one is chosen: backward.py.
"""

from __future__ import annotations

import torch

from kernels.ops.norm.backward import Form, backward, checked_gradient
from kernels.ops.norm.forward import checked
from kernels.ops.norm.layer_norm import layer_norm_with_stats
from kernels.ops.norm.rms_norm_backward import builds
from kernels.spec import Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner

tuner = Tuner("layer_norm_backward")
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def reference(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor | None = None,
    rstd: torch.Tensor | None = None, eps: float = 1e-5, sums: torch.dtype | None = None,
) -> Three:  # fmt: skip
    """What is computed, in plain PyTorch."""
    up, flat = wide(dy), wide(x)
    if mean is None or rstd is None:
        mean, rstd = flat.mean(-1), torch.rsqrt(flat.var(-1, unbiased=False) + eps)
    xhat = (flat - mean[..., None]) * rstd[..., None]
    g = up * weight
    dx = (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True)) * rstd[..., None]
    dtype = sums or weight.dtype
    return dx.to(x.dtype), (up * xhat).flatten(0, -2).sum(0).to(dtype), up.flatten(0, -2).sum(0).to(dtype)


def reference_both(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Forward and backward, in plain PyTorch: y, dx, dw, db."""
    flat = wide(x)
    mean, rstd = flat.mean(-1), torch.rsqrt(flat.var(-1, unbiased=False) + eps)
    y = ((flat - mean[..., None]) * rstd[..., None] * weight + bias).to(x.dtype)
    return (y, *reference(dy, x, weight, mean, rstd))


def layer_norm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor | None = None,
    rstd: torch.Tensor | None = None, eps: float = 1e-5, sums: torch.dtype | None = None,
) -> Three:  # fmt: skip
    """(dx, dw, db) of layer_norm over the last axis of x [..., N].

    dy, x [..., N] and weight [N] in f32, f16 or bf16; mean and rstd [...] in f32, or both None: then computed from x
    and eps. Computed in f32; dx like x, dw and db in the dtype `sums`, like weight where it is None. Raises TypeError
    for other dtypes, ValueError for shapes that do not belong together or mean without rstd.
    """
    checked(x, "layer_norm_backward", weight=weight)
    checked_gradient(dy, x, rstd, mean)
    if (mean is None) != (rstd is None):
        raise ValueError("mean and rstd are given together or not at all")
    form = Form(centered=True, bias=True, given=rstd is not None)
    return backward(tuner, form, dy, x, weight, mean, rstd, eps, sums or weight.dtype)


def layer_norm_both(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(y, dx, dw, db): layer_norm_with_stats, then layer_norm_backward, as a training step has them."""
    y, mean, rstd = layer_norm_with_stats(x, weight, bias, eps)
    return (y, *layer_norm_backward(dy, x, weight, mean, rstd, eps))


def inputs(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try it on. stats: mean and rstd are given; wide: dw and db in f32."""
    shape = (c["rows"], c["columns"])
    dy, x = make.normal(shape, c.torch_dtype), make.normal(shape, c.torch_dtype, mean=c.get("mean", 0.0))
    weight = make.normal((c["columns"],), c.torch_dtype)
    if not c.get("stats", True):
        return dy, x, weight, None, None, 1e-5, torch.float32 if c.get("wide") else None
    flat = x.float()
    variance = (flat - flat.mean(-1, keepdim=True)).pow(2).mean(-1)  # torch.var warns where there are no rows
    return dy, x, weight, flat.mean(-1), torch.rsqrt(variance + 1e-5)


def inputs_both(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try layer_norm_both on."""
    shape, line = (c["rows"], c["columns"]), (c["columns"],)
    return (make.normal(shape, c.torch_dtype), make.normal(shape, c.torch_dtype), make.normal(line, c.torch_dtype),
            make.normal(line, c.torch_dtype), 1e-5)  # fmt: skip


OPERATIONS = (
    Operation(
        name="layer_norm_backward", run=layer_norm_backward, reference=reference, inputs=inputs,
        beyond=case("bf16", rows=131_200, columns=16384),
        cost=lambda c: Cost(bytes=(3 * c["rows"] + 3) * c["columns"] * c.itemsize),
        checks=(
            *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16") for r, n in ((5, 130), (5, 2050))),
            *(case(d, rows=5, columns=n, stats=False) for d in ("f32", "bf16") for n in (130, 2050)),
            *(case("bf16", rows=r, columns=n) for r, n in ((0, 64), (2, 1), (2, 5120), (3, 1025), (2, 4099))),
            case("f32", rows=3, columns=1500, mean=100.0, stats=False), case("f32", rows=2, columns=12000, stats=False),
            case("bf16", rows=6, columns=1200, stats=False, wide=True),
            case("bf16", rows=6, columns=1200),
        ),
        forms=("plain", "strided", "misaligned", "special"),
        cases=(
            case("bf16", region="layernorm_backward_manual", rows=8192, columns=4096, stats=False, wide=True),
            case("bf16", rows=16384, columns=4096), case("bf16", rows=8192, columns=16384),
        ),
        builds=builds(Form(centered=True, bias=True)),
    ),
    Operation(
        name="layer_norm_both", run=layer_norm_both, reference=reference_both, inputs=inputs_both,
        cost=lambda c: Cost(bytes=4 * c["rows"] * c["columns"] * c.itemsize),
        checks=(
            case("f32", rows=5, columns=1024), case("bf16", rows=5, columns=130), case("f16", rows=4, columns=1100),
        ),
        cases=(case("f32", region="manual_layernorm", rows=8192, columns=1024), case("bf16", rows=8192, columns=4096)),
        builds=builds(Form(centered=True, bias=True))[:2],
    ),
)  # fmt: skip
