"""Kernels around a scatter, a product, a reduction of runs: with the steps in front and a group behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.fx

from kernels.codegen.budget import TooLong
from kernels.codegen.graph.products import Epilogues, pays_behind
from kernels.codegen.index import Unsupported
from kernels.codegen.pieces import Piece, Pieces
from kernels.codegen.plan import is_view
from kernels.codegen.product_plan import is_product
from kernels.codegen.scatter_plan import scattered
from kernels.codegen.segment_plan import is_segments


class Anchors:
    """The kernels that were written (`done`) and the nodes that they compute (`inside`).

    What cannot be one kernel is left: scatters and products stay calls, the steps in front stay with their groups.
    """

    def __init__(
        self, module: torch.fx.GraphModule, steps: Mapping[str, Sequence[torch.fx.Node]], pieces: Pieces
    ) -> None:
        self.pieces = pieces
        self.done: list[Piece] = []
        self.inside: set[torch.fx.Node] = set()
        self.products: dict[torch.fx.Node, Sequence[torch.fx.Node]] = {}  # with or without steps in front
        self.alone: dict[torch.fx.Node, Piece] = {}  # with steps in front and nothing behind
        for node in module.graph.nodes:
            own = steps.get(node.name, ())
            if is_product(node) or is_segments(node):
                self.products[node] = own
                piece = self.tried(node, own) if own or is_segments(node) else None
                if piece is not None:
                    self.alone[node] = piece
                    self.take(own)
                else:
                    self.products[node] = ()
            elif scattered(node):
                piece = self.tried(node, own)
                if piece is not None:
                    self.done.append(piece)
                    self.take(own)

    def tried(
        self, node: torch.fx.Node, steps: Sequence[torch.fx.Node], behind: Sequence[torch.fx.Node] = ()
    ) -> Piece | None:
        """The kernel, None where there can be none."""
        try:
            if is_product(node):
                return self.pieces.product(node, steps, behind)
            if is_segments(node):
                return self.pieces.segments(node, steps, behind)
            return self.pieces.scatter(node, steps)
        except TooLong:
            raise
        except Unsupported:
            return None

    def take(self, nodes: Sequence[torch.fx.Node]) -> None:
        self.inside.update(n for n in nodes if not is_view(n))

    def with_groups(self, groups: Sequence[Sequence[torch.fx.Node]]) -> list[Sequence[torch.fx.Node]]:
        """Gives products the groups behind them; the groups that are left."""
        taken: set[int] = set()
        epilogues = Epilogues(groups)
        for node in reversed(self.products):
            steps = self.products[node]
            pays = node in self.alone or (is_product(node) and pays_behind(node))
            number = epilogues.of(node, taken) if pays else None
            piece = None if number is None else self.tried(node, steps, groups[number])
            if piece is not None and number is not None:
                taken.add(number)
                self.take(groups[number])
            else:
                piece = self.alone.get(node)
            if piece is not None:
                self.done.append(piece)
                self.take([node])
        return [g for i, g in enumerate(groups) if i not in taken]
