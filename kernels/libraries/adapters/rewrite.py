"""Rewrites of the aten graph: what a match covers becomes the library's call, everything round it keeps running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.fx
import torch.nn.functional as F

from kernels.libraries.adapters.editor import Editor, Maker, attention_operands, heads_of, operand, vector
from kernels.libraries.adapters.packages import PACKAGES
from kernels.libraries.adapters.pytorch import TORCH
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match
from profiler.region.graph.scores.functions import tensors_of


def adapt(graph: Graph, matches: Sequence[Match], adapter: str) -> torch.fx.GraphModule:
    """The graph's module with every one of `matches` replaced by the library call of `adapter`.

    Raises Unsupported where the call cannot take a match's operands, KeyError for an unknown adapter.
    """
    maker = ADAPTERS[adapter]
    editor = Editor(graph)
    for match in matches:
        editor.replace(match, maker)
    return editor.done()


def _rms_norm(e: Editor, match: Match) -> torch.fx.Node:
    x, weight, eps = operand(e, match), e.node(match.roles.get("weight")), match.roles["eps"]
    width = x.meta["val"].shape[-1]
    if weight is not None:
        weight = vector(e, e.cast(weight, x.meta["val"].dtype))
    return e.call(F.rms_norm, x, (width,), weight, eps, like=x)


def _layer_norm(e: Editor, match: Match) -> torch.fx.Node:
    x = operand(e, match)
    width = x.meta["val"].shape[-1]
    weight, bias = (e.node(match.roles.get(k)) for k in ("weight", "bias"))
    weight, bias = (None if p is None else vector(e, e.cast(p, x.meta["val"].dtype)) for p in (weight, bias))
    return e.call(F.layer_norm, x, (width,), weight, bias, match.roles["eps"], like=x)


def _softmax(e: Editor, match: Match) -> torch.fx.Node:
    x, wanted = e.need(match.roles["x"]), e.nodes[match.output].meta["val"].dtype
    if wanted.itemsize > x.meta["val"].dtype.itemsize:
        return e.call(torch.softmax, x, match.roles["dim"], dtype=wanted)
    return e.call(torch.softmax, x, match.roles["dim"], like=x)


def _gelu_tanh(e: Editor, match: Match) -> torch.fx.Node:
    x = operand(e, match)
    return e.call(F.gelu, x, approximate="tanh", like=x)


def _attention(e: Editor, match: Match) -> torch.fx.Node:
    roles = match.roles
    heads, mask = attention_operands(e, match)
    more = {"enable_gqa": True} if heads.grouped else {}
    made = e.call(
        F.scaled_dot_product_attention, heads.q, heads.k, heads.v, attn_mask=mask,
        dropout_p=roles.get("dropout") or 0.0, is_causal=bool(roles.get("causal")), scale=roles.get("scale"),
        like=heads.q, **more,
    )  # fmt: skip
    made.meta["val"] = heads.result()
    return made


def _flex_attention(e: Editor, match: Match) -> torch.fx.Node:
    from kernels.libraries.adapters.flex import flex_attention

    roles, heads = match.roles, heads_of(e, match)
    tensors = [_without_ones(e, e.need(roles[name])) for name in tensors_of(match)]
    score, keep = str(roles["score"]), str(roles["keep"])
    by, fixed = (bool(roles["by_batch"]), bool(roles["by_head"])), keep == roles["positions"]
    made = e.call(
        flex_attention, heads.q, heads.k, heads.v, tensors, score, keep, roles["scale"], by, fixed, like=heads.q
    )  # fmt: skip
    made.meta["val"] = heads.result()
    return made


def _without_ones(e: Editor, node: torch.fx.Node) -> torch.fx.Node:
    """Without axes of one element: the code has no index for them."""
    shape = tuple(node.meta["val"].shape)
    long = tuple(size for size in shape if size > 1)
    return node if long == shape else e.call(torch.reshape, node, long)


def _addmm_activation(e: Editor, match: Match) -> torch.fx.Node:
    bias, a, b = (e.need(match.roles[k]) for k in ("bias", "a", "b"))
    use_gelu = bool(match.roles["use_gelu"])
    return e.call(torch.ops.aten._addmm_activation.default, bias, a, b, use_gelu=use_gelu)


def _triton_softmax(e: Editor, match: Match) -> torch.fx.Node:
    from kernels.ops.trained import softmax

    x = e.need(match.roles["x"])
    return e.call(softmax, x, like=x)


def _triton_rms_norm(e: Editor, match: Match) -> torch.fx.Node:
    from kernels.ops.trained import rms_norm

    x, weight = e.need(match.roles["x"]), e.node(match.roles.get("weight"))
    return e.call(rms_norm, x, weight, match.roles["eps"], like=x)


def _triton_layer_norm(e: Editor, match: Match) -> torch.fx.Node:
    from kernels.ops.trained import layer_norm

    x = e.need(match.roles["x"])
    weight, bias = (e.node(match.roles.get(name)) for name in ("weight", "bias"))
    return e.call(layer_norm, x, weight, bias, match.roles["eps"], like=x)


def _triton_gated_activation(e: Editor, match: Match) -> torch.fx.Node:
    from kernels.ops.trained import gated_activation

    a, b = e.need(match.roles["a"]), e.need(match.roles["b"])
    return e.call(gated_activation, a, b, match.roles["activation"], like=a)


def _triton_matmul_epilogue(e: Editor, match: Match) -> torch.fx.Node:
    from kernels.ops.matmul.matmul_epilogue import matmul_epilogue

    a, b = e.need(match.roles["a"]), e.need(match.roles["b"])
    result = a.meta["val"].new_empty((a.meta["val"].shape[0], b.meta["val"].shape[1]))
    full = tuple(result.shape)
    bias, mask, residual = (e.node(match.roles.get(name)) for name in ("bias", "mask", "residual"))
    mask, residual = (
        x if x is None or tuple(x.meta["val"].shape) == full else e.call(torch.reshape, x, full)
        for x in (mask, residual)
    )
    made = e.call(matmul_epilogue, a, b, bias, match.roles["activation"], mask, residual, like=a)
    made.meta["val"] = result
    return made


def _triton_causal_conv1d(e: Editor, match: Match) -> torch.fx.Node:
    from kernels.ops.trained import causal_conv1d

    x, weight, bias = e.need(match.roles["x"]), e.need(match.roles["weight"]), e.node(match.roles.get("bias"))
    taps = e.call(torch.squeeze, weight, 1)
    return e.call(causal_conv1d, x, taps, bias, match.roles["activation"], like=x)


def _triton_flash_attention(e: Editor, match: Match) -> torch.fx.Node:
    from kernels.ops.trained import flash_attention

    heads, mask = heads_of(e, match), e.node(match.roles.get("mask"))
    if mask is not None:
        kind, dtype = match.roles.get("mask_kind"), heads.q.meta["val"].dtype
        if kind == "drop":
            mask = e.call(torch.logical_not, mask)
        elif kind == "keep":
            mask = e.cast(mask, torch.bool)
        elif mask.meta["val"].dtype not in (torch.bool, torch.float32):
            mask = e.cast(mask, dtype)
    causal, scale = bool(match.roles.get("causal")), match.roles.get("scale")
    made = e.call(flash_attention, heads.q, heads.k, heads.v, mask, causal, None, None, scale, like=heads.q)
    made.meta["val"] = heads.result()
    return made


def _triton_banded_attention(e: Editor, match: Match) -> torch.fx.Node:
    from kernels.ops.trained import flash_attention

    heads, roles = heads_of(e, match), match.roles
    settings = (roles["causal"], roles["window"], roles["cap"], roles["scale"])
    made = e.call(flash_attention, heads.q, heads.k, heads.v, None, *settings, like=heads.q)
    made.meta["val"] = heads.result()
    return made


ADAPTERS: Mapping[str, Maker] = {
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "gelu_tanh": _gelu_tanh,
    "attention": _attention,
    "flex_attention": _flex_attention,
    "addmm_activation": _addmm_activation,
    **TORCH,
    **PACKAGES,
    "triton:softmax": _triton_softmax,
    "triton:rms_norm": _triton_rms_norm,
    "triton:layer_norm": _triton_layer_norm,
    "triton:gated_activation": _triton_gated_activation,
    "triton:matmul_epilogue": _triton_matmul_epilogue,
    "triton:flash_attention": _triton_flash_attention,
    "triton:banded_attention": _triton_banded_attention,
    "triton:causal_conv1d": _triton_causal_conv1d,
}
