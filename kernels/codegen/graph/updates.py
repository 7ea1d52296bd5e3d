"""What a region writes into its inputs: running statistics, a state that is advanced.

`prepare` leaves each as one copy_ into the whole input. It runs behind all kernels: these read the former contents, and
a kernel that is timed to be tuned runs many times.
"""

from __future__ import annotations

import torch
import torch.fx

from kernels.codegen.index import Unsupported
from kernels.codegen.nodes import root

aten = torch.ops.aten


def is_update(node: torch.fx.Node) -> bool:
    """A whole input is written over by what was computed."""
    if node.target is not aten.copy_.default:
        return False
    target, value = node.args[:2]
    return isinstance(target, torch.fx.Node) and target.op == "placeholder" and isinstance(value, torch.fx.Node)


def updates(graph: torch.fx.Graph) -> dict[torch.fx.Node, torch.fx.Node]:
    """Input -> what is written into it. Raises Unsupported where that is another input that is written over."""
    made = {node.args[0]: node.args[1] for node in graph.nodes if is_update(node)}
    if any(root(value) in made for value in made.values()):
        raise Unsupported("an input that is written into another one, and is itself written over")
    return made


def refuse_former(nodes: list[torch.fx.Node], written: dict[torch.fx.Node, torch.fx.Node]) -> None:
    """Raises Unsupported where a backward reads an input that its forward has written over."""
    for node in nodes:
        if any(source in written for source in node.all_input_nodes):
            raise Unsupported(f"{node.target} in the backward reads an input that the forward writes over")
