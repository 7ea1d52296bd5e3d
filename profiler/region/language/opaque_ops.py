"""torch.ops.tritonworthy: operations that stay one node in a region's graph, on every host and device."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

LIBRARY = "tritonworthy"
_library: list[Any] = []


def whole_operations() -> Any:
    """torch.ops.tritonworthy, defined on first use.

    F.scaled_dot_product_attention and F.rms_norm decompose or change name with the device that is traced on; a
    region says "this library call", on every host.
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
        library.define("rms_norm(Tensor x, SymInt[] shape, Tensor? weight, float eps) -> Tensor")
        library.impl("attention", _attention, "CompositeExplicitAutograd")
        library.impl("attention", _attention_meta, "Meta")
        library.impl("attention_backward", _attention_backward_meta, "Meta")
        torch.library.register_autograd(
            f"{LIBRARY}::attention", _attention_gradients, setup_context=_keep_for_backward, lib=library
        )
        library.impl("rms_norm", lambda x, shape, w, eps: F.rms_norm(x, shape, w, eps), "CompositeExplicitAutograd")
        library.impl("rms_norm", lambda x, shape, w, eps: torch.empty_like(x), "Meta")
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


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:3], output)
    ctx.rest = inputs[3:]


def _attention_gradients(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    gradients = torch.ops.tritonworthy.attention_backward(grad, *ctx.saved_tensors, *ctx.rest)
    return (*gradients, *(None for _ in ctx.rest))
