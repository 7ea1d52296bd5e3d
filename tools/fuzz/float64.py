"""A graph run in float64, and what a match says it computes, run beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match

Values = Mapping[str, Any]
"""Inputs by their names, and results of calls by theirs."""


WORDS = frozenset({"reduction", "approximate", "activation", "mask_kind"})
"""Roles that are a word and no tensor's name."""


class _Exact(torch.fx.Interpreter):
    """Runs every operation in float64, and keeps what each gives."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.kept: dict[str, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        result = self.kept[n.name] = super().run_node(n)
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if "softmax" in str(target):
            args = (*args[:2], False)
        kwargs = {k: torch.float64 if _floating(v) else v for k, v in kwargs.items()}
        made = super().call_function(target, args, kwargs)
        return made.double() if isinstance(made, torch.Tensor) and made.is_floating_point() else made


def _floating(given: object) -> bool:
    return isinstance(given, torch.dtype) and given.is_floating_point


def inputs_of(graph: Graph, seed: int) -> list[torch.Tensor]:
    """Random numbers; whole numbers below 2, or below what the region says of them."""
    generator = torch.Generator().manual_seed(seed)
    below = {i.name: i.below for i in graph.region.inputs}
    totals = {i.name: i.offsets for i in graph.region.inputs}
    made = []
    holders = [n for n in graph.module.graph.nodes if n.op == "placeholder"]
    for (name, _), node in zip(graph.inputs, holders, strict=True):
        fake = node.meta["val"]
        if (total := totals.get(name)) is not None:
            made.append(torch.linspace(0, total, fake.numel()).to(fake.dtype))
        elif fake.dtype == torch.bool:
            made.append(torch.rand(fake.shape, generator=generator) < 0.7)
            made[-1][..., 0] = True  # a row of which nothing is kept has no softmax
        elif fake.dtype.is_floating_point:
            made.append(torch.randn(fake.shape, generator=generator, dtype=torch.float64))
        else:
            made.append(torch.randint(0, below.get(name) or 2, fake.shape, generator=generator))
    return made


def values_of(graph: Graph, seed: int) -> Values:
    """What every node of the graph gives, by the names that matches use."""
    runner = _Exact(graph.module)
    given = inputs_of(graph, seed)
    runner.run(*given)
    return runner.kept | {name: x for (name, _), x in zip(graph.inputs, given, strict=True)}


def outputs(graph: Graph, seed: int) -> list[torch.Tensor]:
    """The region's results in float64."""
    return list(_Exact(graph.module).run(*inputs_of(graph, seed)))


def agrees(match: Match, values: Values) -> bool:
    """What the match's roles say is what the graph computes; true of kinds that have no reference here."""
    reference = REFERENCES.get(match.kind)
    if reference is None or not (match.by_hand or "x" in match.roles or "a" in match.roles or "z" in match.roles):
        return True
    roles = {
        k: values[v] if isinstance(v, str) and v in values and k not in WORDS else v for k, v in match.roles.items()
    }
    made = values[match.output]
    made = made[0] if isinstance(made, (tuple, list)) else made
    wanted = reference(roles)
    if made.numel() != wanted.numel():
        return False
    return torch.allclose(made, wanted.reshape(made.shape), rtol=1e-4, atol=1e-6, equal_nan=True)


def _attention(r: Mapping[str, Any]) -> torch.Tensor:
    """As SDPA defines it, heads shared by groups."""
    q, k, v, mask = r["q"], r["k"], r["v"], r["mask"]
    k = k if r["k_transposed"] else k.transpose(-1, -2)
    if q.dim() > 2 and q.shape[-3] != k.shape[-3]:
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * r["scale"]
    if r["causal"]:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    if mask is not None and r["mask_kind"] == "additive":
        scores = scores + mask
    elif mask is not None:
        scores = scores.masked_fill(mask if r["mask_kind"] == "drop" else ~mask, float("-inf"))
    result: torch.Tensor = torch.softmax(scores, -1) @ v
    return result


def _rope(r: Mapping[str, Any]) -> torch.Tensor:
    if r.get("interleaved"):
        even, odd = r["x"][..., 0::2], r["x"][..., 1::2]
        pair = even * r["cos"] - odd * r["sin"], even * r["sin"] + odd * r["cos"]
        return torch.stack(pair, -1).flatten(-2)
    first, second = r["x"].chunk(2, -1)
    turned: torch.Tensor = r["x"] * r["cos"] + torch.cat((-second, first), -1) * r["sin"]
    return turned


def _loss(r: Mapping[str, Any]) -> torch.Tensor:
    x, target = r["x"].flatten(0, -2), r["target"].flatten()
    return F.cross_entropy(x, target, reduction=r.get("reduction", "mean"), ignore_index=r.get("ignore_index", -100))


ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "": lambda x: x, "relu": F.relu, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}  # fmt: skip


def _add_norm(r: Mapping[str, Any]) -> torch.Tensor:
    total = r["x"] + r["residual"]
    return F.rms_norm(total, total.shape[-1:], r["weight"], r["eps"])


def _channel_norm(r: Mapping[str, Any]) -> torch.Tensor:
    rows = r["x"].movedim(r["dim"], -1)
    return F.rms_norm(rows, rows.shape[-1:], r["weight"], r["eps"]).movedim(-1, r["dim"])


def _tail(r: Mapping[str, Any]) -> torch.Tensor:
    y = ACTIVATIONS[r["activation"]](r["z"] + r["bias"])
    return y if r["mask"] is None else y * r["mask"]


def _group_norm(r: Mapping[str, Any]) -> torch.Tensor:
    return ACTIVATIONS[r["activation"]](F.group_norm(r["x"], r["groups"], r["weight"], r["bias"], r["eps"]))


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], torch.Tensor]] = {
    "rms_norm": lambda r: F.rms_norm(r["x"], (r["width"],), _vector(r["weight"]), r["eps"]),
    "layer_norm": lambda r: F.layer_norm(r["x"], (r["width"],), _vector(r["weight"]), _vector(r["bias"]), r["eps"]),
    "softmax": lambda r: torch.softmax(r["x"], r["dim"]),
    "swiglu": lambda r: F.silu(r["a"]) * r["b"],
    "geglu": lambda r: F.gelu(r["a"], approximate=r["approximate"]) * r["b"],
    "gelu_tanh": lambda r: F.gelu(r["x"], approximate="tanh"),
    "rope": _rope,
    "cross_entropy": _loss,
    "attention": _attention,
    "triton:add_rms_norm": _add_norm,
    "triton:channel_norm": _channel_norm,
    "triton:bias_activation_mask": _tail,
    "triton:group_norm_silu": _group_norm,
}


def _vector(weight: torch.Tensor | None) -> torch.Tensor | None:
    return None if weight is None else weight.reshape(-1)
