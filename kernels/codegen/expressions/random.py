"""Random numbers inside a kernel: Philox by the element's place, from one seed for each call of the region.

The same seed and place give the same number in whichever kernel asks, so that a mask is never kept: a second kernel,
the backward one among them, computes it again.
"""

from __future__ import annotations

from typing import Any

import torch.fx

from kernels.codegen.expressions.values import Builder, Value
from kernels.codegen.index import Index, Unsupported, address, contiguous_strides
from kernels.codegen.nodes import Arguments, base, bind, computed, dtype_of, fake

SEED = "seed"
"""The kernel's parameter."""
DRAWS = frozenset({"native_dropout", "rand", "rand_like", "randn", "randn_like", "bernoulli"})


def stream(node: torch.fx.Node) -> int:
    """Which of the region's sources of random numbers a node is. A copy of it in another graph is the same one."""
    return int(node.meta["stream"])


def number_streams(module: torch.fx.GraphModule) -> None:
    """Numbers the nodes that draw; copies keep their number."""
    drawing = [n for n in module.graph.nodes if n.op == "call_function" and base(n) in DRAWS]
    taken = {n.meta["stream"] for n in drawing if "stream" in n.meta}
    free = (i for i in range(len(drawing) + len(taken)) if i not in taken)
    for node in drawing:
        if "stream" not in node.meta:
            node.meta["stream"] = next(free)


def drawn(b: Builder, node: torch.fx.Node, shape: Any, index: Index, how: str = "rand") -> Value:
    """tl.rand (in [0, 1)) or tl.randn at the element's place."""
    place = b.place(address(index, contiguous_strides(shape)))
    return b.expression(f"tl.{how}({SEED} + {stream(node)}, {{0}})", "f32", place)


def dropout(b: Builder, node: torch.fx.Node, place: int, index: Index) -> Value:
    """native_dropout's result, or what it keeps."""
    a, shape = bind(node), tuple(fake(bind(node)["input"]).shape)
    inner = dtype_of(fake(a["input"]))
    rate = float(a["p"]) if a["train"] is not False else 0.0
    if place == 0 and rate == 0.0:
        return b.value(a["input"], index)
    if rate in (0.0, 1.0):
        keep = b.number(rate == 0.0, "bool")
    else:
        keep = b.named(b.expression(f"{{0}} >= {rate!r}", "bool", drawn(b, node, shape, index)), "keep")
    if place == 1:
        return keep
    value = b.cast(b.value(a["input"], index), computed(inner))
    scale = b.number(1.0 / (1.0 - rate) if rate < 1.0 else 0.0, value.dtype)
    scaled = b.expression("{0} * {1}", value.dtype, value, scale)
    return b.expression("tl.where({0}, {1}, {2})", value.dtype, keep, scaled, b.number(0.0, value.dtype))


def random(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """rand, randn, their _like forms, and bernoulli."""
    name, shape = base(node), tuple(fake(node).shape)
    inner = dtype_of(fake(node))
    if name == "bernoulli":
        if a.get("generator") is not None:
            raise Unsupported("a generator of its own")
        rate = a.get("p")
        chance = b.number(float(rate), "f32") if rate is not None else b.cast(b.value(a["self"], index), "f32")
        hit = b.expression("{0} < {1}", "bool", drawn(b, node, shape, index), chance)
        return b.cast(hit, computed(inner))
    made = drawn(b, node, shape, index, name.removesuffix("_like"))
    return b.rounded(made, inner) if inner != "f64" else b.cast(made, "f64")
