"""Attention as plain functions: softmax(q @ kᵀ · scale), masked, biased, capped, dropped, times v."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite

import torch
from torch import Tensor
from torch.fx import Node

from profiler.region.graph.canonical.identities import negated
from profiler.region.graph.canonical.pattern import Binding, Given, Number, Pattern, Roles
from profiler.region.graph.canonical.values import Table, Value, as_total
from profiler.region.graph.match_model import Role
from profiler.region.graph.nodes import value

HEADS, MASK, BIAS = Given((2, 3, 5, 8)), Given((5, 6), torch.bool), Given((3, 5, 6))
KEYS = Given((2, 3, 6, 8))


def _scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return q @ k.transpose(-1, -2) * scale


def _attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return torch.softmax(_scores(q, k, scale), -1) @ v


def _masked_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor) -> Tensor:
    return torch.softmax(_scores(q, k, scale).masked_fill(~mask, -inf), -1) @ v


def _biased_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor) -> Tensor:
    return torch.softmax(_scores(q, k, scale) + bias, -1) @ v


def _masked_biased_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor, bias: Tensor) -> Tensor:
    return torch.softmax((_scores(q, k, scale) + bias).masked_fill(~mask, -inf), -1) @ v


def _dropped(shares: Tensor, rate: float) -> Tensor:
    dropped: Tensor = torch.ops.aten.native_dropout(shares, rate, True)[0]
    return dropped


def _dropped_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, rate: float) -> Tensor:
    return _dropped(torch.softmax(_scores(q, k, scale), -1), rate) @ v


def _dropped_masked_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor, rate: float) -> Tensor:
    return _dropped(torch.softmax(_scores(q, k, scale).masked_fill(~mask, -inf), -1), rate) @ v


def _dropped_biased_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor, rate: float) -> Tensor:
    return _dropped(torch.softmax(_scores(q, k, scale) + bias, -1), rate) @ v


def _capped_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, cap: float) -> Tensor:
    return torch.softmax(torch.tanh(_scores(q, k, scale)) * cap, -1) @ v


def _capped_masked_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, cap: float, mask: Tensor) -> Tensor:
    return torch.softmax((torch.tanh(_scores(q, k, scale)) * cap).masked_fill(~mask, -inf), -1) @ v


def _attention_roles(binding: Binding) -> Roles | None:
    """q, k and v with their heads, what hides scores and what is added to them.

    causal: scores of later columns are hidden, by a mask that is made of positions: an argument of the call says it.
    """
    q, k, v, scale = binding.value("q"), binding.value("k"), binding.value("v"), binding.number("scale")
    if not (scale > 0 and isfinite(scale)) or len({len(t.shape) for t in (q, k, v)}) != 1:
        return None
    turned = binding.values.table.turned(k)
    transposed = bool(k.nodes) or not turned.nodes  # else only k with rows as columns is there
    roles: dict[str, Value | Node | Role] = {
        "scale": scale, "mask": None, "mask_kind": None, "causal": False,
        "dropout": binding.number("rate") if "rate" in binding.bound else 0.0,
        "q": q, "k": k if transposed else turned, "v": v, "k_transposed": transposed,
    }  # fmt: skip
    if "cap" in binding.bound:  # cap * tanh(scores / cap)
        roles |= {"cap": binding.number("cap"), "scale": scale * binding.number("cap")}
    mask = _mask(binding)
    return None if mask is None else {**roles, **mask}


def _mask(binding: Binding) -> Roles | None:
    """mask, mask_kind and causal; None for two masks that no node puts together."""
    keep, bias = binding.bound.get("mask"), binding.bound.get("bias")
    roles: Roles = {}
    if isinstance(keep, Value):
        parts = keep.args if keep.op == "all_of" and not keep.nodes else (keep,)
        others = [p for p in parts if not is_causal(p, binding.values.table)]
        roles = {"causal": len(others) < len(parts)}
        if others:
            shown = _shown_mask(others[0], binding) if len(others) == 1 and bias is None else None
            return None if shown is None else {**roles, **shown}
    return roles if bias is None else {**roles, "mask": bias, "mask_kind": "additive"}


def _shown_mask(keep: Value, binding: Binding) -> Roles | None:
    """The mask as some node has it: what is added, what is kept, or what is dropped.

    What is added comes first: by a finite number a row that is wholly hidden becomes the mean of v, where SDPA makes 0
    of it by a mask of truths.
    """
    table = binding.values.table
    added = table.make("added_mask", (keep,), (), keep.shape)
    if added.nodes:
        return {"mask": added, "mask_kind": "additive"}
    inner = keep.args[0] if keep.op == "reshape" else keep
    for mask, kind in ((keep, "keep"), (negated(table, keep), "drop"), (inner, "keep")):
        node = next((n for n in mask.nodes if value(n).dtype == torch.bool), None)
        if node is not None:
            return {"mask": node, "mask_kind": kind}
    return None


def is_causal(keep: Value, table: Table) -> bool:
    """Row >= column."""
    if keep.op != "nonnegative":
        return False
    difference = as_total(keep.args[0], table)
    places = {(t.op, t.attrs[:1]): c for t, c in difference.coefficients.items()}
    return difference.constant == 0 and places == {("iota", (-2,)): 1.0, ("iota", (-1,)): -1.0}


_QKV: dict[str, Given | Number] = {"q": HEADS, "k": KEYS, "v": KEYS, "scale": Number()}


_MORE: dict[Callable[..., Tensor], dict[str, Given | Number]] = {
    _attention: {},
    _masked_attention: {"mask": MASK},
    _biased_attention: {"bias": BIAS},
    _masked_biased_attention: {"mask": MASK, "bias": BIAS},
    _dropped_attention: {"rate": Number()},
    _dropped_masked_attention: {"mask": MASK, "rate": Number()},
    _dropped_biased_attention: {"bias": BIAS, "rate": Number()},
}
_CAPPED: dict[Callable[..., Tensor], dict[str, Given | Number]] = {
    _capped_attention: {"cap": Number()},
    _capped_masked_attention: {"cap": Number(), "mask": MASK},
}
ATTENTIONS: tuple[Pattern, ...] = tuple(
    Pattern(kind, title, (function,), {**_QKV, **given}, _attention_roles, through_views=True)
    for kind, title, functions in (
        ("attention", "attention by hand", _MORE),
        ("capped_attention", "attention with a soft cap by hand", _CAPPED),
    )
    for function, given in functions.items()
)
