"""Triton kernels written from a region: `triton:generated`.

Every fused group of the region's aten graph becomes one generated kernel (or a few, where one cannot hold it), every
other operation stays the aten call it is; a matrix product with a tail is torch.mm and a generated tail. What the
generator does not know raises Unsupported with the reason: nothing falls back silently.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import torch
import torch.fx

from kernels.codegen import ops
from kernels.codegen import source as files
from kernels.codegen.budget import ONE_KERNEL, Budget, TooLong
from kernels.codegen.index import Unsupported
from kernels.codegen.nodes import base, is_fill
from kernels.codegen.plan import is_view, plan, results
from kernels.codegen.source import Source
from profiler.region import fusion
from profiler.region.graph import Graph

INTERPRETER_DTYPES = {torch.bfloat16: torch.float32, torch.float16: torch.float32}
"""The interpreter cuts f32 to bf16 instead of rounding: there a kernel stores f32 and torch rounds."""


def interpreting() -> bool:
    """Triton runs in its interpreter, on the CPU: TRITON_INTERPRET=1 was set before Triton was imported."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


class Kernel:
    """A generated kernel as a callable: tensors in `source.inputs` order -> tuple of newly allocated outputs.

    Its file is loaded at the first call: to ask whether kernels can be generated loads none.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.__name__ = source.kernel
        self._checked = False
        self._held_apart = interpreting() or not source.operands

    @functools.cached_property
    def module(self) -> ModuleType:
        """The kernel's file as a module."""
        return files.load(self.source)

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not self._checked:
            self._check(tensors)
        if self._held_apart:
            return self._interpreted(tensors)
        return self._run(*tensors)

    def _check(self, tensors: Sequence[torch.Tensor]) -> None:
        """The tensors are what the text was written for; raises ValueError where they are not."""
        for name, operand, tensor in zip(self.source.inputs, self.source.operands, tensors, strict=True):
            strides = [(s, t) for s, t, n in zip(tensor.stride(), operand.strides, tensor.shape, strict=False) if n > 1]
            fits = tuple(tensor.shape) == operand.shape and all(a == b for a, b in strides)
            if not fits or str(tensor.dtype) != ops.TORCH_DTYPES[operand.dtype]:
                raise ValueError(
                    f"{self.source.kernel} was written for {name}: {operand.dtype}{list(operand.shape)} with strides "
                    f"{operand.strides}, not {tensor.dtype}{list(tensor.shape)} with {tensor.stride()}"
                )
        self._launch, self._run = self.module.launch, self.module.run
        self._checked = True

    def _interpreted(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        device = tensors[0].device if tensors else ("cpu" if interpreting() else "cuda")
        wanted = [getattr(torch, ops.TORCH_DTYPES[s.dtype][6:]) for s in self.source.outputs]
        held = [INTERPRETER_DTYPES.get(d, d) if interpreting() else d for d in wanted]
        made = [
            torch.empty_strided(s.shape, s.strides, dtype=d, device=device)
            for s, d in zip(self.source.outputs, held, strict=True)
        ]
        self._launch(*tensors, *made)
        return tuple(t if t.dtype == d else t.to(d) for t, d in zip(made, wanted, strict=True))


@dataclass(frozen=True)
class Generated:
    """A region as generated kernels and aten calls. module(*inputs) -> tuple of outputs."""

    module: torch.fx.GraphModule
    sources: tuple[Source, ...]
    kept: tuple[str, ...]  # aten operations that stayed calls

    @property
    def text(self) -> str:
        """All kernels as one text, in the order they run."""
        return "\n\n".join(s.text for s in self.sources)


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


def sources(graph: Graph, group: fusion.Group) -> tuple[Source, ...]:
    """The kernels that compute one fused group, in order: one where that is possible.

    Raises Unsupported with the reason where some operation cannot be generated.
    """
    return tuple(source for source, _ in _pieces(graph, _members(graph, group), Budget()))


def _members(graph: Graph, group: fusion.Group) -> list[torch.fx.Node]:
    """The group's fx nodes in graph order, with the getitems of operations that give several tensors."""
    wanted = set(group.operations)
    return [
        n
        for n in graph.module.graph.nodes
        if n.name in wanted or (n.target is operator.getitem and n.args[0].name in wanted)
    ]


def _pieces(graph: Graph, nodes: Sequence[torch.fx.Node], budget: Budget) -> list[tuple[Source, list[torch.fx.Node]]]:
    """Kernels with the nodes they compute: the longest run of operations that fits in one, then the rest."""
    names, lines = node_names(graph), _lines(graph)
    done: list[tuple[Source, list[torch.fx.Node]]] = []
    rest = list(nodes)
    while rest:
        reason: Unsupported | None = None
        for count in range(len(rest), 0, -1):
            if count < len(rest) and rest[count].target is operator.getitem:
                continue  # a result stays with its operation
            budget.spend(1 + count // 10)
            head = rest[:count]
            if not results([n for n in head if not is_view(n)]):
                continue
            try:
                source = _write(graph, head, names, lines, budget)
            except TooLong:
                raise
            except Unsupported as why:
                reason = reason or why
                continue
            budget.spend(ONE_KERNEL)
            done.append((source, head))
            rest = rest[count:]
            break
        else:
            raise reason or Unsupported("nothing to compute")
    return done


def _write(
    graph: Graph,
    nodes: Sequence[torch.fx.Node],
    names: Mapping[torch.fx.Node, str],
    lines: Mapping[int, str],
    budget: Budget,
) -> Source:
    made = plan(nodes, names, budget)
    labels = [graph.operation(n.name).label for n in nodes if n.target is not operator.getitem]
    short = list(dict.fromkeys(name for name in labels if name.isidentifier()))[:5]
    kernel = "generated_" + "_".join(short or ["kernel"])
    return files.write(made, ", ".join(dict.fromkeys(labels)), kernel, lines)


def _lines(graph: Graph) -> dict[int, str]:
    return {i: text.strip() for i, text in enumerate(graph.region.source.splitlines(), 1)}


def generate(graph: Graph) -> Generated:
    """The whole region: fused groups as generated kernels, the rest as aten calls.

    Raises Unsupported where an operation of a fused group cannot be generated, and where no group is fused.
    """
    groups = [g for g in fusion.groups(graph, split=False) if g.fused]
    if not groups:
        raise Unsupported("nothing in this region is pointwise or a row reduction: there is no kernel to generate")
    for node in graph.module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            raise Unsupported(f"{node.target}: it writes into its input")
    return _Assembly(graph, groups).run()


class _Assembly:
    """A new fx graph: kernels in the place of fused groups, everything else copied, in an order that runs."""

    def __init__(self, graph: Graph, groups: Sequence[fusion.Group]) -> None:
        self.graph = graph
        self.new = torch.fx.Graph()
        self.made: dict[torch.fx.Node, torch.fx.Node] = {}
        self.sources: list[Source] = []
        self.kept: list[str] = []
        self.names = node_names(graph)
        self.by_name = {n: node for node, n in self.names.items()}
        self.piece: dict[torch.fx.Node, tuple[Source, list[torch.fx.Node]]] = {}
        budget = Budget()
        for group in groups:
            for source, nodes in _pieces(graph, _members(graph, group), budget):
                self.sources.append(source)
                for node in nodes:
                    self.piece[node] = (source, nodes)

    def run(self) -> Generated:
        constants = torch.nn.Module()
        for node in self.graph.module.graph.nodes:
            if node.op == "placeholder":
                self.made[node] = self.new.placeholder(self.names[node])
            elif node.op == "get_attr":
                setattr(constants, str(node.target), getattr(self.graph.module, str(node.target)))
        output = next(n for n in self.graph.module.graph.nodes if n.op == "output")
        results_ = torch.fx.node.map_arg(output.args[0], self.want)
        self.new.output(tuple(results_))
        module = torch.fx.GraphModule(constants, self.new, class_name="Generated")
        return Generated(module, tuple(self.sources), tuple(self.kept))

    def want(self, node: torch.fx.Node) -> torch.fx.Node:
        """The new graph's node for an old one, made with everything it needs. Iterative: graphs can be long."""
        pending = [node]
        while pending:
            current = pending[-1]
            if current in self.made:
                pending.pop()
                continue
            needs = self.needs(current)
            missing = [n for n in needs if n not in self.made]
            if missing:
                pending.extend(missing)
                continue
            self.make(current)
            pending.pop()
        return self.made[node]

    def needs(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        if node in self.piece and not is_view(node):
            return [o.node for o in self.piece[node][0].operands]
        return list(node.all_input_nodes)

    def make(self, node: torch.fx.Node) -> None:
        if node not in self.piece or is_view(node):
            self.made[node] = self.new.node_copy(node, lambda n: self.made[n])
            if (
                node.op == "call_function"
                and node.target is not operator.getitem
                and not is_view(node)
                and not is_fill(node)
            ):
                self.kept.append(base(node))
            return
        source, _ = self.piece[node]
        call = self.new.call_function(Kernel(source), tuple(self.made[o.node] for o in source.operands))
        for i, store in enumerate(source.outputs):
            self.made[self.by_name[store.name]] = self.new.call_function(operator.getitem, (call, i))
        if node not in self.made:  # a step inside the kernel that nobody else reads
            raise Unsupported(f"{node.name} is not a result of its kernel")


def covers(graph: Graph) -> tuple[bool, str]:
    """Whether `triton:generated` can run the region, else why not."""
    try:
        generate(graph)
    except Unsupported as why:
        return False, str(why)
    return True, ""
