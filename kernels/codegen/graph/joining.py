"""Fused groups that read the same joined to one, so that its kernels are chosen together.

Fusion keeps reductions over different axes apart; `stages` then says for each kernel what it needs of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.fx

from kernels.codegen.nodes import is_fill, is_number, root

MOST_GROUPS = 64
"""More are left as they are: every pair that reads the same is tried."""

Vertex = int | torch.fx.Node
"""A group's number, or a node that is in none."""


def joined(module: torch.fx.GraphModule, groups: Sequence[Sequence[torch.fx.Node]]) -> list[list[torch.fx.Node]]:
    """The groups, those that read the same or each other's results as one, where nothing has to run in between."""
    order = {n: i for i, n in enumerate(module.graph.nodes)}
    if len(groups) > MOST_GROUPS:
        return [list(group) for group in groups]
    ways = _Ways(groups)
    for node in order:
        ways.add(node)
    first: dict[torch.fx.Node, list[int]] = {}  # what is read or computed -> the groups
    for i, group in enumerate(groups):
        for node in {root(s) for n in group for s in n.all_input_nodes} | set(group):
            if not is_fill(node) and not is_number(node):
                first.setdefault(node, []).append(i)
    for sharing in first.values():
        for other in sharing[1:]:
            ways.join(sharing[0], other)
    by_top: dict[int, list[torch.fx.Node]] = {}
    for i, group in enumerate(groups):
        by_top.setdefault(ways.top(i), []).extend(group)
    return [sorted(group, key=order.__getitem__) for group in by_top.values()]


class _Ways:
    """Which group has to run before which."""

    def __init__(self, groups: Sequence[Sequence[torch.fx.Node]]) -> None:
        self.own = {n: i for i, group in enumerate(groups) for n in group}
        self.parent = list(range(len(groups)))
        self.after: dict[Vertex, set[Vertex]] = {}

    def top(self, i: int) -> int:
        while self.parent[i] != i:
            i = self.parent[i]
        return i

    def vertex(self, node: torch.fx.Node) -> Vertex:
        return self.own.get(node, node)

    def add(self, node: torch.fx.Node) -> None:
        """What a node reads comes before it; views stand for what they are of."""
        if root(node) is not node:
            return
        for source in node.all_input_nodes:
            self.after.setdefault(self.vertex(root(source)), set()).add(self.vertex(node))

    def next(self, vertex: Vertex) -> set[Vertex]:
        """What comes directly after, by what it is joined to by now."""
        return {self.top(v) if isinstance(v, int) else v for v in self.after.get(vertex, ())} - {vertex}

    def between(self, one: int, other: int) -> bool:
        """Something else comes after `one` and before `other`."""
        pending = list(self.next(one) - {other})
        seen = set(pending)
        while pending:
            following = self.next(pending.pop())
            if other in following:
                return True
            pending += [v for v in following if v not in seen]
            seen |= following
        return False

    def join(self, one: int, other: int) -> None:
        one, other = self.top(one), self.top(other)
        if one != other and not self.between(one, other) and not self.between(other, one):
            self.parent[other] = one
            self.after.setdefault(one, set()).update(self.after.pop(other, set()))
