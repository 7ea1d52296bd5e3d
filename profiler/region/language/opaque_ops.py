"""torch.ops.tritonworthy: operations that stay one node in a region's graph, on every host and device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

LIBRARY = "tritonworthy"
_library: list[Any] = []


def whole_operations() -> Any:
    """torch.ops.tritonworthy, defined on first use.

    F.scaled_dot_product_attention and F.rms_norm decompose or change name with the device that is traced on; a
    region says "this library call", on every host. torch.bincount has a result of at least `minlength` elements; here
    of as many: all values are below it.
    """
    if not _library:
        library: Any = torch.library.Library(LIBRARY, "FRAGMENT")  # type: ignore[no-untyped-call]
        library.define(
            "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, float dropout, bool causal, float? scale, bool gqa)"
            " -> Tensor"
        )
        library.define(
            "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor? mask, float dropout,"
            " bool causal, float? scale, bool gqa) -> (Tensor, Tensor, Tensor)"
        )
        library.define("bincount(Tensor x, Tensor? weights, SymInt minlength) -> Tensor")
        library.impl("bincount", torch.bincount, "CompositeExplicitAutograd")
        library.impl("bincount", _bincount_meta, "Meta")
        library.define("rms_norm(Tensor x, SymInt[] shape, Tensor? weight, float eps) -> Tensor")
        library.impl("attention", _attention, "CompositeExplicitAutograd")
        library.impl("attention", _attention_meta, "Meta")
        library.impl("attention_backward", _attention_backward_meta, "Meta")
        torch.library.register_autograd(
            f"{LIBRARY}::attention", _attention_gradients, setup_context=_keep_for_backward, lib=library
        )
        library.define(
            "_fused_rms_norm_backward(Tensor grad, Tensor x, SymInt[] shape, Tensor? weight, float eps)"
            " -> (Tensor, Tensor)"
        )
        library.impl("rms_norm", lambda x, shape, w, eps: F.rms_norm(x, shape, w, eps), "CompositeExplicitAutograd")
        library.impl("rms_norm", lambda x, shape, w, eps: torch.empty_like(x), "Meta")
        library.impl("_fused_rms_norm_backward", rms_norm_gradients, "CompositeExplicitAutograd")
        library.impl("_fused_rms_norm_backward", _rms_norm_backward_meta, "Meta")
        torch.library.register_autograd(
            f"{LIBRARY}::rms_norm", _rms_norm_backward, setup_context=_keep_row, lib=library
        )
        _library.append(library)
    return torch.ops.tritonworthy


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, dropout: float,
               causal: bool, scale: float | None, gqa: bool) -> torch.Tensor:  # fmt: skip
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=scale, enable_gqa=gqa)


def _attention_meta(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: object) -> torch.Tensor:
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


def _attention_backward_meta(grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                             *_: object) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _bincount_meta(x: torch.Tensor, weights: torch.Tensor | None, minlength: int) -> torch.Tensor:
    if weights is None:
        return x.new_empty(minlength, dtype=torch.int64)
    return x.new_empty(minlength, dtype=torch.float32 if weights.dtype == torch.float32 else torch.float64)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:3], output)
    ctx.rest = inputs[3:]


def _attention_gradients(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    gradients = torch.ops.tritonworthy.attention_backward(grad, *ctx.saved_tensors, *ctx.rest)
    return (*gradients, *(None for _ in ctx.rest))


def rms_norm_gradients(
    grad: torch.Tensor, x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of x and weight in their parts, in f32 at least; the second is empty where there is no weight.

    On a GPU they are one call of torch, `aten._fused_rms_norm_backward`; on a CPU it writes out 25.
    """
    axes = list(range(x.dim() - len(shape), x.dim()))
    wide, slope = (t if t.dtype == torch.float64 else t.float() for t in (x, grad))
    rstd = torch.rsqrt(wide.pow(2).mean(axes, keepdim=True) + eps)
    scaled = wide * rstd
    inner = slope if weight is None else slope * weight
    dx = rstd * (inner - scaled * (inner * scaled).mean(axes, keepdim=True))
    if weight is None:
        return dx.to(x.dtype), x.new_empty(0)
    rows = list(range(x.dim() - len(shape)))
    summed = (slope * scaled).sum(rows) if rows else slope * scaled
    return dx.to(x.dtype), summed.to(weight.dtype)


def _rms_norm_backward_meta(
    grad: torch.Tensor, x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), x.new_empty(0) if weight is None else torch.empty_like(weight)


def _keep_row(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, ctx.shape, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _rms_norm_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor | None, None]:
    x, weight = ctx.saved_tensors
    dx, dw = torch.ops.tritonworthy._fused_rms_norm_backward(grad, x, ctx.shape, weight, ctx.eps)
    return dx, None, None if weight is None else dw, None
