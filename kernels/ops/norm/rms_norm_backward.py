"""RMSNorm's backward: dx and dw from dy, x, the weight, and the rstd that rms_norm_with_rstd kept.

With xhat = x * rstd and g = dy * weight: dx = rstd * (g - xhat * mean(g * xhat)), dw = the sum over rows of dy * xhat.
Traffic: dy and x read once, dx written once, 3 * rows * columns * itemsize bytes, and the partial sums of dw, f32, one
row of them a program, written and read. Programs walk over rows and hold them; longer rows are shared by a team of
programs (gradient_team) or loaded twice, the second time from L2 (gradient_chunks); rows of single 16-bit elements
beyond 4096 are read twice.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.ops.norm import backward as norm_backward
from kernels.ops.norm.backward import Form, backward, checked_gradient
from kernels.ops.norm.backward_kernels import gradient_finish, sum_partials
from kernels.ops.norm.forward import checked
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

tuner = Tuner("rms_norm_backward")


def reference(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, rstd: torch.Tensor) -> Any:
    """What is computed, in plain PyTorch."""
    xhat = wide(x) * rstd[..., None]
    g = wide(dy) if weight is None else wide(dy) * weight
    dx = rstd[..., None] * (g - xhat * (g * xhat).mean(-1, keepdim=True))
    if weight is None:
        return dx.to(x.dtype)
    return dx.to(x.dtype), (wide(dy) * xhat).flatten(0, -2).sum(0).to(weight.dtype)


def rms_norm_backward(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, rstd: torch.Tensor) -> Any:
    """(dx, dw) of rms_norm over the last axis of x [..., N]; dx alone where there is no weight.

    dy, x [..., N] and weight [N] in f32, f16 or bf16; rstd [...] in f32. Computed in f32; dx like x, dw like weight,
    its sum over rows in one order, the same for the same GPU and variant. Raises TypeError for other dtypes,
    ValueError for shapes that do not belong together.
    """
    checked(x, "rms_norm_backward", weight=weight)
    checked_gradient(dy, x, rstd, None)
    sums = x.dtype if weight is None else weight.dtype
    dx, dw, _ = backward(tuner, Form(weight=weight is not None), dy, x, weight, None, rstd, 0.0, sums)
    return dx if weight is None else (dx, dw)


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Arguments to try it on."""
    shape = (c["rows"], c["columns"])
    dy, x = make.normal(shape, c.torch_dtype), make.normal(shape, c.torch_dtype)
    weight = make.normal((c["columns"],), c.torch_dtype) if c.get("weight", True) else None
    return dy, x, weight, torch.rsqrt(x.float().pow(2).mean(-1) + 1e-6)


SIGNATURE = {
    **dict.fromkeys(("dy_ptr", "x_ptr", "w_ptr", "dx_ptr"), "*bf16"),
    **dict.fromkeys(("mean_ptr", "rstd_ptr", "c_ptr", "dw_ptr", "db_ptr"), "*fp32"), "sync_ptr": "*i32",
    **dict.fromkeys(("rows", "dy_stride", "x_stride", "dx_stride", "blocks", "chunks", "lag"), "i32"),
    "eps": "fp32", "zero": "i32",
}  # fmt: skip
SUMS = {
    "part_ptr": "*fp32", "other_ptr": "*fp32", "out_ptr": "*bf16", "other_out_ptr": "*bf16", "count": "i32",
}  # fmt: skip


def builds(form: Form) -> tuple[Build, ...]:
    """One of each kernel of the family, for the form of one operation."""
    bf16 = torch.bfloat16
    given = Form(form.centered, form.weight, form.bias)
    variants = (
        norm_backward.packed(2048, 2, bf16, form, 8, 3), norm_backward.team(32768, 2, bf16, given, 16, 1),
        norm_backward.space(4096, 200, bf16, 0, form)[0], norm_backward.split(70001, given)[0],
        norm_backward.chunked(32768, 2, bf16, given, 32),
        *((norm_backward.packed(8192, 2, bf16, given, 16, 2, late=True),) if form.bias else ()),
    )  # fmt: skip
    finish = Variant(
        gradient_finish,
        (("N", 70001), ("BLOCK", 4096), ("MOST", 32), ("CENTERED", form.centered), ("WEIGHT", form.weight)),
        8,
    )
    total = Variant(sum_partials, (("N", 4096), ("BLOCK", 32), ("ROWS", 256)), 8)
    strides = ("rows", "dy_stride", "x_stride", "dx_stride")
    listed = [Build(v, _signature(v), tuple(s for s in strides if s in _signature(v))) for v in (*variants, finish)]
    return (*listed, Build(total, SUMS))


def _signature(variant: Variant) -> dict[str, str]:
    return {k: t for k, t in SIGNATURE.items() if k in variant.kernel.arg_names}


OPERATIONS = (
    Operation(
        name="rms_norm_backward", run=rms_norm_backward, reference=reference, inputs=inputs,
        beyond=case("bf16", rows=32_800, columns=65536),
        cost=lambda c: Cost(bytes=(3 * c["rows"] + 2) * c["columns"] * c.itemsize + 4 * c["rows"]),
        checks=(
            *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16") for r, n in ((5, 130), (5, 2050), (1, 1))),
            *(case("bf16", rows=r, columns=n) for r, n in ((0, 64), (3, 0), (2, 5120), (3, 1025), (2, 4099))),
            case("f32", rows=2, columns=12000),
            case("f16", rows=3, columns=2048, weight=False),
            case("bf16", rows=6, columns=1200),
        ),
        forms=("plain", "strided", "misaligned", "special"),
        cases=tuple(
            case("bf16", "rmsnorm_bwd", rows=r, columns=n) for r, n in ((16384, 4096), (8192, 16384), (4096, 65536))
        ),
        builds=builds(Form()),
    ),
)  # fmt: skip
