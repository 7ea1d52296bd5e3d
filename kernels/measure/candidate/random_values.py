"""Which of a program's results depend on random numbers: outputs, what is left in its inputs, gradients.

Told by the graph alone. What is written into is followed by its memory: views made before the write share it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from profiler.region.language.checks import label_of, nodes_in, tensors_in
from profiler.region.language.signatures import Args, Call, Kwargs, MisplacedError, bind
from profiler.region.language.writes import STATISTICS, written

DROPOUTS = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "native_dropout"})
RANDOM = DROPOUTS | {
    "rand", "randn", "rand_like", "randn_like", "randint", "randint_like", "randperm", "normal", "bernoulli",
    "bernoulli_", "multinomial", "gumbel_softmax",
}  # fmt: skip
ADDING = frozenset("add sub neg cat concat stack hstack vstack".split())
"""Operations whose derivatives depend on no value."""
PROPORTIONAL = frozenset(
    """mul matmul mm bmm linear conv1d conv2d conv3d sum mean view reshape flatten unflatten ravel contiguous clone
    squeeze unsqueeze permute transpose t swapaxes swapdims movedim moveaxis expand expand_as broadcast_to view_as
    reshape_as diagonal narrow chunk split tensor_split unbind select index index_select flip roll repeat tile to float
    half bfloat16 double type_as where masked_fill""".split()
)
"""Operations whose derivative by one argument depends on the other arguments alone."""


def random_outputs(module: torch.fx.GraphModule) -> frozenset[int]:
    """Numbers of the outputs that depend on random numbers."""
    values = _Values(module)
    return frozenset(i for i, value in enumerate(_results(module)) if values.random(value))


def random_inputs(module: torch.fx.GraphModule) -> frozenset[int]:
    """Numbers of the inputs into which random numbers are written."""
    values = _Values(module)
    return frozenset(n for n, node in enumerate(_inputs(module)) if values.random(node))


def random_gradients(module: torch.fx.GraphModule) -> frozenset[int]:
    """Numbers of the inputs whose gradients may depend on random numbers: a derivative on the way from an output does.

    All inputs where a random program writes into a tensor on the way: what a derivative is of is not followed then.
    """
    values, inputs = _Values(module), _inputs(module)
    if not values.nodes:
        return frozenset()
    if any(writes(n) and _name(n) not in STATISTICS for n in module.graph.nodes):
        return frozenset(range(len(inputs)))
    reached = {n for n in _results(module) if isinstance(n, torch.fx.Node)}
    drawn: set[torch.fx.Node] = set()
    for node in reversed(module.graph.nodes):
        if node.op == "output" or node not in reached:
            continue
        for given in node.all_input_nodes:
            reached.add(given)
            if node in drawn or values.in_derivative(node, given):
                drawn.add(given)
    return frozenset(n for n, node in enumerate(inputs) if node in drawn)


def writes(node: torch.fx.Node) -> list[torch.Tensor]:
    """The fakes of what an operation writes into."""
    if node.op not in ("call_function", "call_method") or getattr(node.target, "__module__", "") == "_operator":
        return []
    args, kwargs, call = _bound(node)
    return written(label_of(node.target), call, args, kwargs)


class _Values:
    """Random values of a program: by node, and by the memory that random numbers are written into."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.nodes: set[torch.fx.Node] = set()
        self.memory: set[int] = set()
        for node in module.graph.nodes:
            if node.op != "output" and (_draws(node) or any(map(self.random, node.all_input_nodes))):
                self.nodes.add(node)
                self.memory.update(_memory(writes(node)))

    def random(self, node: object) -> bool:
        if not isinstance(node, torch.fx.Node):
            return False
        return node in self.nodes or not self.memory.isdisjoint(_memory(node.meta.get("val")))

    def in_derivative(self, node: torch.fx.Node, by: torch.fx.Node) -> bool:
        """Whether random numbers may be in a derivative of the operation by one of its arguments."""
        label = _name(node)
        if _draws(node):
            return True
        if label in ADDING:
            return False
        several = sum(given is by for given in nodes_in(node.args, node.kwargs)) > 1
        alone = label in PROPORTIONAL or (label == "div" and node.args[:1] == (by,))
        return any(self.random(n) for n in node.all_input_nodes if n is not by or several or not alone)


def _memory(value: object) -> Iterator[int]:
    for tensor in tensors_in(value):
        yield tensor.untyped_storage()._cdata


def _name(node: torch.fx.Node) -> str:
    return label_of(node.target).split(".")[0]


def _bound(node: torch.fx.Node) -> tuple[Args, Kwargs, Call | None]:
    """Its arguments with fakes in the place of nodes, and these by name where the signature is known."""
    given: Any = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    args, kwargs = given
    try:
        return args, kwargs, bind(node.target, args, kwargs)
    except MisplacedError:  # a graph of others' making: its fakes are not known
        return args, kwargs, None


def _draws(node: torch.fx.Node) -> bool:
    name = _name(node) if node.op in ("call_function", "call_method") else ""
    if name == "scaled_dot_product_attention":
        return bool(argument(node, 4, "dropout_p", 0.0))
    if name not in DROPOUTS:
        return name in RANDOM
    asked = argument(node, 2, "training", node.kwargs.get("train", name != "alpha_dropout"))
    return bool(asked is not False and argument(node, 1, "p", 0.5) != 0)


def argument(node: torch.fx.Node, position: int, name: str, default: Any) -> Any:
    """What an operation is given, by place or by name."""
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _inputs(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [n for n in module.graph.nodes if n.op == "placeholder"]


def _results(module: torch.fx.GraphModule) -> tuple[Any, ...]:
    output = next(n for n in module.graph.nodes if n.op == "output")
    return tuple(output.args[0])
