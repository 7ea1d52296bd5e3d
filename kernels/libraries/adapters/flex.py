"""FlexAttention with the functions that a region's graph gave: `score_mod` and `mask_mod` as code, and what they read.

A block mask of positions alone is made once in a process. One that reads tensors is made again in every call, by a
compiled create_block_mask, because nobody knows here that they stay the same; a model would make it once a step.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from profiler.region.graph.scores.masks import MASK_MOD, SCORE_MOD, Modifier, function

Tensor = torch.Tensor
_COUNT = itertools.count()


@dataclass(frozen=True, slots=True)
class Masked:
    """A block mask's function and sizes. code: of `mask_mod`; batch, heads: None where one mask is for all of them."""

    code: str
    batch: int | None
    heads: int | None
    rows: int
    columns: int


def flex_attention(
    q: Tensor, k: Tensor, v: Tensor, tensors: Sequence[Tensor], score: str, keep: str, scale: float,
    by: tuple[bool, bool], fixed: bool,
) -> Tensor:  # fmt: skip
    """Attention for q of [B, H, T, D] and k, v of [B, G, S, D], H a multiple of G.

    score, keep: code of `score_mod` and of `mask_mod`, "" for none, which call the tensors tensor0, tensor1, ...; by:
    whether the mask tells batches, and heads, from each other. fixed: it is of positions alone.
    Compiled on a GPU, where it is one fused kernel. Elsewhere torch's unfused reference, which has no backward: where
    gradients are asked for, the same functions over all scores at once.
    """
    names = tuple(f"tensor{i}" for i in range(len(tensors)))
    score_mod = function(SCORE_MOD, score, names)(*tensors) if score else None
    mask_mod = function(MASK_MOD, keep, names)(*tensors) if keep else None
    asked = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v, *tensors))
    if not q.is_cuda and (asked or q.dtype == torch.float64):
        return unfused(q, k, v, score_mod, mask_mod, scale)
    blocks = None
    if mask_mod is not None:
        sizes = (q.shape[0] if by[0] else None, q.shape[1] if by[1] else None, q.shape[-2], k.shape[-2])
        masked = Masked(keep, *sizes)
        blocks = _kept_blocks(masked, str(q.device)) if fixed else _blocks(mask_mod, masked, str(q.device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the unfused reference is slow: it is only compared with
        result: Tensor = _attend(score, keep, q.is_cuda)(
            q, k, v, score_mod=score_mod, block_mask=blocks, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
    return result


@functools.lru_cache(maxsize=256)
def _attend(score: str, keep: str, compiled: bool) -> Callable[..., Any]:
    """FlexAttention for these functions alone."""
    from torch.nn.attention.flex_attention import flex_attention as flex

    def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        return flex(q, k, v, **options)

    return torch.compile(_own(attend), dynamic=False) if compiled else attend


@functools.lru_cache(maxsize=256)
def _maker(masked: Masked, compiled: bool) -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import create_block_mask

    def make(*sizes: Any, **options: Any) -> Any:
        return create_block_mask(*sizes, **options)

    return torch.compile(_own(make), dynamic=False) if compiled else make


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same with code of its own. Dynamo counts by code: at the ninth of one code's variants (recompile_limit, 8) it
    gives up, and runs all further ones unfused.
    """
    assert isinstance(function, FunctionType)
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_COUNT)}")
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


def _blocks(mask_mod: Modifier, masked: Masked, device: str) -> Any:
    make = _maker(masked, device.startswith("cuda"))
    return make(mask_mod, masked.batch, masked.heads, masked.rows, masked.columns, device=device)


@functools.lru_cache(maxsize=64)
def _kept_blocks(masked: Masked, device: str) -> Any:
    """Of positions alone: it does not change."""
    return _blocks(function(MASK_MOD, masked.code, ())(), masked, device)


def unfused(
    q: Tensor, k: Tensor, v: Tensor, score_mod: Modifier | None, mask_mod: Modifier | None, scale: float
) -> Tensor:
    """The same with every score stored: what FlexAttention says it computes, in torch's plain operations."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    each = q.shape[1] // k.shape[1]
    keys, values = (t.repeat_interleave(each, 1).to(wide) for t in (k, v))
    sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    at = [torch.arange(n, device=q.device).view(-1, *(1,) * (3 - i)) for i, n in enumerate(sizes)]
    scores = (q.to(wide) @ keys.transpose(-1, -2)) * scale
    if score_mod is not None:
        scores = score_mod(scores, *at)
    if mask_mod is not None:
        scores = scores.masked_fill(~mask_mod(*at), float("-inf"))
    some = (scores > float("-inf")).any(-1, keepdim=True)
    weights = torch.softmax(torch.where(some, scores, 0.0), -1)  # a row that is hidden as a whole gives 0
    result: Tensor = (torch.where(some, weights, 0.0) @ values).to(q.dtype)
    return result
