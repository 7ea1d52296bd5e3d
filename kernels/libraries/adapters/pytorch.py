"""Rewrites to torch's own calls, attention and the plain norms excepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from kernels.codegen.index import Unsupported
from kernels.libraries.adapters.editor import Editor, Maker, attention_operands, operand, vector
from kernels.libraries.calls import pytorch
from profiler.region.graph.match_model import Match


def linear_operands(e: Editor, match: Match) -> tuple[Any, ...]:
    """(x, weight of [classes, width], target, reduction, ignore_index) of a linear layer and its loss."""
    weight = e.call(torch.transpose, e.need(match.roles["b"]), 0, 1)
    options = (match.roles.get("reduction", "mean"), match.roles.get("ignore_index", -100))
    return (e.need(match.roles["a"]), weight, e.need(match.roles["target"]), *options)


def of_loss(function: Callable[..., Any]) -> Maker:
    """A call that takes a linear layer's operands and gives its loss, in x's dtype."""

    def maker(e: Editor, match: Match) -> torch.fx.Node:
        taken = linear_operands(e, match)
        made = e.call(function, *taken, like=taken[0])
        rows = taken[2].meta["val"].shape if match.roles.get("reduction") == "none" else ()
        made.meta["val"] = taken[0].meta["val"].new_empty(rows)
        return made

    return maker


def sdpa(function: Callable[..., Any], repeats: Sequence[torch.dtype] = ()) -> Maker:
    """One backend of SDPA, with the operands that SDPA has. repeats: Entry.repeats."""

    def maker(e: Editor, match: Match) -> torch.fx.Node:
        heads, mask = attention_operands(e, match, repeats)
        causal, scale = bool(match.roles.get("causal")), match.roles.get("scale")
        if match.roles.get("dropout"):
            raise Unsupported("dropout is not passed on to one backend")
        made = e.call(function, heads.q, heads.k, heads.v, mask, causal, scale, heads.grouped, like=heads.q)
        made.meta["val"] = heads.result()
        return made

    return maker


def channel_operands(e: Editor, match: Match) -> tuple[torch.fx.Node, torch.fx.Node, torch.fx.Node]:
    """(x, weight, bias) of a norm by channels, the last two as vectors of x's dtype."""
    x = operand(e, match)
    vectors = (e.need(match.roles[r]) for r in ("weight", "bias"))
    weight, bias = (vector(e, e.cast(p, x.meta["val"].dtype)) for p in vectors)
    return x, weight, bias


def groups_of(match: Match) -> Any:
    """How many groups: by hand, or by the call's own name for it."""
    return match.roles.get("num_groups", match.roles.get("group"))


def _group_norm(e: Editor, match: Match) -> torch.fx.Node:
    x, weight, bias = channel_operands(e, match)
    return e.call(F.group_norm, x, groups_of(match), weight, bias, match.roles["eps"], like=x)


def _batch_norm(e: Editor, match: Match) -> torch.fx.Node:
    x, weight, bias = channel_operands(e, match)
    return e.call(F.batch_norm, x, None, None, weight, bias, True, 0.0, match.roles["eps"], like=x)


def _cross_entropy(e: Editor, match: Match) -> torch.fx.Node:
    x, target = e.need(match.roles["x"]), e.need(match.roles["target"])
    made = e.call(F.cross_entropy, x, target, ignore_index=match.roles.get("ignore_index", -100),
                  reduction=match.roles.get("reduction", "mean"), like=x)  # fmt: skip
    rows = target.meta["val"].shape if match.roles.get("reduction") == "none" else ()
    made.meta["val"] = x.meta["val"].new_empty(rows)
    return made


def _grouped_mm(e: Editor, match: Match) -> torch.fx.Node:
    x, weight = e.need(match.roles["x"]), e.need(match.roles["weight"])
    made = e.call(pytorch.grouped_mm, x, weight, match.roles["rows"], like=x)
    made.meta["val"] = x.meta["val"].new_empty((x.meta["val"].shape[0], weight.meta["val"].shape[-1]))
    return made


def _product(e: Editor, match: Match) -> tuple[torch.fx.Node, torch.fx.Node, tuple[int, int]]:
    """(a, b of [K, N], the result's shape)."""
    a, b = e.need(match.roles["a"]), e.need(match.roles["b"])
    if match.roles.get("b_turned"):
        b = e.call(torch.transpose, b, 0, 1)
    return a, b, (a.meta["val"].shape[0], b.meta["val"].shape[1])


def _scaled_mm(e: Editor, match: Match) -> torch.fx.Node:
    a, b, full = _product(e, match)
    scales = (e.cast(e.need(match.roles[r]), torch.float32) for r in ("scale_a", "scale_b"))
    made = e.call(pytorch.scaled_mm, a, b, *scales, like=a)
    made.meta["val"] = a.meta["val"].new_empty(full, dtype=torch.bfloat16)
    return made


def _int_mm(e: Editor, match: Match) -> torch.fx.Node:
    a, b, full = _product(e, match)
    made = e.call(torch._int_mm, a, b, like=a)
    made.meta["val"] = a.meta["val"].new_empty(full, dtype=torch.int32)
    return made


TORCH: Mapping[str, Maker] = {
    "sdpa_flash": sdpa(pytorch.sdpa_flash),
    "sdpa_cudnn": sdpa(pytorch.sdpa_cudnn),
    "sdpa_efficient": sdpa(pytorch.sdpa_efficient, (torch.float32, torch.bfloat16, torch.float16)),
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "cross_entropy": _cross_entropy,
    "linear_cross_entropy": of_loss(pytorch.linear_cross_entropy),
    "grouped_mm": _grouped_mm,
    "scaled_mm": _scaled_mm,
    "int_mm": _int_mm,
}
