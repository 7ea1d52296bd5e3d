"""FlexAttention for attention written by hand: bias and masks as a score_mod, causal as a block mask."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch


def flex_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, kind: str | None, causal: bool,
    scale: float | None, grouped: bool,
) -> torch.Tensor:  # fmt: skip
    """softmax(q @ kᵀ · scale, masked) @ v for q, k, v of [B, H, T, D]; a scale of None is 1 / √D.

    mask broadcasts to [B, H, T, S]; kind says what it is: "additive", "keep" (true stays) or "drop" (true goes).
    Compiled on a GPU, where it is one fused kernel; the unfused reference elsewhere.
    """
    from torch.nn.attention.flex_attention import create_block_mask
    from torch.nn.attention.flex_attention import flex_attention as flex

    blocks = None
    if causal:
        blocks = create_block_mask(_is_past, None, None, q.shape[-2], k.shape[-2], device=str(q.device))
    call: Any = _compiled() if q.is_cuda else flex
    modifier = None if mask is None else _score_mod(mask, str(kind))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the unfused reference is slow: it is only compared with
        result: torch.Tensor = call(q, k, v, score_mod=modifier, block_mask=blocks, scale=scale, enable_gqa=grouped)
    return result


@functools.cache
def _compiled() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention as flex

    return torch.compile(flex, dynamic=False)


def _is_past(b: Any, h: Any, query: Any, key: Any) -> Any:
    return query >= key


def _score_mod(mask: torch.Tensor, kind: str) -> Callable[..., torch.Tensor]:
    """The mask read at a position; dimensions of size 1 are read at 0."""
    full = mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))
    wide = [size > 1 for size in full.shape]

    def at(b: Any, h: Any, query: Any, key: Any) -> torch.Tensor:
        zero = torch.zeros_like(b)
        places = [i if w else zero for i, w in zip((b, h, query, key), wide, strict=True)]
        return full[places[0], places[1], places[2], places[3]]

    def additive(score: torch.Tensor, b: Any, h: Any, query: Any, key: Any) -> torch.Tensor:
        return score + at(b, h, query, key)

    def keep(score: torch.Tensor, b: Any, h: Any, query: Any, key: Any) -> torch.Tensor:
        return torch.where(at(b, h, query, key), score, float("-inf"))

    def drop(score: torch.Tensor, b: Any, h: Any, query: Any, key: Any) -> torch.Tensor:
        return torch.where(at(b, h, query, key), float("-inf"), score)

    return {"additive": additive, "keep": keep, "drop": drop}[kind]
