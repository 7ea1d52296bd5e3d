"""Rewrites of the aten graph: what a match covers becomes the library's call, everything round it keeps running."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from kernels.codegen.index import Unsupported
from profiler.region.graph import Graph
from profiler.region.patterns import Match

Maker = Callable[["_Editor", Match], torch.fx.Node]


def adapt(graph: Graph, matches: Sequence[Match], adapter: str) -> torch.fx.GraphModule:
    """The graph's module with every one of `matches` replaced by the library call of `adapter`.

    Raises Unsupported where the call cannot take a match's operands, KeyError for an unknown adapter.
    """
    maker = ADAPTERS[adapter]
    editor = _Editor(graph)
    for match in matches:
        editor.replace(match, maker)
    return editor.done()


class _Editor:
    """A copy of the graph in which operations are replaced."""

    def __init__(self, graph: Graph) -> None:
        self.module = copy.deepcopy(graph.module)
        self.graph = self.module.graph
        self.nodes = {n.name: n for n in self.graph.nodes}
        holders = [n for n in self.graph.nodes if n.op == "placeholder"]
        self.nodes |= {name: node for (name, _), node in zip(graph.inputs, holders, strict=True)}

    def node(self, role: Any) -> torch.fx.Node | None:
        """The node that a role names; None where the role is empty."""
        return None if role is None else self.nodes[role]

    def need(self, role: Any) -> torch.fx.Node:
        found = self.node(role)
        if found is None:
            raise Unsupported("a role of the match is empty")
        return found

    def call(
        self, function: Callable[..., Any], *args: Any, like: torch.fx.Node | None = None, **kwargs: Any
    ) -> torch.fx.Node:
        """A call whose result is shaped like `like` (by default like what the function gives on the fakes)."""
        node = self.graph.call_function(function, args, kwargs)
        if like is not None:
            node.meta["val"] = like.meta["val"]
        else:
            values = torch.fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
            with torch.no_grad():
                node.meta["val"] = function(*values[0], **values[1])
        return node

    def cast(self, node: torch.fx.Node, dtype: torch.dtype) -> torch.fx.Node:
        if node.meta["val"].dtype == dtype:
            return node
        return self.call(torch.ops.aten._to_copy.default, node, dtype=dtype)

    def replace(self, match: Match, maker: Maker) -> None:
        """Put the library call in the place of the match's output, in its dtype and shape."""
        output = self.nodes[match.output]
        wanted = output.meta["val"]
        with self.graph.inserting_before(output):
            made = maker(self, match)
            made = self.cast(made, wanted.dtype)
            if tuple(made.meta["val"].shape) != tuple(wanted.shape):
                if made.meta["val"].numel() != wanted.numel():
                    raise Unsupported(f"the call gives {tuple(made.meta['val'].shape)}, not {tuple(wanted.shape)}")
                made = self.call(torch.reshape, made, tuple(wanted.shape))
        output.replace_all_uses_with(made)

    def done(self) -> torch.fx.GraphModule:
        self.graph.eliminate_dead_code()
        self.graph.lint()
        self.module.recompile()
        return self.module


def _rms_norm(e: _Editor, match: Match) -> torch.fx.Node:
    x, weight, eps = _operand(e, match), e.node(match.roles.get("weight")), match.roles["eps"]
    width = x.meta["val"].shape[-1]
    if weight is not None:
        weight = _vector(e, e.cast(weight, x.meta["val"].dtype))
    return e.call(F.rms_norm, x, (width,), weight, eps, like=x)


def _layer_norm(e: _Editor, match: Match) -> torch.fx.Node:
    x = _operand(e, match)
    width = x.meta["val"].shape[-1]
    weight, bias = (e.node(match.roles.get(k)) for k in ("weight", "bias"))
    weight, bias = (None if p is None else _vector(e, e.cast(p, x.meta["val"].dtype)) for p in (weight, bias))
    return e.call(F.layer_norm, x, (width,), weight, bias, match.roles["eps"], like=x)


def _operand(e: _Editor, match: Match) -> torch.fx.Node:
    """x, in the wider of its own and the result's dtype: an f32 result of a bf16 row is stored in f32."""
    x = e.need(match.roles["x"])
    wanted = e.nodes[match.output].meta["val"].dtype
    own = x.meta["val"].dtype
    return e.cast(x, torch.promote_types(own, wanted))


def _vector(e: _Editor, node: torch.fx.Node) -> torch.fx.Node:
    """[1, N] as [N]."""
    value = node.meta["val"]
    return node if value.dim() == 1 else e.call(torch.reshape, node, (value.numel(),))


def _softmax(e: _Editor, match: Match) -> torch.fx.Node:
    x = _operand(e, match)
    return e.call(torch.softmax, x, match.roles["dim"], like=x)


def _gelu_tanh(e: _Editor, match: Match) -> torch.fx.Node:
    x = _operand(e, match)
    return e.call(F.gelu, x, approximate="tanh", like=x)


@dataclass(frozen=True, slots=True)
class _Heads:
    """Operands of an attention call. grouped: fewer heads of k and v than of q."""

    q: torch.fx.Node
    k: torch.fx.Node
    v: torch.fx.Node
    grouped: bool

    def result(self) -> torch.Tensor:
        """A fake of the call's result."""
        q, v = self.q.meta["val"], self.v.meta["val"]
        made: torch.Tensor = q.new_empty((*q.shape[:-1], v.shape[-1]))
        return made


def _heads(e: _Editor, match: Match) -> _Heads:
    roles = match.roles
    q, k, v = (e.need(roles[name]) for name in ("q", "k", "v"))
    if not roles.get("k_transposed", True):
        k = e.call(torch.transpose, k, -2, -1)
    dtype = q.meta["val"].dtype
    if any(n.meta["val"].dtype != dtype for n in (k, v)):
        raise Unsupported("q, k and v of different dtypes")
    shapes = [tuple(n.meta["val"].shape) for n in (q, k, v)]
    ranks = {len(s) for s in shapes}
    if len(ranks) != 1 or shapes[0][-1] != shapes[1][-1] or shapes[1][-2] != shapes[2][-2]:
        raise Unsupported(f"q, k and v of shapes {shapes}")
    grouped = shapes[0][:-2] != shapes[1][:-2]
    if grouped and (
        shapes[0][:-3] != shapes[1][:-3] or shapes[1][:-2] != shapes[2][:-2] or shapes[0][-3] % shapes[1][-3]
    ):
        raise Unsupported(f"q, k and v of shapes {shapes}")
    return _Heads(q, k, v, grouped)


def _attention(e: _Editor, match: Match) -> torch.fx.Node:
    roles, heads = match.roles, _heads(e, match)
    mask = e.node(roles.get("mask"))
    if mask is not None:
        value = mask.meta["val"]
        if roles.get("mask_kind") == "drop":
            mask = e.call(torch.logical_not, mask)
        elif roles.get("mask_kind") == "keep":
            mask = e.cast(mask, torch.bool)
        elif value.dtype != torch.bool:
            mask = e.cast(mask, heads.q.meta["val"].dtype)
        else:
            raise Unsupported("a boolean mask that is added")
        if len(heads.q.meta["val"].shape) == 4 and value.dim() == 3:
            # torch's cuDNN backend takes masks of two or four dimensions: see covering._mask_as_passed
            mask = e.call(torch.reshape, mask, (1, *value.shape))
    more: dict[str, Any] = {"enable_gqa": True} if heads.grouped else {}
    made = e.call(
        F.scaled_dot_product_attention, heads.q, heads.k, heads.v, attn_mask=mask,
        dropout_p=float(roles.get("dropout") or 0.0), is_causal=bool(roles.get("causal")), scale=float(roles["scale"]),
        like=heads.q, **more,
    )  # fmt: skip
    made.meta["val"] = heads.result()
    return made


def _flex_attention(e: _Editor, match: Match) -> torch.fx.Node:
    from kernels.libraries.flex import flex_attention

    roles, heads = match.roles, _heads(e, match)
    if len(heads.q.meta["val"].shape) != 4:
        raise Unsupported("FlexAttention takes [batch, heads, time, dimension]")
    if roles.get("dropout"):
        raise Unsupported("FlexAttention has no dropout")
    made = e.call(
        flex_attention, heads.q, heads.k, heads.v, e.node(roles.get("mask")), roles.get("mask_kind"),
        bool(roles.get("causal")), float(roles["scale"]), heads.grouped, like=heads.q,
    )  # fmt: skip
    made.meta["val"] = heads.result()
    return made


def _addmm_activation(e: _Editor, match: Match) -> torch.fx.Node:
    bias, a, b = (e.need(match.roles[k]) for k in ("bias", "a", "b"))
    use_gelu = bool(match.roles["use_gelu"])
    return e.call(torch.ops.aten._addmm_activation.default, bias, a, b, use_gelu=use_gelu)


def _triton_softmax(e: _Editor, match: Match) -> torch.fx.Node:
    from kernels.softmax import softmax

    x = e.need(match.roles["x"])
    return e.call(softmax, x, like=x)


def _triton_rms_norm(e: _Editor, match: Match) -> torch.fx.Node:
    from kernels.rms_norm import rms_norm

    x, weight, eps = e.need(match.roles["x"]), e.node(match.roles.get("weight")), match.roles["eps"]
    if eps is None:
        eps = torch.finfo(x.meta["val"].dtype).eps
    return e.call(rms_norm, x, weight, eps, like=x)


def _triton_layer_norm(e: _Editor, match: Match) -> torch.fx.Node:
    from kernels.layer_norm import layer_norm

    x = e.need(match.roles["x"])
    weight, bias = (e.node(match.roles.get(name)) for name in ("weight", "bias"))
    return e.call(layer_norm, x, weight, bias, match.roles["eps"], like=x)


def _triton_gated_activation(e: _Editor, match: Match) -> torch.fx.Node:
    from kernels.gated_activation import gated_activation

    a, b = e.need(match.roles["a"]), e.need(match.roles["b"])
    return e.call(gated_activation, a, b, match.roles["activation"], like=a)


def _triton_matmul_epilogue(e: _Editor, match: Match) -> torch.fx.Node:
    from kernels.matmul_epilogue import matmul_epilogue

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


def _triton_flash_attention(e: _Editor, match: Match) -> torch.fx.Node:
    from kernels.flash_attention import flash_attention

    heads, mask = _heads(e, match), e.node(match.roles.get("mask"))
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


ADAPTERS: Mapping[str, Maker] = {
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "gelu_tanh": _gelu_tanh,
    "attention": _attention,
    "flex_attention": _flex_attention,
    "addmm_activation": _addmm_activation,
    "triton:softmax": _triton_softmax,
    "triton:rms_norm": _triton_rms_norm,
    "triton:layer_norm": _triton_layer_norm,
    "triton:gated_activation": _triton_gated_activation,
    "triton:matmul_epilogue": _triton_matmul_epilogue,
    "triton:flash_attention": _triton_flash_attention,
}
