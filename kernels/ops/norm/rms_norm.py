"""RMSNorm over the last axis: x * rsqrt(mean(x²) + eps) * weight, forward.

Reference: torch.nn.functional.rms_norm. Traffic: x read once, y written once, 2 * rows * columns * itemsize bytes,
and the weight once, while a row fits into one program's registers; longer rows are read twice, the second time
mostly from L2. Matches: RMSNorm by hand or called, last axis, with or without weight, rows contiguous.
The kernels are the family's: forward.py.
"""

from __future__ import annotations

import torch

from kernels.ops.norm import forward as norms
from kernels.ops.norm.forward import Form, checked, forward
from kernels.ops.norm.forward_kernels import norm_loop as rms_norm_loop
from kernels.ops.norm.forward_kernels import norm_packed as rms_norm_packed
from kernels.ops.norm.forward_kernels import norm_rows as rms_norm_rows
from kernels.ops.norm.rms_norm_cluster import variant_of as cluster_variant
from kernels.ops.shared.cluster import NO_CLUSTERS
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

NAME = "triton:rms_norm"
KIND = "rms_norm"
CALL = "from kernels.rms_norm import rms_norm\ny = rms_norm({x}, {weight}, {eps})"

tuner = Tuner("rms_norm")


def reference(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """RMSNorm over the last axis as torch has it."""
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)


def reference_with_rstd(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The same and what its backward needs: 1 / root mean square of each row."""
    rstd = torch.rsqrt(wide(x).pow(2).mean(-1) + eps)
    y = wide(x) * rstd[..., None]
    return (y if weight is None else y * weight).to(x.dtype), rstd


def bytes_moved(rows: int, columns: int, itemsize: int) -> int:
    """Fewest bytes: x and weight read once, y written once."""
    return (2 * rows + 1) * columns * itemsize


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm over the last axis of x [..., N] in f32, f16 or bf16, weight [N] or None; computed in f32, result like x.

    x is copied where its rows are not contiguous or its leading dimensions are not one stride. Raises TypeError for
    other dtypes, ValueError for a weight of another size.
    """
    checked(x, "rms_norm", weight=weight)
    return forward(tuner, Form(weight=weight is not None), x, None, weight, None, eps)[0]


def rms_norm_with_rstd(
    x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm and 1 / root mean square of each row, [...] in f32: what rms_norm_backward takes."""
    checked(x, "rms_norm", weight=weight)
    y, _, _, rstd = forward(tuner, Form(weight=weight is not None, stats=True), x, None, weight, None, eps)
    return y, rstd


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor | None, float]:
    """Arguments to try it on."""
    x = make.normal((c["rows"], c["columns"]), c.torch_dtype)
    return x, make.normal((c["columns"],), c.torch_dtype) if c.get("weight", True) else None, 1e-6


CHECKS = (
    *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16") for r, n in ((5, 1000), (3, 2050), (1, 1))),
    *(case("bf16", rows=r, columns=n) for r, n in ((0, 64), (3, 0), (2, 5120), (3, 1025))),
    case("f32", rows=2, columns=33000), case("f16", rows=2, columns=66000),
    case("bf16", rows=6, columns=2048, weight=False),
    case("bf16", rows=6, columns=1200),
)  # fmt: skip
CLUSTERED = (
    *(case(d, rows=3, columns=n) for d, n in (("bf16", 65536 - 32), ("f16", 32800), ("f32", 32768))),
    case("bf16", rows=3, columns=65536, weight=False),
)  # fmt: skip
"""Rows that clusters of programs compute."""
SIGNATURE = {
    **dict.fromkeys(("x_ptr", "r_ptr", "w_ptr", "b_ptr", "y_ptr", "s_ptr"), "*bf16"),
    **dict.fromkeys(("mean_ptr", "rstd_ptr"), "*fp32"), "sync_ptr": "*i64",
    **dict.fromkeys(("rows", "x_stride", "r_stride", "y_stride"), "i32"), "eps": "fp32", "zero": "i32",
}  # fmt: skip
STRIDES = ("rows", "x_stride", "r_stride", "y_stride")


def builds(form: Form) -> tuple[Build, ...]:
    """One of each kernel of the family, for the form of one operation."""
    packed = [norms.pieces(2048, 2, torch.bfloat16, form, 4, 1), norms.pieces(2048, 2, torch.bfloat16, form, 8, 3),
              norms.pieces(32768, 2, torch.bfloat16, form, 32, 1)]  # fmt: skip
    packed += [norms.pieces(32768, 2, torch.bfloat16, form, *choice) for choice in norms.asking(form)[:2]]
    others = [norms.space(64, n, torch.bfloat16, 0, form)[0] for n in (256, 100_000)]
    teams = ((4096, 2, 3),) if form.residual or form.centered else ((4096, 2, 3), (16384, 16, 3))
    others += [norms.team(65536, torch.bfloat16, 2, form, *s) for s in teams]
    made = [Build(v, _signature(v), divisible=STRIDES) for v in (*packed, *others)]
    if form.by_clusters:
        clusters = [cluster_variant(65536, torch.bfloat16, 2, form.residual, form.weight, ctas) for ctas in (4, 8)]
        made += [Build(v, _signature(v), divisible=STRIDES[1:], without=NO_CLUSTERS) for v in clusters]
    return tuple(made)


def _signature(variant: Variant) -> dict[str, str]:
    return {name: kind for name, kind in SIGNATURE.items() if name in variant.kernel.arg_names}


OPERATIONS = (
    Operation(
        name="rms_norm", run=rms_norm, reference=reference, inputs=inputs,
        loses={
            "bf16 rows=4096 columns=65536":
                "quack takes 258 us, this 266, both a row in a cluster of programs. Tried: 8 programs a row (269), the "
                "weight before the exchange (270), one program a row (272), the next row's copies ahead (275 to 279).",
        },
        beyond=case("bf16", rows=32_800, columns=65536),
        cost=lambda c: Cost(bytes=bytes_moved(c["rows"], c["columns"], c.itemsize)),
        checks=(*CHECKS, *CLUSTERED), forms=("plain", "strided", "misaligned", "special"),
        cases=(
            *(case("bf16", "rmsnorm_fwd", rows=r, columns=n) for r, n in ((16384, 4096), (8192, 16384), (4096, 65536))),
            case("bf16", region="rmsnorm_manual_fwd", rows=2048, columns=4096),
            case("f32", rows=16384, columns=4096),
        ),
        builds=builds(Form()),
    ),
    Operation(
        name="rms_norm_with_rstd", run=rms_norm_with_rstd, reference=reference_with_rstd, inputs=inputs,
        beyond=case("bf16", rows=524_800, columns=4096),
        cost=lambda c: Cost(bytes=bytes_moved(c["rows"], c["columns"], c.itemsize) + 4 * c["rows"]),
        checks=CHECKS[-8:], forms=("plain", "strided", "misaligned", "special"),
        cases=(case("bf16", rows=16384, columns=4096),), builds=builds(Form(stats=True))[:2],
    ),
)  # fmt: skip

__all__ = ["rms_norm_loop", "rms_norm_packed", "rms_norm_rows"]
