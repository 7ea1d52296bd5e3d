"""Triton kernels written from a region: `triton:generated`.

Every fused group of the region's aten graph becomes one generated kernel, or a few where one cannot hold it: reductions
over other axes, few long rows, outputs of other sizes. Scatters and reductions of runs of rows are kernels of their
own, with the steps in front of them. So are matrix products with steps in front or a group behind, where that pays
(`graph/products.py`); any other is torch.mm and a generated tail. Every other operation stays the aten call it is. A
region with gradients becomes two halves, forward and backward. Random numbers come from one seed a call. What the
generator does not know raises Unsupported with the reason: nothing falls back silently.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import torch
import torch.fx

from kernels.codegen.anchors import Anchors
from kernels.codegen.budget import Budget
from kernels.codegen.expressions import ops, random
from kernels.codegen.graph.absorbing import absorbed
from kernels.codegen.graph.forward_backward_split import Halves, halves
from kernels.codegen.graph.joining import joined
from kernels.codegen.graph.own_operations import own, taken
from kernels.codegen.graph.prepare import apart, prepare
from kernels.codegen.graph.products import prologue
from kernels.codegen.graph.segment_forms import with_segments
from kernels.codegen.graph.split import split
from kernels.codegen.graph.updates import updates
from kernels.codegen.index import Unsupported
from kernels.codegen.nodes import base, is_fill
from kernels.codegen.pieces import Piece, Pieces, node_names
from kernels.codegen.plan import is_view
from kernels.codegen.scatter_plan import scattered
from kernels.codegen.seeds import draw_seed
from kernels.codegen.segment_plan import in_front
from kernels.codegen.text import source as files
from kernels.codegen.text.source import Source
from profiler.region.graph import fusion
from profiler.region.graph.lazy_code import graph_module
from profiler.region.graph.lowering import Graph
from profiler.region.model import ITEMSIZE

INTERPRETER_DTYPES = dict.fromkeys(
    (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2), torch.float32
)
"""The interpreter cuts f32 to bf16 instead of rounding: there a kernel stores f32 and torch rounds."""


NOTHING = "nothing in this region is pointwise or a reduction: there is no kernel to generate"


def interpreting() -> bool:
    """Triton runs in its interpreter, on the CPU: TRITON_INTERPRET=1 was set before Triton was imported."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


class Kernel:
    """A generated kernel as a callable: tensors in `source.inputs` order -> tuple of newly allocated outputs.

    Its file is loaded at the first call: to ask whether kernels can be generated loads none.
    """

    def __init__(self, source: Source, into: int | None = None) -> None:
        self.source, self.into = source, into  # the input in whose place the output may come: nobody else has it
        self.__name__ = source.kernel
        self._checked = False
        self._held_apart = interpreting() or not source.operands

    @functools.cached_property
    def module(self) -> ModuleType:
        """The kernel's file as a module."""
        return files.load(self.source)

    def __call__(self, *given: Any) -> tuple[torch.Tensor, ...]:
        """given: the tensors, then the seed where the kernel draws random numbers."""
        if not self._checked:
            self._check(given[: len(self.source.inputs)])
        if self._held_apart:
            return self._interpreted(given)
        if self.into is not None:
            self._launch(*given, given[self.into])
            return (given[self.into],)
        outputs: tuple[torch.Tensor, ...] = self._run(*given)
        return outputs

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

    def _interpreted(self, given: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        device = given[0].device if self.source.inputs else ("cpu" if interpreting() else "cuda")
        wanted = [getattr(torch, ops.TORCH_DTYPES[s.dtype][6:]) for s in self.source.outputs]
        held = [INTERPRETER_DTYPES.get(d, d) if interpreting() else d for d in wanted]
        made = [
            torch.empty_strided(s.shape, s.strides, dtype=d, device=device)
            for s, d in zip(self.source.outputs, held, strict=True)
        ]
        self._launch(*given, *made)
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


class _WithBackward(torch.autograd.Function):
    """Forward by one module, backward by another. A gradient of a gradient is not there."""

    @staticmethod
    def forward(ctx: Any, made: Trained, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.made, ctx.seed = made, draw_seed() if made.seeded else 0
        results = made.forward.module(*inputs, ctx.seed)
        outputs, left = results[: made.outputs], results[made.outputs :]
        # The backward reads nothing that is written over: a second forward may come before it
        kept = (x.data if over else x for x, over in zip(inputs, made.written, strict=True))
        ctx.save_for_backward(*kept, *left)
        ctx.mark_non_differentiable(*(o for o in outputs if not o.is_floating_point()))
        ctx.floating = [o.is_floating_point() for o in outputs]
        ctx.set_materialize_grads(True)
        return cast(tuple[torch.Tensor, ...], outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        given = [g for g, floating in zip(upstream, ctx.floating, strict=True) if floating]
        dense = [_laid_out(g, like) for g, like in zip(given, ctx.made.upstream, strict=True)]
        gradients = iter(ctx.made.backward.module(*ctx.saved_tensors, *dense, ctx.seed))
        return None, *(next(gradients) if wanted else None for wanted in ctx.made.requires_grad)


def _laid_out(gradient: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The gradient with the strides that the backward's kernels were written for."""
    if gradient.stride() == strides:
        return gradient
    return torch.empty_strided(gradient.shape, strides, dtype=gradient.dtype, device=gradient.device).copy_(gradient)


@dataclass(frozen=True)
class Trained:
    """A region with gradients: called with its inputs it gives outputs that autograd takes back through `backward`."""

    forward: Generated
    backward: Generated
    requires_grad: tuple[bool, ...]  # inputs of the region that require a gradient and get one
    outputs: int
    upstream: tuple[tuple[int, ...], ...]  # strides of the gradients that come in
    written: tuple[bool, ...]  # inputs that the forward writes over

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return cast(tuple[torch.Tensor, ...], _WithBackward.apply(self, *inputs))  # type: ignore[no-untyped-call]

    @property
    def seeded(self) -> bool:
        return any(s.seeded for s in self.sources)

    @property
    def sources(self) -> tuple[Source, ...]:
        return (*self.forward.sources, *self.backward.sources)

    @property
    def kept(self) -> tuple[str, ...]:
        return (*self.forward.kept, *self.backward.kept)

    @property
    def text(self) -> str:
        """All kernels as one text, in the order they run."""
        return "\n\n".join(s.text for s in self.sources)


def made(graph: Graph) -> Generated | Trained:
    """The region as `triton:generated` runs it. Raises Unsupported with the reason."""
    return trained(graph) if graph.region.requires_grad else generate(graph)


def _members(graph: Graph, group: fusion.Group) -> list[torch.fx.Node]:
    """The group's fx nodes in graph order, with the getitems of operations that give several tensors."""
    wanted = set(group.operations)
    return [
        n
        for n in graph.module.graph.nodes
        if n.name in wanted or (n.target is operator.getitem and n.args[0].name in wanted)
    ]


def generate(graph: Graph) -> Generated:
    """The whole region: fused groups as generated kernels, the rest as aten calls.

    Raises Unsupported where an operation of a fused group cannot be generated, and where no group is fused.
    A graph with gradients becomes a module that takes upstream gradients too; `trained` gives two halves instead.
    """
    graph = prepare(graph)
    random.number_streams(graph.module)
    result = _assembled(graph)
    if not result.sources:
        raise Unsupported(NOTHING)
    return result


def trained(graph: Graph) -> Trained:
    """A region with gradients as two modules. Raises Unsupported where either cannot be generated."""
    without = graph.without_gradient
    graph = own(apart(prepare(graph)))
    random.number_streams(graph.module)
    parts, forward, backward = _in_halves(graph)
    if (not forward.sources and not backward.sources) or any(h.kept and not h.sources for h in (forward, backward)):
        raise Unsupported(NOTHING)  # what is left to write stands round another's call
    needs = tuple(i.requires_grad and i.name not in without for i in graph.region.inputs)
    strides = tuple(t.stride for _, t in graph.inputs[len(needs) :])
    return Trained(forward, backward, needs, parts.outputs, strides, parts.written)


def _in_halves(graph: Graph) -> tuple[Halves, Generated, Generated]:
    """With statistics left in f32 where kernels make and read all of them: a call makes and takes the graph's types."""
    parts = halves(graph)
    try:
        forward, backward = (_assembled(half, seed_given=True) for half in (parts.forward, parts.backward))
        if not parts.wide or _within_kernels(parts, forward.module, backward.module):
            return parts, forward, backward
    except Unsupported:
        if not parts.wide:
            raise
    parts = halves(graph, wider=False)
    forward, backward = (_assembled(half, seed_given=True) for half in (parts.forward, parts.backward))
    return parts, forward, backward


def _within_kernels(parts: Halves, forward: torch.fx.GraphModule, backward: torch.fx.GraphModule) -> bool:
    """Whether every wide statistic is made by a generated kernel and read by such alone."""
    left = next(n for n in forward.graph.nodes if n.op == "output").args[0][parts.outputs :]
    given = [n for n in backward.graph.nodes if n.op == "placeholder"][len(parts.written) :]
    made = (left[i].target is operator.getitem and isinstance(left[i].args[0].target, Kernel) for i in parts.wide)
    return all(made) and all(_read_by_kernels(n) for i in parts.wide for n in (left[i], given[i]))


def _read_by_kernels(node: torch.fx.Node) -> bool:
    return all(
        u.op == "output" or isinstance(u.target, Kernel) or (is_view(u) and _read_by_kernels(u)) for u in node.users
    )


def _assembled(graph: Graph, seed_given: bool = False) -> Generated:
    """Without a kernel where there is none to write, as one half of a region with gradients may be."""
    graph = split(with_segments(graph))
    with_steps = absorbed(graph, _anchored)
    graph = own(apart(with_steps.graph))
    names = node_names(graph)
    lines = {i: text.strip() for i, text in enumerate(graph.region.source.splitlines(), 1)}
    pieces = Pieces(names, lines, Budget())
    anchors = Anchors(graph.module, with_steps.steps, pieces)
    groups = [_members(graph, g) for g in fusion.groups(graph, split=False) if g.fused]
    groups = [kept for group in groups if (kept := [n for n in group if n not in anchors.inside])]
    left = anchors.with_groups(joined(graph.module, groups))
    done = [*anchors.done, *(piece for group in left for piece in pieces.of(group))]
    inside = anchors.inside | {n for group in left for n in group}
    return _Assembly(graph, names, done, inside, seed_given).run()


def _anchored(node: torch.fx.Node) -> Sequence[torch.fx.Node]:
    """What a scatter, a product or a reduction of runs computes in front of it."""
    return scattered(node) or prologue(node) or in_front(node)


class _Assembly:
    """A new fx graph: kernels in the place of fused groups, everything else copied, in an order that runs."""

    def __init__(
        self, graph: Graph, names: Mapping[torch.fx.Node, str], pieces: Sequence[Piece], inside: set[torch.fx.Node],
        seed_given: bool,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.new = torch.fx.Graph()
        self.made: dict[torch.fx.Node, torch.fx.Node] = {}
        self.sources: list[Source] = []
        self.kept: list[str] = []
        self.seed: torch.fx.Node | None = None
        self.seed_given = seed_given
        self.names = names
        self.home: dict[torch.fx.Node, Piece] = {}  # what a kernel stores -> the kernel
        self.inside = inside  # what kernels compute
        for piece in pieces:
            self.sources.append(piece.source)
            self.home.update({node: piece for node in piece.stored if node not in self.home})

    def run(self) -> Generated:
        constants = torch.nn.Module()
        for node in self.graph.module.graph.nodes:
            if node.op == "placeholder":
                self.made[node] = self.new.placeholder(self.names[node])
            elif node.op == "get_attr":
                setattr(constants, str(node.target), getattr(self.graph.module, str(node.target)))
        if self.seed_given:
            self.seed = self.new.placeholder("seed_of_call")
        output = next(n for n in self.graph.module.graph.nodes if n.op == "output")
        results_ = torch.fx.node.map_arg(output.args[0], self.want)
        self.update()
        self.new.output(tuple(results_))
        module = graph_module(constants, self.new, "Generated")
        return Generated(module, tuple(self.sources), tuple(self.kept))

    def update(self) -> None:
        """What is written into inputs, all at once, when everything else has run."""
        written = updates(self.graph.module.graph)
        if written:
            values = [self.want(value) for value in written.values()]
            targets = [self.made[target] for target in written]
            self.new.call_function(torch.ops.aten._foreach_copy_.default, (targets, values))
            self.kept.append("copy_")

    def want(self, node: torch.fx.Node) -> torch.fx.Node:
        """The new graph's node for an old one, made with everything it needs. Iterative: graphs can be long."""
        pending = [node]
        open_: set[torch.fx.Node] = set()
        while pending:
            current = pending[-1]
            if current in self.made:
                pending.pop()
                continue
            needs = self.needs(current)
            missing = [n for n in needs if n not in self.made]
            if missing and current in open_:
                raise Unsupported("kernels that would wait for each other")
            open_.add(current)
            if missing:
                pending.extend(missing)
                continue
            self.make(current)
            pending.pop()
        return self.made[node]

    def needs(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        if node in self.home:
            return [o.node for o in self.home[node].source.operands]
        return list(node.all_input_nodes)

    def make(self, node: torch.fx.Node) -> None:
        if node in self.home:
            piece = self.home[node]
            arguments = [self.made[o.node] for o in piece.source.operands]
            if piece.source.seeded:
                self.seed = self.seed or self.new.call_function(draw_seed, ())
                arguments.append(self.seed)
            call = self.new.call_function(Kernel(piece.source, self.into(piece)), tuple(arguments))
            for i, stored in enumerate(piece.stored):
                if self.home[stored] is piece:
                    self.made[stored] = self.new.call_function(operator.getitem, (call, i))
            return
        if node in self.inside and not is_view(node):  # a step inside a kernel that nobody else should read
            raise Unsupported(f"{node.name} is not a result of its kernel")
        self.made[node] = self.new.node_copy(node, lambda n: self.made[n])
        if node.op == "call_function" and node.target is not operator.getitem:
            if not is_view(node) and not is_fill(node):
                self.kept.append(base(node))

    def into(self, piece: Piece) -> int | None:
        """The input that holds what the only output begins with, where it was written for this adding kernel alone."""
        source = piece.source
        if len(source.outputs) != 1 or source.outputs[0].start is None or len(source.arguments) > len(source.operands):
            return None
        output, start = source.outputs[0], source.outputs[0].start
        for place, (name, operand) in enumerate(zip(source.inputs, source.operands, strict=True)):
            alike = (operand.dtype, operand.shape, operand.strides) == (output.dtype, output.shape, output.strides)
            alone = list(operand.node.users) == [piece.stored[0]] and operand.node in self.home
            if name == start.operand and start.view is None and alike and alone:
                return place
        return None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What generating gave. text: all kernels, "" where refused says why there are none.

    launches, bytes_written: of the generated kernels alone, without the calls that stayed. bytes_between: that one of
    them reads and another has written. kept: calls. taken: operations that they compute where torch.compile makes one.
    """

    text: str
    refused: str = ""
    launches: int = 0
    bytes_written: int = 0
    bytes_between: int = 0
    kept: tuple[str, ...] = ()
    taken: frozenset[str] = frozenset()


def attempt(graph: Graph) -> Attempt:
    """The generated kernels as one text with what they launch and write, or why `triton:generated` cannot run it."""
    try:
        result = made(graph)
    except Unsupported as why:
        return Attempt("", str(why))
    operations = taken(graph)
    called = {o.name for o in graph.operations if o.extern} - operations  # written as the library would write it
    outputs = [o for s in result.sources for o in s.outputs if o.name not in called]
    stored = [(o.name, ITEMSIZE[o.dtype] * math.prod(o.shape)) for o in outputs]
    sizes = dict(stored)
    between = sum(sizes.get(name, 0) for s in result.sources for name in s.inputs)
    written = sum(size for _, size in stored)
    return Attempt(result.text, "", len(result.sources), written, between, result.kept, operations)
