"""Which products get a kernel of their own, with what is in front of them and behind: what that saves against what it
costs. Everything else stays a library's product with kernels around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.fx

from kernels.codegen.graph.absorbing import steps_of
from kernels.codegen.nodes import fake, is_fill, root
from kernels.codegen.plan import is_view
from kernels.codegen.product_plan import is_product, operands_of

BYTES_PER_S = 3.0e12
LAUNCH_S = 2.0e-6
"""What a further kernel costs, on GPUs of the H100's class: memory traffic at this rate, and this for its start."""
LOST_S_PER_FLOP = {torch.float32: 4e-14, torch.float16: 6e-16, torch.bfloat16: 6e-16, torch.int8: 6e-16}
"""By how much Triton's products are slower than the library's, per operation: exact ones of f32 by far."""
STEP_S = 3e-14
"""One pointwise step of one element of an operand, each time that it is loaded."""
TILE = 128
"""Rows or columns of the result that share what was loaded."""
FEWEST_PROGRAMS = 100
"""Programs that fill a GPU: of a product with fewer the library divides K, and a program of ours takes all of it."""
TURN_S = 3e-7
"""One turn of that walk, of 64 numbers."""


def prologue(node: torch.fx.Node) -> Sequence[torch.fx.Node]:
    """The operands of a product that are to be computed as they are loaded; nothing for any other node."""
    if not is_product(node):
        return ()
    chosen = [x for side, x in enumerate(operands_of(node)) if _pays_in_front(node, x, side)]
    return list(dict.fromkeys(chosen))


def _pays_in_front(node: torch.fx.Node, operand: torch.fx.Node, side: int) -> bool:
    steps = [s for s in steps_of(node, [operand]) if not is_view(s) and not is_fill(s)]
    if not steps or root(operand) not in steps:
        return False
    value = fake(operand)
    moved = 2 * value.numel() * value.element_size()
    (m, n) = fake(node).shape[-2:]
    repeats = math.ceil((n if side == 0 else m) / TILE)
    computed = value.numel() * repeats * (2 + len(steps)) * STEP_S
    return LAUNCH_S + moved / BYTES_PER_S > computed + _lost(node)


def _lost(node: torch.fx.Node) -> float:
    """By how much a kernel of its own is slower: arithmetic, and steps along K where few programs share the work."""
    left, _ = operands_of(node)
    value, depth = fake(node), fake(left).shape[-1]
    (m, n) = value.shape[-2:]
    programs = value.numel() // (m * n) * math.ceil(m / 64) * math.ceil(n / 32)
    idle = max(0.0, 1.0 - programs / FEWEST_PROGRAMS)
    return 2.0 * value.numel() * depth * LOST_S_PER_FLOP[fake(left).dtype] + idle * depth / 64 * TURN_S


def pays_behind(node: torch.fx.Node) -> bool:
    """A group behind the product is better computed in its kernel than from the library's result."""
    value = fake(node)
    moved = (1 if _given_away(node) else 2) * value.numel() * value.element_size()
    return LAUNCH_S + moved / BYTES_PER_S > _lost(node)


def _given_away(node: torch.fx.Node) -> bool:
    """The result itself is one of the graph's, and written whatever is behind it."""
    return any(u.op == "output" or (is_view(u) and _given_away(u)) for u in node.users)


@dataclass(frozen=True, slots=True)
class Epilogues:
    """Chooses for each product at most one group behind it, and for each group at most one product."""

    groups: Sequence[Sequence[torch.fx.Node]]

    def of(self, node: torch.fx.Node, taken: set[int]) -> int | None:
        """The number of the group behind a product that can run in its kernel: nothing else has to run in between."""
        readers = [i for i, g in enumerate(self.groups) if i not in taken and _reads(g, node)]
        after = _after(node)
        for i in readers:
            members = set(self.groups[i])
            outside = {root(s) for n in members for s in n.all_input_nodes} - members - {node}
            if not outside & (after - members) and not _needs(node, members):
                return i
        return None


def _reads(group: Sequence[torch.fx.Node], node: torch.fx.Node) -> bool:
    return any(root(s) is node for n in group for s in n.all_input_nodes)


def _after(node: torch.fx.Node) -> set[torch.fx.Node]:
    """Everything that depends on it."""
    after: set[torch.fx.Node] = set()
    pending = list(node.users)
    while pending:
        user = pending.pop()
        if user not in after and user.op != "output":
            after.add(user)
            pending += user.users
    return after


def _needs(node: torch.fx.Node, members: set[torch.fx.Node]) -> bool:
    """The product itself needs something of the group."""
    seen: set[torch.fx.Node] = set()
    pending = list(node.all_input_nodes)
    while pending:
        source = pending.pop()
        if source in members:
            return True
        if source not in seen:
            seen.add(source)
            pending += source.all_input_nodes
    return False
