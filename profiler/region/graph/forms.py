"""What is recognised in a graph, as plain functions: norms, softmax, gates, rotary embedding, losses."""

from __future__ import annotations

from math import inf, isfinite

import torch
import torch.nn.functional as F
from torch import Tensor

from profiler.region.graph.canonical.identities import negated
from profiler.region.graph.canonical.pattern import Found, Given, Number, Pattern, Roles
from profiler.region.graph.canonical.values import Value

X, VECTOR = Given((3, 4, 8)), Given((8,))


# ------------------------------------------------------------------------------------------------------------------ norms


def rms(x: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)


def weighted_rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return rms(x, eps) * weight


def standard(x: Tensor, eps: float) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, correction=0, keepdim=True) + eps)


def weighted_standard(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return standard(x, eps) * weight


def shifted_standard(x: Tensor, bias: Tensor, eps: float) -> Tensor:
    return standard(x, eps) + bias


def affine_standard(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return standard(x, eps) * weight + bias


def along_rows(vector: Value, x: Value) -> bool:
    """One number for each column of x's rows."""
    count = 1
    for size in vector.shape:
        count *= size
    return bool(vector.shape) and vector.shape[-1] == x.shape[-1] == count


def _norm(found: Found) -> Roles | None:
    x, eps = found.value("x"), found.number("eps")
    vectors = {n: found.value(n) for n in ("weight", "bias") if n in found.bound}
    if not (0 < eps < inf) or not x.shape or not all(along_rows(v, x) for v in vectors.values()):
        return None
    return {"x": x, "weight": None, **vectors, "eps": eps, "width": x.shape[-1]}


def _layer_norm(found: Found) -> Roles | None:
    roles = _norm(found)
    return None if roles is None else {"bias": None, **roles}


# ---------------------------------------------------------------------------------------------------------- elementwise


def silu_gate(a: Tensor, b: Tensor) -> Tensor:
    return F.silu(a) * b


def gelu_gate(a: Tensor, b: Tensor) -> Tensor:
    return F.gelu(a) * b


def gelu_tanh_gate(a: Tensor, b: Tensor) -> Tensor:
    return F.gelu(a, approximate="tanh") * b


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def written_gelu_tanh_gate(a: Tensor, b: Tensor) -> Tensor:
    return gelu_tanh(a) * b


def _gate(activation: str) -> object:
    def settled(found: Found) -> Roles | None:
        """Activation and gate come from the same place: both given, or both computed. Else `b` is a mask or a scale."""
        a, b = found.value("a"), found.value("b")
        paired = (a.op == "input") == (b.op == "input")
        if a.shape != b.shape or len(a.shape) < 2 or a is b or not paired or along_rows(b, a):
            return None
        if b.op in ("silu", "gelu") and b.args[0] is a:
            return None
        more = {} if activation == "silu" else {"approximate": "tanh" if activation == "gelu_tanh" else "none"}
        return {"a": a, "b": b, "activation": activation, **more}

    return settled


def _plain(found: Found) -> Roles | None:
    return {"x": found.value("x")}


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def _rope(found: Found) -> Roles | None:
    x, cos, sin = (found.value(n) for n in ("x", "cos", "sin"))
    if len(x.shape) < 2 or any(t.shape[-1:] not in (x.shape[-1:], (1,)) for t in (cos, sin)):
        return None
    return {"x": x, "cos": cos, "sin": sin}


# -------------------------------------------------------------------------------------------------------- softmax and losses


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _softmax(found: Found) -> Roles | None:
    x, dim = found.value("x"), int(found.number("dim"))
    return {"x": x, "dim": dim if dim == -1 else dim + len(x.shape)}


def mean_loss(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def sum_loss(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target, reduction="sum")


def row_loss(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target, reduction="none")


def _loss(reduction: str) -> object:
    def settled(found: Found) -> Roles | None:
        x, target = found.value("x"), found.value("target")
        if target.shape != x.shape[:-1] or not target.shape:
            return None
        ignored = int(found.number("ignore_index"))
        return {"x": x, "target": target, "reduction": reduction, "ignore_index": ignored}

    return settled


# --------------------------------------------------------------------------------------------------------------- attention

HEADS, MASK, BIAS = Given((2, 3, 5, 8)), Given((5, 6), torch.bool), Given((3, 5, 6))
KEYS = Given((2, 3, 6, 8))


def scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return q @ k.transpose(-1, -2) * scale


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return torch.softmax(scores(q, k, scale), -1) @ v


def masked_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor) -> Tensor:
    return torch.softmax(scores(q, k, scale).masked_fill(~mask, -inf), -1) @ v


def biased_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor) -> Tensor:
    return torch.softmax(scores(q, k, scale) + bias, -1) @ v


def masked_biased_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor, bias: Tensor) -> Tensor:
    return torch.softmax((scores(q, k, scale) + bias).masked_fill(~mask, -inf), -1) @ v


def _dropped(shares: Tensor, rate: float) -> Tensor:
    dropped: Tensor = torch.ops.aten.native_dropout(shares, rate, True)[0]
    return dropped


def dropped_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, rate: float) -> Tensor:
    return _dropped(torch.softmax(scores(q, k, scale), -1), rate) @ v


def dropped_masked_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor, rate: float) -> Tensor:
    return _dropped(torch.softmax(scores(q, k, scale).masked_fill(~mask, -inf), -1), rate) @ v


def dropped_biased_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor, rate: float) -> Tensor:
    return _dropped(torch.softmax(scores(q, k, scale) + bias, -1), rate) @ v


def capped_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, cap: float) -> Tensor:
    return torch.softmax(torch.tanh(scores(q, k, scale)) * cap, -1) @ v


def capped_masked_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, cap: float, mask: Tensor) -> Tensor:
    return torch.softmax((torch.tanh(scores(q, k, scale)) * cap).masked_fill(~mask, -inf), -1) @ v


def _attention(found: Found) -> Roles | None:
    """q, k and v with their heads, what hides scores and what is added to them.

    causal: scores of later columns are hidden, by a mask that is made of positions: an argument of the call says it.
    """
    q, k, v, scale = found.value("q"), found.value("k"), found.value("v"), found.number("scale")
    if not (0 < scale and isfinite(scale)) or len({len(t.shape) for t in (q, k, v)}) != 1:
        return None
    turned = found.values.table.turned(k)
    transposed = bool(k.nodes) or not turned.nodes  # else only k with rows as columns is there
    roles: dict[str, object] = {
        "scale": scale, "mask": None, "mask_kind": None, "causal": False,
        "dropout": found.number("rate") if "rate" in found.bound else 0.0,
        "q": q, "k": k if transposed else turned, "v": v, "k_transposed": transposed,
    }  # fmt: skip
    mask = _mask(found)
    if mask is None:
        return None
    return {**roles, **mask}  # type: ignore[return-value]


def _mask(found: Found) -> Roles | None:
    """mask, mask_kind and causal; None for two masks that no node puts together."""
    keep, bias = found.bound.get("mask"), found.bound.get("bias")
    roles: Roles = {}
    if isinstance(keep, Value):
        parts = keep.args if keep.op == "all_of" and not keep.nodes else (keep,)
        others = [p for p in parts if not is_causal(p)]
        roles = {"causal": len(others) < len(parts)}
        if others:
            shown = _shown_mask(others[0], found) if len(others) == 1 and bias is None else None
            return None if shown is None else {**roles, **shown}
    return roles if bias is None else {**roles, "mask": bias, "mask_kind": "additive"}


def _shown_mask(keep: Value, found: Found) -> Roles | None:
    """The mask as some node has it: what is kept, what is dropped, or what is added."""
    table = found.values.table
    ways = ((keep, "keep"), (negated(table, keep), "drop"),
            (table.make("added_mask", (keep,), (), keep.shape), "additive"))  # fmt: skip
    inner = keep.args[0] if keep.op == "reshape" else keep
    return next(({"mask": m, "mask_kind": kind} for m, kind in (*ways, (inner, "keep")) if m.nodes), None)


def is_causal(keep: Value) -> bool:
    """Row >= column."""
    if keep.op != "nonnegative" or keep.args[0].op != "total":
        return False
    constant, *coefficients = keep.args[0].attrs
    places = {(t.op, t.attrs[0]): c for t, c in zip(keep.args[0].args, coefficients, strict=True)}
    return constant == 0 and places == {("iota", -2): 1.0, ("iota", -1): -1.0}


_QKV = {"q": HEADS, "k": KEYS, "v": KEYS, "scale": Number()}
_NUMBERS = {"x": X, "eps": Number()}
_PAIR = {"a": X, "b": X}
_LOGITS = {"x": Given((4, 8)), "target": Given((4,), torch.int64)}


def _attentions() -> tuple[Pattern, ...]:
    more = {
        attention: {}, masked_attention: {"mask": MASK}, biased_attention: {"bias": BIAS},
        masked_biased_attention: {"mask": MASK, "bias": BIAS}, dropped_attention: {"rate": Number()},
        dropped_masked_attention: {"mask": MASK, "rate": Number()},
        dropped_biased_attention: {"bias": BIAS, "rate": Number()},
    }  # fmt: skip
    return tuple(
        Pattern("attention", "attention by hand", (f,), {**_QKV, **given}, _attention, through_views=True)
        for f, given in more.items()
    )


FORMS: tuple[Pattern, ...] = (
    *_attentions(),
    Pattern("rms_norm", "RMSNorm by hand", (weighted_rms,), {**_NUMBERS, "weight": VECTOR}, _norm),
    Pattern("rms_norm", "RMSNorm by hand", (rms,), _NUMBERS, _norm),
    Pattern("layer_norm", "LayerNorm by hand", (affine_standard,),
            {**_NUMBERS, "weight": VECTOR, "bias": VECTOR}, _layer_norm),
    Pattern("layer_norm", "LayerNorm by hand", (weighted_standard,), {**_NUMBERS, "weight": VECTOR}, _layer_norm),
    Pattern("layer_norm", "LayerNorm by hand", (shifted_standard,), {**_NUMBERS, "bias": VECTOR}, _layer_norm),
    Pattern("layer_norm", "LayerNorm by hand", (standard,), _NUMBERS, _layer_norm),
    Pattern("softmax", "softmax by hand", (softmax,), {"x": X}, _softmax, frozenset({"_softmax", "_safe_softmax"}),
            "softmax", any_axis=True),
    Pattern("swiglu", "SwiGLU by hand", (silu_gate,), _PAIR, _gate("silu"), frozenset({"silu"}), "SwiGLU"),
    Pattern("geglu", "GeGLU by hand", (gelu_gate,), _PAIR, _gate("gelu"), frozenset({"gelu"}), "GeGLU"),
    Pattern("geglu", "GeGLU by hand", (gelu_tanh_gate, written_gelu_tanh_gate), _PAIR, _gate("gelu_tanh"),
            frozenset({"gelu"}), "GeGLU"),
    Pattern("gelu_tanh", "GELU (tanh) by hand", (gelu_tanh,), {"x": X}, _plain),
    Pattern("rope", "RoPE", (rotated,), {"x": Given((2, 3, 4, 8)), "cos": Given((4, 8)), "sin": Given((4, 8))}, _rope,
            frozenset({"cat"}), "RoPE"),
    *(Pattern("cross_entropy", "cross entropy by hand", (function,), _LOGITS, _loss(name),
              frozenset({"nll_loss_forward"}), "cross entropy")
      for name, function in (("mean", mean_loss), ("sum", sum_loss), ("none", row_loss))),
)  # fmt: skip
