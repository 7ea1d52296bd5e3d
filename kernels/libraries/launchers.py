"""Kernels known by terms: of a whole region or, with gradients, of a part; how they are called in its place."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain, permutations
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from kernels.host import Host
from kernels.libraries.facts import facts_of
from kernels.libraries.fits import DTYPES, replaces, whole
from kernels.libraries.model import Facts
from kernels.libraries.patterns.terms import Bound, Term, behind, fits, heads
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import (
    Match,
    Role,
    between,
    covered_operations,
    node_of,
    operation_names,
    role,
)
from profiler.region.graph.nodes import is_call, shape, value
from profiler.region.language.vocabulary import DTYPE_NAMES
from profiler.region.language.vocabulary import DTYPES as DTYPE_OF

Settled = Callable[[Bound], Mapping[str, Any] | None]
"""What is bound -> roles for the call, axes and flags brought into its form; None where it only looks alike."""
Recognised = Callable[[Graph, Match], Mapping[str, Role] | None]
"""A match that was recognised already -> roles for the call; None where the kernel does another thing."""
Walk = Callable[[Graph], Iterator[tuple[Node, Bound]]]
"""What no terms say, because it is as long as the region writes it: each result in a graph, and what is bound then."""

FURTHER = ("second", "third")
"""The roles of the operations that the call's further results stand for."""
RESULTS = "results"
"""Names that the shown call gives its results."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to write it. outputs: of the region, in the order of the call's results; one result may go unused.

    wanted: which of the call's results they are. exact: see `terms.fits`.
    """

    outputs: tuple[Term, ...]
    wanted: tuple[int, ...] = (0,)
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Launcher:
    """One kernel that takes a whole region; one that has a backward also each part of a region with gradients.

    name: the candidate's, and the kind of its matches. function: in `kernels.MODULE`. arguments: roles, in the
    function's order; those in `constants` are no tensors. fixed: what it is always called with as well. results:
    dtype of each ("f32", "i64"), or the role whose dtype it has. told: the constant by which the function is told
    the name of its result's dtype: the region's, in the place of that in `results`. rank: of the results, where the
    region may want other views of them; -1: of several. alike: roles of tensors that must have one dtype. strided:
    roles whose strides the results have; contiguous else, or channels_last where the role `planes` is. widened: the
    role of a flag that makes the result f32. paired: the role without which the function gives its first result
    alone. limits: why the kernel does not take a match, "" where it does; seen: roles that only this looks at.
    recognised: by the kind of the matches that `profiler.region.graph.patterns` gives, how one becomes the call's:
    they stand for patterns, and for whole regions. walk: finds what no patterns do. trained: the function has a
    backward, by its name in `kernels.ops.trained`; untrained: roles that it has no gradient for.
    """

    name: str
    module: str
    function: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    settled: Settled | None
    alike: tuple[str, ...]
    constants: frozenset[str] = frozenset()
    rank: int | None = None
    strided: tuple[str, ...] = ()
    planes: str = ""
    widened: str = ""
    paired: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seen: tuple[str, ...] = ()
    limits: Callable[[Facts, Graph], str] | None = None
    recognised: Mapping[str, Recognised] = field(default_factory=dict)
    trained: bool = False
    untrained: tuple[str, ...] = ()
    told: str = ""
    walk: Walk | None = None

    @property
    def call(self) -> str:
        """What the user writes, with the match's roles."""
        shown = ", ".join(
            [f"{{{a}!r}}" if a in self.constants else f"{{{a}}}" for a in self.arguments]
            + [f"{name}={v}" for name, v in self.fixed.items()]
        )
        return f"from kernels.{self.module} import {self.function}\n{{{RESULTS}}} = {self.function}({shown})"

    def matches(self, graph: Graph, known: Iterable[Match] = ()) -> Iterator[Match]:
        """The region, where it is what the kernel computes and nothing else: one match; else, where gradients are
        wanted and the kernel has them, each part that it computes. known: what was recognised in it.
        """
        results = next(n for n in graph.module.graph.nodes if n.op == "output").args[0]
        results = results if isinstance(results, (tuple, list)) else (results,)
        few = len(results) <= 1 + len(FURTHER) and all(isinstance(r, Node) for r in results)
        if self.recognised:
            yield from self._taken(graph, known, results) if few else ()
            return
        all_of_it = next(self._whole(graph, results), None) if few else None
        if all_of_it is not None:
            yield all_of_it
        elif self.trained and graph.region.requires_grad:
            yield from self._parts(graph)

    def _taken(self, graph: Graph, known: Iterable[Match], results: Sequence[Node]) -> Iterator[Match]:
        """The match that is the whole region, as the kernel's."""
        for item in known:
            roles = self.recognised[item.kind](graph, item) if item.kind in self.recognised else None
            if roles is None or len(results) > 1 or whole(graph, item).startswith("the region"):
                continue
            told: dict[str, Role] = {a: roles.get(a) for a in (*self.arguments, *self.seen)}
            yield Match(self.name, self.function, True, item.operations, results[0].name, {**told, RESULTS: "y"})
            return

    def _whole(self, graph: Graph, results: Sequence[Node]) -> Iterator[Match]:
        tries = [(p, o) for p in self.patterns if len(p.outputs) == len(results) for o in permutations(results)]
        found = ((bound, o, p.wanted) for p, o in tries for bound in _bound(p, o))
        walked = self.walk(graph) if self.walk is not None and len(results) == 1 else ()
        ends = ((bound, [node], (0,)) for node, bound in walked if node is behind(results[0], exact=True))
        for bound, outputs, wanted in chain(found, ends):
            match = self._match(graph, bound, outputs, wanted)
            if match is not None and not whole(graph, match).startswith("the region"):
                yield match

    def _parts(self, graph: Graph) -> Iterator[Match]:
        """Parts with one result; none shares an operation with another."""
        taken: set[str] = set()
        for node, bound in self._singles(graph):
            match = self._match(graph, bound, (node,), (0,), part=True)
            if match is not None and not match.operations & taken:
                taken |= match.operations
                yield match

    def _singles(self, graph: Graph) -> Iterator[tuple[Node, Bound]]:
        terms = [(p.outputs[0], heads(p.outputs[0]), p.exact) for p in self.patterns if p.wanted == (0,)]
        for node, name in graph.named_calls:
            for term, names, exact in terms:
                if name in names:
                    yield from ((node, bound) for bound in fits(term, node, {}, exact))
        if self.walk is not None:
            yield from self.walk(graph)

    def _match(
        self, graph: Graph, bound: Bound, results: Sequence[Node], wanted: Sequence[int], part: bool = False
    ) -> Match | None:
        """part: None too where others read what is computed on the way, which would stay computed."""
        assert self.settled is not None
        settled = self.settled(bound)
        if settled is None:
            return None
        leaves = [settled[a] for a in self.arguments if isinstance(settled.get(a), Node)]
        if part:
            inside = covered_operations(graph, results[0], leaves)
        else:
            inside = operation_names(graph, between(results, leaves))
        if inside is None:
            return None
        roles: dict[str, Role] = {a: role(graph, settled.get(a)) for a in (*self.arguments, *self.seen)}
        if self.told:
            roles[self.told] = DTYPE_NAMES.get(value(results[0]).dtype, "")
        names: dict[int, str] = dict(zip(wanted, (r.name for r in results), strict=True))
        shown = ("y", *FURTHER)[: 1 if self._single(roles) else len(self.results)]
        roles |= {RESULTS: ", ".join(shown), **{FURTHER[i - 1]: name for i, name in names.items() if i}}
        return Match(self.name, self.function, True, inside, names.get(0, results[0].name), roles)

    def reason(self, graph: Graph, match: Match) -> str:
        """Why it does not take a match; "" where it does."""
        facts = facts_of(match, graph, Host())
        if why_not := replaces(graph, match, self.trained) or self._untrained(graph, match):
            return why_not
        dtypes = {facts.dtypes[r] for r in self.alike if r in facts.dtypes}
        if len(dtypes) != 1 or not dtypes <= DTYPES:
            return f"operands of {', '.join(sorted(dtypes)) or 'nothing'}"
        nodes = _named(graph, graph.module)
        for index, name in self._wanted(match).items():
            out, made = value(nodes[name]), self._gives(index, match.roles)
            wanted = DTYPE_NAMES.get(out.dtype, str(out.dtype))
            if made in self.arguments and facts.dtypes[made] != wanted:
                return f"{facts.dtypes[made]} in, {wanted} out"
            if wanted != made and wanted not in DTYPES:
                return f"{wanted} out"
            if not self._laid_out(index, out, match, nodes):
                return "a result of other strides"
        return self.limits(facts, graph) if self.limits else ""

    def _untrained(self, graph: Graph, match: Match) -> str:
        """Which operand wants a gradient that the kernel does not have; "" where none does."""
        wanting = {i.name for i in graph.region.inputs if i.requires_grad}
        nodes = {a: node_of(graph, match.roles.get(a)) for a in self.untrained}
        wants = [a for a, node in nodes.items() if node is not None and wanting & _inputs_of(graph, node)]
        return f"no gradient for {wants[0]}" if wants else ""

    def _wanted(self, match: Match) -> dict[int, str]:
        """Result's index -> the operation that it stands for."""
        names = {i: name for i, r in enumerate(FURTHER, 1) if isinstance(name := match.roles.get(r), str)}
        return names if match.output in names.values() else {0: match.output, **names}

    def replaced(self, graph: Graph, matches: Sequence[Match]) -> torch.fx.GraphModule:
        """The graph's module with the call in the place of every match."""
        module = copy.deepcopy(graph.module)
        nodes = _named(graph, module)
        for match in matches:
            self._replace(module.graph, nodes, match)
        module.graph.eliminate_dead_code()
        module.graph.lint()
        module.recompile()
        return module

    def _replace(self, code: torch.fx.Graph, nodes: dict[str, Node], match: Match) -> None:
        final = next(n for n in code.nodes if n.op == "output")
        module_name = "ops.trained" if self.trained else self.module
        function = getattr(import_module(f"kernels.{module_name}"), self.function)
        given = [match.roles.get(a) for a in self.arguments]
        taken = [nodes[v] if isinstance(v, str) and a not in self.constants else v
                 for a, v in zip(self.arguments, given, strict=True)]  # fmt: skip
        wanted_nodes = {index: nodes[name] for index, name in self._wanted(match).items()}
        alone = next(iter(wanted_nodes.values())) if len(wanted_nodes) == 1 else None
        with code.inserting_before(final if alone is None else alone):
            made = code.call_function(function, tuple(taken), dict(self.fixed))
            for index, old in wanted_nodes.items():
                wanted = value(old)
                new = made if self._single(match.roles) else code.call_function(operator.getitem, (made, index))
                if self.rank is not None and (wanted.dim() != self.rank or _before_views(old) != wanted.shape):
                    new = code.call_function(torch.reshape, (new, tuple(wanted.shape)))
                if self._gives_dtype(index, match.roles, nodes) != wanted.dtype:
                    new = code.call_function(torch.ops.aten._to_copy.default, (new,), {"dtype": wanted.dtype})
                new.meta["val"] = wanted
                if alone is None:  # one of the results may be read by what computes another
                    final.replace_input_with(old, new)
                else:
                    old.replace_all_uses_with(new)
                nodes[old.name] = new

    def _laid_out(self, index: int, out: torch.Tensor, match: Match, nodes: Mapping[str, Node]) -> bool:
        """The kernel's result has the strides of the region's."""
        if self.strided:
            return out.stride() == value(nodes[str(match.roles[self.strided[index]])]).stride()
        planes = self.planes and not value(nodes[str(match.roles[self.planes])]).is_contiguous()
        return out.is_contiguous(memory_format=torch.channels_last if planes else torch.contiguous_format)

    def _single(self, roles: Mapping[str, Role]) -> bool:
        """The function gives one tensor, no tuple."""
        return len(self.results) == 1 or bool(self.paired and roles[self.paired] is None)

    def _gives(self, index: int, roles: Mapping[str, Role]) -> str:
        """The result's dtype, or the role whose dtype it has."""
        if self.told:
            return str(roles[self.told])
        return "f32" if self.widened and roles[self.widened] else self.results[index]

    def _gives_dtype(self, index: int, roles: Mapping[str, Role], nodes: Mapping[str, Node]) -> torch.dtype:
        made = self._gives(index, roles)
        return value(nodes[str(roles[made])]).dtype if made in self.arguments else DTYPE_OF[made]


def _before_views(node: Node) -> tuple[int, ...]:
    """The shape in front of the views that a result goes through last."""
    while is_call(node, "view", "_unsafe_view", "reshape") and isinstance(node.args[0], Node):
        node = node.args[0]
    return shape(node)


def _named(graph: Graph, module: torch.fx.GraphModule) -> dict[str, Node]:
    """The module's nodes by the names that roles have."""
    holders = [n for n in module.graph.nodes if n.op == "placeholder"]
    inputs = {name: node for (name, _), node in zip(graph.inputs, holders, strict=True)}
    return {n.name: n for n in module.graph.nodes} | inputs


def _inputs_of(graph: Graph, node: Node) -> set[Role]:
    """The region's inputs that a node is, or is computed from."""
    reached = {node, *(n for inside in between([node], ()) for n in inside.all_input_nodes)}
    return {role(graph, n) for n in reached if n.op == "placeholder"}


def _bound(pattern: Pattern, results: Sequence[Node]) -> Iterator[Bound]:
    """Every way in which the region's outputs are the pattern's."""

    def more(index: int, bound: Bound) -> Iterator[Bound]:
        if index == len(results):
            yield bound
            return
        # A result's own rounding stays the region's, whatever is chosen before it.
        for extended in fits(pattern.outputs[index], behind(results[index], exact=False), bound, pattern.exact):
            yield from more(index + 1, extended)

    yield from more(0, {})
