"""Kernels that compute a whole region: the terms by which they are known, and how they are called in its place."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import permutations
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from kernels.host import Host
from kernels.libraries.facts import facts_of
from kernels.libraries.fits import DTYPES, whole
from kernels.libraries.model import Facts
from kernels.libraries.patterns.terms import Bound, Term, behind, fits
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, Role, between, operation_names, role
from profiler.region.graph.nodes import is_call, shape, value
from profiler.region.language.vocabulary import DTYPE_NAMES
from profiler.region.language.vocabulary import DTYPES as DTYPE_OF

Settled = Callable[[Bound], Mapping[str, Any] | None]
"""What is bound -> roles for the call, axes and flags brought into its form; None where it only looks alike."""
Recognised = Callable[[Graph, Match], Mapping[str, Role] | None]
"""A match that was recognised already -> roles for the call; None where the kernel does another thing."""

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
    """One kernel that takes a whole region.

    name: the candidate's, and the kind of its matches. function: in `kernels.MODULE`. arguments: roles, in the
    function's order; those in `constants` are no tensors. fixed: what it is always called with as well. results:
    dtype of each ("f32", "i64"), or the role whose dtype it has. told: the constant by which the function is told
    the name of its result's dtype: the region's, in the place of that in `results`. rank: of the results, where the
    region may want other views of them; -1: of several. alike: roles of tensors that must have one dtype. strided:
    roles whose strides the results have; contiguous else, or channels_last where the role `planes` is. widened: the
    role of a flag that makes the result f32. paired: the role without which the function gives its first result
    alone. limits: why the kernel does not take a match, "" where it does; seen: roles that only this looks at.
    recognised: by the kind of the matches that `profiler.region.graph.patterns` gives, how one becomes the call's:
    they stand for patterns. trained: the function has a backward, by its name in `kernels.ops.trained`; untrained:
    roles that it has no gradient for.
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

    @property
    def call(self) -> str:
        """What the user writes, with the match's roles."""
        shown = ", ".join(
            [f"{{{a}!r}}" if a in self.constants else f"{{{a}}}" for a in self.arguments]
            + [f"{name}={v}" for name, v in self.fixed.items()]
        )
        return f"from kernels.{self.module} import {self.function}\n{{{RESULTS}}} = {self.function}({shown})"

    def matches(self, graph: Graph, known: Iterable[Match] = ()) -> Iterator[Match]:
        """The region, where it is what the kernel computes and nothing else: one match or none. known: what was
        recognised in it.
        """
        results = next(n for n in graph.module.graph.nodes if n.op == "output").args[0]
        results = results if isinstance(results, (tuple, list)) else (results,)
        if len(results) > 1 + len(FURTHER) or not all(isinstance(r, Node) for r in results):
            return
        if self.recognised:
            yield from self._taken(graph, known, results)
            return
        tries = ((p, o) for p in self.patterns if len(p.outputs) == len(results) for o in permutations(results))
        first = next((m for p, o in tries if (m := self._found(graph, p, o)) is not None), None)
        if first is not None:
            yield first

    def _taken(self, graph: Graph, known: Iterable[Match], results: Sequence[Node]) -> Iterator[Match]:
        """The match that is the whole region, as the kernel's."""
        for item in known:
            roles = self.recognised[item.kind](graph, item) if item.kind in self.recognised else None
            if roles is None or len(results) > 1 or whole(graph, item).startswith("the region"):
                continue
            told: dict[str, Role] = {a: roles.get(a) for a in (*self.arguments, *self.seen)}
            yield Match(self.name, self.function, True, item.operations, results[0].name, {**told, RESULTS: "y"})
            return

    def _found(self, graph: Graph, pattern: Pattern, results: Sequence[Node]) -> Match | None:
        assert self.settled is not None
        for bound in _bound(pattern, results):
            settled = self.settled(bound)
            if settled is None:
                continue
            leaves = [settled[a] for a in self.arguments if isinstance(settled.get(a), Node)]
            inside = operation_names(graph, between(results, leaves))
            roles: dict[str, Role] = {a: role(graph, settled.get(a)) for a in (*self.arguments, *self.seen)}
            if self.told:
                roles[self.told] = DTYPE_NAMES.get(value(results[0]).dtype, "")
            names: dict[int, str] = dict(zip(pattern.wanted, (r.name for r in results), strict=True))
            shown = ("y", *FURTHER)[: 1 if self._single(roles) else len(self.results)]
            roles |= {RESULTS: ", ".join(shown), **{FURTHER[i - 1]: name for i, name in names.items() if i}}
            match = Match(self.name, self.function, True, inside, names.get(0, results[0].name), roles)
            if not whole(graph, match).startswith("the region"):
                return match
        return None

    def reason(self, graph: Graph, match: Match) -> str:
        """Why it does not take a match; "" where it does."""
        facts = facts_of(match, graph, Host())
        if why_not := whole(graph, match, self.trained) or self._untrained(graph, match):
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
        given = {match.roles.get(a): a for a in self.untrained}
        wants = [given[i.name] for i in graph.region.inputs if i.requires_grad and i.name in given]
        return f"no gradient for {wants[0]}" if wants else ""

    def _wanted(self, match: Match) -> dict[int, str]:
        """Result's index -> the operation that it stands for."""
        names = {i: name for i, r in enumerate(FURTHER, 1) if isinstance(name := match.roles.get(r), str)}
        return names if match.output in names.values() else {0: match.output, **names}

    def replaced(self, graph: Graph, match: Match) -> torch.fx.GraphModule:
        """The graph's module with the call in the place of everything."""
        module = copy.deepcopy(graph.module)
        nodes = _named(graph, module)
        final = next(n for n in module.graph.nodes if n.op == "output")
        module_name = "ops.trained" if self.trained else self.module
        function = getattr(import_module(f"kernels.{module_name}"), self.function)
        given = [match.roles.get(a) for a in self.arguments]
        taken = [nodes[v] if isinstance(v, str) and a not in self.constants else v
                 for a, v in zip(self.arguments, given, strict=True)]  # fmt: skip
        with module.graph.inserting_before(final):
            made = module.graph.call_function(function, tuple(taken), dict(self.fixed))
            for index, name in self._wanted(match).items():
                wanted, old = value(nodes[name]), nodes[name]
                new = made if self._single(match.roles) else module.graph.call_function(operator.getitem, (made, index))
                if self.rank is not None and (wanted.dim() != self.rank or _before_views(old) != wanted.shape):
                    new = module.graph.call_function(torch.reshape, (new, tuple(wanted.shape)))
                if self._gives_dtype(index, match.roles, nodes) != wanted.dtype:
                    new = module.graph.call_function(torch.ops.aten._to_copy.default, (new,), {"dtype": wanted.dtype})
                final.replace_input_with(old, new)
        module.graph.eliminate_dead_code()
        module.graph.lint()
        module.recompile()
        return module

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
