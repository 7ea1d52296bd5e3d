"""Rewrites to other packages' calls: roles in the order in which `kernels.libraries.calls` takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx

from kernels.codegen.index import Unsupported
from kernels.libraries.adapters.editor import Editor, Maker, attention_operands, operand, vector
from kernels.libraries.adapters.pytorch import channel_operands, groups_of, of_loss, sdpa
from kernels.libraries.calls import flag_gems, flash, liger, quack, serving
from profiler.region.graph.match_model import Match

Function = Callable[..., Any]


def norm(function: Function, *, bias: bool = False, own_dtype: bool = False) -> Maker:
    """function(x, weight, [bias,] eps); weight and bias in x's dtype, or with own_dtype as they are."""

    def maker(e: Editor, match: Match) -> torch.fx.Node:
        x = operand(e, match)
        taken: list[Any] = []
        for name in ("weight", "bias") if bias else ("weight",):
            vector_node = e.node(match.roles.get(name))
            if vector_node is not None:
                vector_node = vector(e, vector_node if own_dtype else e.cast(vector_node, x.meta["val"].dtype))
            taken.append(vector_node)
        return e.call(function, x, *taken, match.roles["eps"], like=x)

    return maker


def add_norm(function: Function) -> Maker:
    """function(x, residual, weight, eps) -> (normalised, sum)."""

    def maker(e: Editor, match: Match) -> torch.fx.Node:
        x, residual = e.need(match.roles["x"]), e.need(match.roles["residual"])
        weight = e.cast(e.need(match.roles.get("weight")), x.meta["val"].dtype)
        both = e.call(function, x, residual, weight, match.roles["eps"], like=x)
        both.meta["val"] = (x.meta["val"], x.meta["val"])
        e.swap(match.roles["sum"], e.part(both, 1))
        return e.part(both, 0)

    return maker


def group_norm(function: Function) -> Maker:
    """function(x, weight, bias, groups, eps)."""

    def maker(e: Editor, match: Match) -> torch.fx.Node:
        x, weight, bias = channel_operands(e, match)
        return e.call(function, x, weight, bias, groups_of(match), match.roles["eps"], like=x)

    return maker


def gate(function: Function, *constants: str, overwrites: bool = False) -> Maker:
    """function(a, b, ...), a being what the activation takes; overwrites: told which of them it may not write over."""

    def maker(e: Editor, match: Match) -> torch.fx.Node:
        a, b = e.need(match.roles["a"]), e.need(match.roles["b"])
        rest: list[Any] = [match.roles[c] for c in constants]
        rest += [tuple(a is b or e.kept(x, match) for x in (a, b))] if overwrites else []
        return e.call(function, a, b, *rest, like=a)

    return maker


def softmax(function: Function, *, takes_dim: bool = False) -> Maker:
    """function(x), over the last dimension, or function(x, dim)."""

    def maker(e: Editor, match: Match) -> torch.fx.Node:
        x = operand(e, match)
        return e.call(function, x, *((match.roles["dim"],) if takes_dim else ()), like=x)

    return maker


def loss(function: Function, *, overwrites: bool = False, narrow: torch.dtype | None = None) -> Maker:
    """function(x, target, reduction, ignore_index), told where it overwrites whether x is read again.

    narrow: it is given logits as they are before the text widens them, and gives their loss in this dtype; None: it
    takes them as the text does.
    """

    def maker(e: Editor, match: Match) -> torch.fx.Node:
        as_given = narrow is not None and "narrow" in match.roles
        x, target = e.need(match.roles["narrow" if as_given else "x"]), e.need(match.roles["target"])
        reduction = match.roles.get("reduction", "mean")
        rest: list[Any] = [reduction, match.roles.get("ignore_index", -100)]
        rest += [e.kept(x, match)] if overwrites else []
        made = e.call(function, x, target, *rest, like=x)
        rows = target.meta["val"].shape if reduction == "none" else ()
        made.meta["val"] = x.meta["val"].new_empty(rows, dtype=narrow if as_given else x.meta["val"].dtype)
        return made

    return maker


def attention(function: Function) -> Maker:
    """function(q, k, v, causal, scale) without a mask; fewer heads of k and v are the function's own to repeat."""

    def maker(e: Editor, match: Match) -> torch.fx.Node:
        heads, mask = attention_operands(e, match)
        if mask is not None or match.roles.get("dropout"):
            raise Unsupported("FlashAttention takes no mask, and its dropout draws otherwise")
        scale = match.roles.get("scale")
        made = e.call(function, heads.q, heads.k, heads.v, bool(match.roles.get("causal")), scale, like=heads.q)
        made.meta["val"] = heads.result()
        return made

    return maker


def top_k(function: Function, index_dtype: torch.dtype) -> Maker:
    """function(x, k) -> (values, indices of index_dtype)."""

    def maker(e: Editor, match: Match) -> torch.fx.Node:
        x, k = e.need(match.roles["x"]), match.roles["k"]
        rank = x.meta["val"].dim()
        if match.roles.get("dim", -1) not in (-1, rank - 1) or match.roles.get("largest") is False:
            raise Unsupported("the largest along the last dimension only")
        made = e.call(function, x, k, like=x)
        values = x.meta["val"].new_empty((*x.meta["val"].shape[:-1], k))
        made.meta["val"] = (values, values.new_empty(values.shape, dtype=index_dtype))
        return made

    return maker


def _rope(e: Editor, match: Match) -> torch.fx.Node:
    x, cos, sin = (e.need(match.roles.get(r)) for r in ("x", "cos", "sin"))
    return e.call(liger.rope, x, cos, sin, like=x)


def _top_p(e: Editor, match: Match) -> torch.fx.Node:
    x = e.need(match.roles["x"])
    made = e.call(flash.top_p_sampling, x, match.roles["p"], like=x)
    made.meta["val"] = x.meta["val"].new_empty(x.meta["val"].shape[:1], dtype=torch.int32)
    return made


def _causal_conv1d(e: Editor, match: Match) -> torch.fx.Node:
    x, weight, bias = e.need(match.roles["x"]), e.need(match.roles["weight"]), e.node(match.roles.get("bias"))
    return e.call(flash.causal_conv1d, x, weight, bias, match.roles.get("activation"), like=x)


QUACK_ACTIVATIONS = {"none": None, "relu": "relu", "gelu_tanh": "gelu_tanh_approx", "silu": "silu"}


def _quack_gemm_act(e: Editor, match: Match) -> torch.fx.Node:
    roles = match.roles
    activation = str(roles.get("activation", "gelu_tanh" if roles.get("use_gelu") else "relu"))
    a, b, bias, residual = (e.node(roles.get(r)) for r in ("a", "b", "bias", "residual"))
    if a is None or b is None or activation not in QUACK_ACTIVATIONS or roles.get("mask") is not None:
        raise Unsupported("an epilogue that quack does not have")
    if residual is not None and activation != "none":
        raise Unsupported("quack adds the residual before the activation")
    if residual is not None:
        full = (a.meta["val"].shape[0], b.meta["val"].shape[1])
        residual = e.call(torch.reshape, residual, full)
    made = e.call(quack.gemm_act, a, b, bias, QUACK_ACTIVATIONS[activation], residual, like=a)
    made.meta["val"] = a.meta["val"].new_empty((a.meta["val"].shape[0], b.meta["val"].shape[1]))
    return made


def block_scaled(function: Function) -> Maker:
    """function(a, b, scale_a, scale_b) -> bf16, of the operands of torch._scaled_mm."""

    def maker(e: Editor, match: Match) -> torch.fx.Node:
        if match.roles.get("bias") is not None or match.roles.get("scale_result") is not None:
            raise Unsupported("a block-scaled product with a bias or a scaled result")
        a, b, *scales = (e.need(match.roles[r]) for r in ("x", "mat2", "scale_a", "scale_b"))
        made = e.call(function, a, b, *scales, like=a)
        rows, columns = a.meta["val"].shape[0], b.meta["val"].shape[1]
        made.meta["val"] = a.meta["val"].new_empty((rows, columns), dtype=torch.bfloat16)
        return made

    return maker


PACKAGES: Mapping[str, Maker] = {
    "liger_rms_norm": norm(liger.rms_norm),
    "liger_fused_add_rms_norm": add_norm(liger.fused_add_rms_norm),
    "liger_layer_norm": norm(liger.layer_norm, bias=True),
    "liger_group_norm": group_norm(liger.group_norm),
    "liger_softmax": softmax(liger.softmax),
    "liger_swiglu": gate(liger.swiglu, overwrites=True),
    "liger_geglu": gate(liger.geglu, overwrites=True),
    "liger_rope": _rope,
    "liger_cross_entropy": loss(liger.cross_entropy, overwrites=True),
    "liger_narrow_cross_entropy": loss(liger.narrow_cross_entropy, overwrites=True, narrow=torch.float32),
    "liger_fused_linear_cross_entropy": of_loss(liger.linear_cross_entropy),
    "quack_rmsnorm": norm(quack.rms_norm, own_dtype=True),
    "quack_layernorm": norm(quack.layer_norm, bias=True, own_dtype=True),
    "quack_softmax": softmax(quack.softmax),
    "quack_cross_entropy": loss(quack.cross_entropy, narrow=torch.float32),
    "quack_linear_cross_entropy": of_loss(quack.linear_cross_entropy),
    "quack_topk": top_k(quack.top_k, torch.int32),
    "quack_gemm_act": _quack_gemm_act,
    "flag_gems_rms_norm": norm(flag_gems.rms_norm),
    "flag_gems_layer_norm": norm(flag_gems.layer_norm, bias=True),
    "flag_gems_group_norm": group_norm(flag_gems.group_norm),
    "flag_gems_softmax": softmax(flag_gems.softmax, takes_dim=True),
    "flag_gems_silu_and_mul": gate(flag_gems.silu_and_mul),
    "flag_gems_gelu_and_mul": gate(flag_gems.gelu_and_mul, "approximate"),
    "flag_gems_cross_entropy": loss(flag_gems.cross_entropy),
    "flag_gems_topk": top_k(flag_gems.top_k, torch.int64),
    "flag_gems_attention": sdpa(flag_gems.attention),
    "flashinfer_rmsnorm": norm(flash.rms_norm),
    "flashinfer_fused_add_rmsnorm": add_norm(flash.fused_add_rms_norm),
    "flashinfer_silu_and_mul": gate(flash.silu_and_mul),
    "flashinfer_gelu_tanh_and_mul": gate(flash.gelu_tanh_and_mul),
    "flashinfer_top_p": _top_p,
    "flash_attn": attention(flash.attention_2),
    "flash_attn_3": attention(flash.attention_3),
    "flash_attn_4": attention(flash.attention_4),
    "flash_attn_cross_entropy": loss(flash.cross_entropy, narrow=torch.float32),
    "causal_conv1d": _causal_conv1d,
    "sageattention": attention(serving.sage_attention),
    "unsloth_rms_norm": norm(serving.unsloth_rms_norm),
    "unsloth_swiglu": gate(serving.unsloth_swiglu),
    "unsloth_geglu": gate(serving.unsloth_geglu),
    "vllm_rms_norm": norm(serving.vllm_rms_norm),
    "flashinfer_mm_fp4": block_scaled(serving.flashinfer_mm_fp4),
    "flashinfer_mm_mxfp8": block_scaled(serving.flashinfer_mm_mxfp8),
    "torchao_mx_fp8": block_scaled(serving.torchao_mx_fp8),
    "cut_cross_entropy": of_loss(flash.linear_cross_entropy),
}
