"""Attention rounded as its kernels round: scores in float32, what a product reads in the type of its operands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from kernels.measure.candidate.rounding import MANTISSA, UNIT, Rounding

MOST_SCORES = 1 << 26
"""Of one part: 512 MiB in float64."""


def attention(
    rounding: Rounding,
    dtype: torch.dtype,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """F.scaled_dot_product_attention without dropout. dtype: of the text's operands."""
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    bias = query.new_zeros(())
    if is_causal:
        ones = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        bias = query.new_zeros(ones.shape).masked_fill(~ones.tril(), -math.inf)
    if attn_mask is not None:
        kept = attn_mask.dtype == torch.bool
        bias = bias + (query.new_zeros(attn_mask.shape).masked_fill(~attn_mask, -math.inf) if kept else attn_mask)
    return _in_parts(rounding, dtype, query, key, value, bias, scale)


def _in_parts(
    rounding: Rounding, dtype: torch.dtype, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor,
    scale: float,
) -> torch.Tensor:  # fmt: skip
    """So many heads at once that their scores fit: several tensors of these are held."""
    leading = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])  # type: ignore[no-untyped-call]
    scores = (*leading, q.shape[-2], k.shape[-2])
    if not leading or math.prod(scores) <= MOST_SCORES:
        result: torch.Tensor = _Attention.apply(rounding, dtype, q, k, v, bias, scale)  # type: ignore[no-untyped-call]
        return result
    q, k, v = (t.expand(*leading, *t.shape[-2:]) for t in (q, k, v))
    parts = zip(q.unbind(0), k.unbind(0), v.unbind(0), bias.expand(scores).unbind(0), strict=True)
    return torch.stack([_in_parts(rounding, dtype, *part, scale=scale) for part in parts])


@dataclass(slots=True)
class RowSums:
    """Attention that a text spells: what its softmax's backward subtracts may be taken from the rounded result.

    A softmax followed by a product gets its gradient by the sum of gradient times probability over each row. Kernels
    take that as the sum of gradient times result, which is as far off as the result's rounding makes it.
    """

    rounding: Rounding
    weights: torch.Tensor
    off: torch.Tensor | None = None

    def watch_scores(self, scores: torch.Tensor) -> None:
        """Of the softmax's input."""
        if scores.requires_grad:
            scores.register_hook(self._subtract)  # type: ignore[no-untyped-call]

    def watch_result(self, result: torch.Tensor, dtype: torch.dtype) -> None:
        """Of the product that the probabilities are the first operand of."""
        if not result.requires_grad or result.shape[:-1] != self.weights.shape[:-1]:
            return
        value, size = result.detach(), 0.4 * 2.0 ** -MANTISSA[dtype]

        def hook(gradient: torch.Tensor) -> None:
            with _disable_current_modes():
                self.off = (gradient * (self.rounding.jitter(value, size) - value)).sum(-1, keepdim=True)

        result.register_hook(hook)  # type: ignore[no-untyped-call]

    def _subtract(self, gradient: torch.Tensor) -> torch.Tensor:
        if self.off is None:
            return gradient
        with _disable_current_modes():
            return gradient - self.weights * self.off.to(gradient.dtype)


def _scores(rounding: Rounding, q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor, scale: float) -> torch.Tensor:
    products = _product(rounding, q, k.mT) * scale
    return rounding.to(rounding.to(products, torch.float32) + bias, torch.float32)


def _product(rounding: Rounding, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Its sums in any order, in float32."""
    return rounding.jitter(a, UNIT * math.sqrt(max(1.0, a.shape[-1] / 2))) @ b


class _Attention(torch.autograd.Function):
    """The backward makes the scores anew, and takes the rows' sums from the rounded result, as `RowSums` says."""

    @staticmethod
    def forward(ctx: Any, rounding: Rounding, dtype: torch.dtype, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                bias: torch.Tensor, scale: float) -> torch.Tensor:  # fmt: skip
        with _disable_current_modes():
            scores = _scores(rounding, q, k, bias, scale)
            most = scores.amax(-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)
            weights = rounding.to((scores - most).exp(), torch.float32)
            total = weights.sum(-1, keepdim=True)
            result = _product(rounding, rounding.to(weights, dtype), v) / total
            result = rounding.to(torch.where(total == 0, 0.0, result), dtype)
            ctx.save_for_backward(q, k, v, bias, result, rounding.to(most + total.log(), torch.float32))
        ctx.rounding, ctx.dtype, ctx.scale = rounding, dtype, scale
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, bias, result, lse = ctx.saved_tensors
        rounding, dtype, scale = ctx.rounding, ctx.dtype, ctx.scale
        with _disable_current_modes():
            weights = (_scores(rounding, q, k, bias, scale) - lse).exp().nan_to_num(0.0, 0.0, 0.0)
            given = rounding.to(_product(rounding, gradient, v.mT), torch.float32)
            mean = rounding.to(
                _product(rounding, gradient.unsqueeze(-2), result.unsqueeze(-1)).squeeze(-1), torch.float32
            )
            of_scores = weights * (given - mean)
            taken = rounding.to(of_scores, dtype)
            dq = rounding.to(_product(rounding, taken, k) * scale, dtype)
            dk = rounding.to(_product(rounding, taken.mT, q) * scale, dtype)
            dv = rounding.to(_product(rounding, rounding.to(weights, dtype).mT, gradient), dtype)
            db = of_scores.sum_to_size(bias.shape) if ctx.needs_input_grad[5] else None
            shaped = (dq.sum_to_size(q.shape), dk.sum_to_size(k.shape), dv.sum_to_size(v.shape))
        return (None, None, *shaped, db, None)
