"""What is recognised in a graph, as plain functions: norms, softmax, gates, rotary embedding, losses."""

from __future__ import annotations

from math import inf

import torch
import torch.nn.functional as F
from torch import Tensor

from profiler.region.graph.attention_forms import ATTENTIONS
from profiler.region.graph.canonical.pattern import Binding, Given, Number, Pattern, Roles, Settled
from profiler.region.graph.canonical.values import Value
from profiler.region.graph.nodes import is_call

X, VECTOR = Given((3, 4, 8)), Given((8,))


# --------------------------------------------------------------------------------------------------------------- norms


def _rms(x: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)


def _weighted_rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return _rms(x, eps) * weight


def _standard(x: Tensor, eps: float) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, correction=0, keepdim=True) + eps)


def _weighted_standard(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return _standard(x, eps) * weight


def _shifted_standard(x: Tensor, bias: Tensor, eps: float) -> Tensor:
    return _standard(x, eps) + bias


def _affine_standard(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return _standard(x, eps) * weight + bias


def along_rows(vector: Value, x: Value) -> bool:
    """One number for each column of x's rows."""
    count = 1
    for size in vector.shape:
        count *= size
    return bool(vector.shape) and vector.shape[-1] == x.shape[-1] == count


def _norm_roles(binding: Binding) -> Roles | None:
    x, eps = binding.value("x"), binding.number("eps")
    vectors = {n: binding.value(n) for n in ("weight", "bias") if n in binding.bound}
    if not (0 < eps < inf) or not x.shape or not all(along_rows(v, x) for v in vectors.values()):
        return None
    return {"x": x, "weight": None, **vectors, "eps": eps, "width": x.shape[-1]}


def _layer_roles(binding: Binding) -> Roles | None:
    roles = _norm_roles(binding)
    return None if roles is None else {"bias": None, **roles}


# --------------------------------------------------------------------------------------------------------- elementwise


def _silu_gate(a: Tensor, b: Tensor) -> Tensor:
    return F.silu(a) * b


def _gelu_gate(a: Tensor, b: Tensor) -> Tensor:
    return F.gelu(a) * b


def _gelu_tanh_gate(a: Tensor, b: Tensor) -> Tensor:
    return F.gelu(a, approximate="tanh") * b


def _gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def _gate_roles(activation: str) -> Settled:
    def settled(binding: Binding) -> Roles | None:
        """Activation and gate come from the same place: both given, or both computed. Else `b` is a mask or a scale."""
        a, b = binding.value("a"), binding.value("b")
        paired = (a.op == "input") == (b.op == "input")
        if a.shape != b.shape or len(a.shape) < 2 or a is b or not paired or along_rows(b, a):
            return None
        if b.op in ("silu", "gelu") and b.args[0] is a:
            return None
        more = {} if activation == "silu" else {"approximate": "tanh" if activation == "gelu_tanh" else "none"}
        return {"a": a, "b": b, "activation": activation, **more}

    return settled


def _by_hand_roles(binding: Binding) -> Roles | None:
    """Of what is no call already."""
    if any(is_call(n, "gelu") for n in binding.root.nodes):
        return None
    return {"x": binding.value("x")}


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def _rope_roles(binding: Binding) -> Roles | None:
    x, cos, sin = (binding.value(n) for n in ("x", "cos", "sin"))
    if len(x.shape) < 2 or any(t.shape[-1:] not in (x.shape[-1:], (1,)) for t in (cos, sin)):
        return None
    return {"x": x, "cos": cos, "sin": sin}


# -------------------------------------------------------------------------------------------------- softmax and losses


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _softmax_roles(binding: Binding) -> Roles | None:
    x, dim = binding.value("x"), int(binding.number("dim"))
    return {"x": x, "dim": dim if dim == -1 else dim + len(x.shape)}


def _mean_loss(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def _sum_loss(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target, reduction="sum")


def _row_loss(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target, reduction="none")


def _picked(x: Tensor, target: Tensor) -> Tensor:
    return -torch.log_softmax(x, -1).gather(1, target[:, None])[:, 0]


def _mean_picked(x: Tensor, target: Tensor) -> Tensor:
    return _picked(x, target).mean()


def _sum_picked(x: Tensor, target: Tensor) -> Tensor:
    return _picked(x, target).sum()


def _loss_roles(reduction: str) -> Settled:
    def settled(binding: Binding) -> Roles | None:
        x, target = binding.value("x"), binding.value("target")
        if target.shape != x.shape[:-1] or not target.shape:
            return None
        ignored = int(binding.number("ignore_index"))
        return {"x": x, "target": target, "reduction": reduction, "ignore_index": ignored}

    return settled


_NUMBERS: dict[str, Given | Number] = {"x": X, "eps": Number()}
_PAIR: dict[str, Given | Number] = {"a": X, "b": X}
_ROTARY: dict[str, Given | Number] = {"x": Given((2, 3, 4, 8)), "cos": Given((4, 8)), "sin": Given((4, 8))}
_LOGITS: dict[str, Given | Number] = {"x": Given((4, 8)), "target": Given((4,), torch.int64)}


FORMS: tuple[Pattern, ...] = (
    *ATTENTIONS,
    Pattern("rms_norm", "RMSNorm by hand", (_weighted_rms,), {**_NUMBERS, "weight": VECTOR}, _norm_roles),
    Pattern("rms_norm", "RMSNorm by hand", (_rms,), _NUMBERS, _norm_roles),
    Pattern("layer_norm", "LayerNorm by hand", (_affine_standard,),
            {**_NUMBERS, "weight": VECTOR, "bias": VECTOR}, _layer_roles),
    Pattern("layer_norm", "LayerNorm by hand", (_weighted_standard,), {**_NUMBERS, "weight": VECTOR}, _layer_roles),
    Pattern("layer_norm", "LayerNorm by hand", (_shifted_standard,), {**_NUMBERS, "bias": VECTOR}, _layer_roles),
    Pattern("layer_norm", "LayerNorm by hand", (_standard,), _NUMBERS, _layer_roles),
    Pattern("softmax", "softmax by hand", (_softmax,), {"x": X}, _softmax_roles,
            frozenset({"_softmax", "_safe_softmax"}), "softmax", any_axis=True),
    Pattern("swiglu", "SwiGLU by hand", (_silu_gate,), _PAIR, _gate_roles("silu"), frozenset({"silu"}), "SwiGLU"),
    Pattern("geglu", "GeGLU by hand", (_gelu_gate,), _PAIR, _gate_roles("gelu"), frozenset({"gelu"}), "GeGLU"),
    Pattern("geglu", "GeGLU by hand", (_gelu_tanh_gate,), _PAIR, _gate_roles("gelu_tanh"),
            frozenset({"gelu"}), "GeGLU"),
    Pattern("gelu_tanh", "GELU (tanh) by hand", (_gelu_tanh,), {"x": X}, _by_hand_roles),
    Pattern("rope", "RoPE", (_rotated,), _ROTARY, _rope_roles, frozenset({"cat"}), "RoPE"),
    *(Pattern("cross_entropy", "cross entropy by hand", functions, _LOGITS, _loss_roles(name),
              frozenset({"nll_loss_forward"}), "cross entropy")
      for name, functions in (
          ("mean", (_mean_loss, _mean_picked)), ("sum", (_sum_loss, _sum_picked)), ("none", (_row_loss, _picked)),
      )),
)  # fmt: skip
