"""The kernels of one fused group: one where that is possible, else one for each stage, else runs of operations."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import torch.fx

from kernels.codegen.budget import ONE_KERNEL, Budget, TooLong
from kernels.codegen.index import Unsupported
from kernels.codegen.nodes import is_fill
from kernels.codegen.plan import Plan, is_view, plan, results
from kernels.codegen.product_plan import Product, plan_product
from kernels.codegen.scatter_plan import plan_scatter
from kernels.codegen.segment_plan import Segments, plan_segments
from kernels.codegen.stages import stages
from kernels.codegen.text import product, segments
from kernels.codegen.text import source as files
from kernels.codegen.text.shapes import Body, body
from kernels.codegen.text.source import Source
from kernels.codegen.traits_model import GeneratedTraits
from profiler.region.graph.lowering import Graph


@dataclass(frozen=True, slots=True)
class Piece:
    """One kernel and the nodes whose results it stores."""

    source: Source
    stored: tuple[torch.fx.Node, ...]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Writes the kernels of a graph's groups. names: of nodes, in text; lines: the region's text by line."""

    names: Mapping[torch.fx.Node, str]
    lines: Mapping[int, str]
    budget: Budget

    def of(self, nodes: Sequence[torch.fx.Node]) -> list[Piece]:
        """Kernels in an order that runs. nodes: the group's, in graph order. Raises Unsupported with the reason."""
        if not results([n for n in nodes if not is_view(n)]):
            raise Unsupported("nothing to compute")
        try:
            return [self.one(nodes)]
        except TooLong:
            raise
        except Unsupported as why:
            reason = why
        in_stages = stages(nodes, self.budget)
        if len(in_stages) < 2:
            return self.runs(nodes, reason)
        done: list[Piece] = []
        for stage in in_stages:
            try:
                done.append(self.one(stage.nodes, stage.wanted))
            except TooLong:
                raise
            except Unsupported as why:
                done += self.runs(stage.nodes, why)
        return done

    def one(self, nodes: Sequence[torch.fx.Node], wanted: Sequence[torch.fx.Node] | None = None) -> Piece:
        """One kernel for all of them."""
        self.budget.spend(1 + len(nodes) // 10)
        made = plan(nodes, self.names, self.budget, wanted)
        self.budget.spend(ONE_KERNEL)
        return self.written(made, nodes)

    def written(
        self, made: Plan, nodes: Sequence[torch.fx.Node], shape: files.Shape = body, parts: Sequence[Plan] = ()
    ) -> Piece:
        """The plan's text. nodes: what it is called after. parts: what it computes over domains of their own."""
        labels = [label(n) for n in nodes if n.target is not operator.getitem]
        short = list(dict.fromkeys(name for name in labels if name.isidentifier()))[:5]
        kernel = "generated_" + "_".join(short or ["kernel"])
        by_name = {name: node for node, name in self.names.items()}
        stored = tuple(by_name[s.name] for s in made.stores)
        source = files.write(made, ", ".join(dict.fromkeys(labels)), kernel, self.lines, shape, parts)
        return Piece(replace(source, lines=_lines_of(nodes)), stored)

    def scatter(self, node: torch.fx.Node, steps: Sequence[torch.fx.Node]) -> Piece:
        """One kernel for a scatter and the steps in front of it. Raises Unsupported with the reason."""
        self.budget.spend(ONE_KERNEL + len(steps))
        made = plan_scatter(node, steps, self.names, self.budget)
        return self.written(made, [*_told(steps), node])

    def product(
        self, node: torch.fx.Node, steps: Sequence[torch.fx.Node], behind: Sequence[torch.fx.Node] = ()
    ) -> Piece:
        """One kernel for a product, the steps in front of it and a group behind it. Raises Unsupported."""
        self.budget.spend(ONE_KERNEL + len(steps) + len(behind))
        made = plan_product(node, steps, behind, self.names, self.budget)
        shape = functools.partial(_product_body, made)
        parts = (made.left.plan, made.right.plan, made.result)
        piece = self.written(made.plan, [*_told(steps), node, *behind], shape, parts)
        return replace(piece, source=replace(piece.source, traits=_of_product(piece.source.traits, made)))

    def segments(
        self, node: torch.fx.Node, steps: Sequence[torch.fx.Node], behind: Sequence[torch.fx.Node] = ()
    ) -> Piece:
        """One kernel for a reduction of runs, the steps in front of it and a group behind it. Raises Unsupported."""
        self.budget.spend(ONE_KERNEL + len(steps) + len(behind))
        made = plan_segments(node, steps, behind, self.names, self.budget)
        shape = functools.partial(_segments_body, made)
        parts = (made.source.plan, made.result)
        return self.written(made.plan, [*_told(steps), node, *behind], shape, parts)

    def runs(self, nodes: Sequence[torch.fx.Node], reason: Unsupported) -> list[Piece]:
        """The longest run of operations that fits in one kernel, then the rest. reason: why all of them do not."""
        done: list[Piece] = []
        rest = list(nodes)
        while rest:
            for count in range(len(rest) - (not done), 0, -1):
                if count < len(rest) and rest[count].target is operator.getitem:
                    continue  # a result stays with its operation
                head = rest[:count]
                if not results([n for n in head if not is_view(n)]):
                    continue
                try:
                    piece = self.one(head)
                except TooLong:
                    raise
                except Unsupported:
                    continue
                done.append(piece)
                rest = rest[count:]
                break
            else:
                raise reason
        return done


def _lines_of(nodes: Sequence[torch.fx.Node]) -> tuple[int, ...]:
    """The lines of the region's text that nodes are from; what autograd adds is from none."""
    written = {int((node.meta.get("custom") or {}).get("line", 0)) for node in nodes}
    return tuple(sorted(written - {0}))


def _told(steps: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    return [s for s in steps if not is_fill(s) and not is_view(s)]


def _of_product(traits: GeneratedTraits | None, made: Product) -> GeneratedTraits | None:
    """The traits with the sizes of the product."""
    if traits is None:
        return None
    return msgspec.structs.replace(
        traits, rows=made.m, columns=made.n, batch=made.batch, inner=made.k,
        flops=2 * made.batch * made.m * made.n * made.k, dtype=made.left.dtype,
    )  # fmt: skip


def _product_body(made: Product, _: Plan, parameters: Mapping[str, str], lines: Mapping[int, str]) -> Body:
    return product.body(made, parameters, lines)


def _segments_body(made: Segments, _: Plan, parameters: Mapping[str, str], lines: Mapping[int, str]) -> Body:
    return segments.body(made, parameters, lines)


def label(node: torch.fx.Node) -> str:
    """How the region's text calls the operation."""
    said = str((node.meta.get("custom") or {}).get("label") or str(node.target).split(".")[1])
    return "to" if said in ("float", "half", "bfloat16", "type_as") else said


def node_names(graph: Graph) -> dict[torch.fx.Node, str]:
    """fx node -> its name in text, each once: inputs keep the region's, operations the graph's where free."""
    inputs = iter(graph.inputs)
    taken = {name for name, _ in graph.inputs}
    names: dict[torch.fx.Node, str] = {}
    for node in graph.module.graph.nodes:
        if node.op == "placeholder":
            names[node] = next(inputs)[0]
            continue
        name = node.name
        while name in taken:
            name += "_"
        taken.add(name)
        names[node] = name
    return names
