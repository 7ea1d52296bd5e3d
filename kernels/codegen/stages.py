"""A fused group in several kernels, where one cannot hold it: reductions over other axes, outputs of other sizes.

A kernel reduces over one set of axes. What several kernels need of the pointwise operations between is computed again
in each, from inputs: only a reduction's result and what the group gives away anyhow is kept in memory.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch.fx

from kernels.codegen.budget import Budget
from kernels.codegen.expressions import ops
from kernels.codegen.expressions.reductions import reduced_over
from kernels.codegen.nodes import base, fake, root
from kernels.codegen.plan import is_view, results

Signature = tuple[tuple[int, bool], ...]
"""Sizes of what is walked over, outermost first, and whether each is reduced; neighbours alike are one."""


@dataclass(slots=True)
class Stage:
    """One kernel: what it computes, in order, and what of it is stored. over: None where nothing is reduced."""

    over: Signature | None
    numel: int
    wanted: list[torch.fx.Node] = field(default_factory=list)
    nodes: list[torch.fx.Node] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return math.prod(size for size, reduced in self.over or () if not reduced)


def is_reduction(node: torch.fx.Node) -> bool:
    """One of ops.ROWWISE, whose result takes a walk over its operand."""
    return node.op == "call_function" and node.target is not operator.getitem and base(node) in ops.ROWWISE


def signature(node: torch.fx.Node) -> Signature:
    """What a reduction walks over."""
    shape, dims = reduced_over(node)
    runs: list[tuple[int, bool]] = []
    for d, size in enumerate(shape):
        if size == 1:
            continue
        if runs and runs[-1][1] == (d in dims):
            runs[-1] = (runs[-1][0] * size, d in dims)
        else:
            runs.append((size, d in dims))
    return tuple(runs)


def _operation(node: torch.fx.Node) -> torch.fx.Node:
    """The operation behind one of several results."""
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        return source
    return node


def stages(nodes: Sequence[torch.fx.Node], budget: Budget) -> list[Stage]:
    """Kernels in the order they run. nodes: a group's, in graph order, results of operations among them."""
    members = {n: i for i, n in enumerate(nodes) if not is_view(n)}
    place: dict[torch.fx.Node, int] = {}
    over: dict[torch.fx.Node, Signature] = {}
    above: dict[torch.fx.Node, frozenset[torch.fx.Node]] = {}  # the nearest reductions above
    made: list[Stage] = []
    for node in members:
        budget.spend()
        near = frozenset().union(*(_nearest(s, above, place) for s in _sources(node, members)))
        above[node] = near
        if not is_reduction(node):
            continue
        over[node] = own = signature(node)
        first = max((place[r] + (over[r] != own) for r in near), default=0)
        place[node] = next((i for i in range(first, len(made)) if made[i].over == own), len(made))
        if place[node] == len(made):
            made.append(Stage(own, math.prod(size for size, _ in own)))
    given = results(list(members))
    home = {n: place[_operation(n)] for n in given if _operation(n) in place}
    for node in given:
        if node in home:
            continue
        count = fake(node).numel()
        last = max((place[r] for r in above[node]), default=-1)
        fits = [i for i in range(max(last, 0), len(made)) if count in (made[i].numel, made[i].rows)]
        if fits and (last >= 0 or count == made[fits[0]].numel):
            home[node] = fits[0]
            continue
        alone = [i for i in range(last + 1, len(made)) if made[i].over is None and made[i].numel == count]
        if not alone:
            alone = [len(made)]
            made.append(Stage(None, count))
        home[node] = alone[0]
    return _filled(made, members, home, place, budget)


def _sources(node: torch.fx.Node, members: dict[torch.fx.Node, int]) -> list[torch.fx.Node]:
    """Members whose results a node reads, looking through views."""
    return [r for r in dict.fromkeys(root(s) for s in node.all_input_nodes) if r in members]


def _nearest(
    node: torch.fx.Node, above: dict[torch.fx.Node, frozenset[torch.fx.Node]], place: dict[torch.fx.Node, int]
) -> frozenset[torch.fx.Node]:
    operation = _operation(node)
    return frozenset({operation}) if operation in place else above[node]


def _filled(
    made: list[Stage],
    members: dict[torch.fx.Node, int],
    home: dict[torch.fx.Node, int],
    place: dict[torch.fx.Node, int],
    budget: Budget,
) -> list[Stage]:
    """The stages with their nodes: from the last to the first, so that each knows what later ones ask of it."""
    for node, index in home.items():
        made[index].wanted.append(node)
    for index in range(len(made) - 1, -1, -1):
        stage = made[index]
        inside: set[torch.fx.Node] = set()
        pending = list(stage.wanted)
        while pending:
            node = pending.pop()
            if node in inside:
                continue
            budget.spend()
            inside.add(node)
            for source in _sources(node, members):
                there = place.get(_operation(source), home.get(source, index))
                if there >= index or source is _operation(node):
                    pending.append(source)
                elif source not in made[there].wanted:
                    made[there].wanted.append(source)
        stage.nodes = sorted(inside, key=members.__getitem__)
        stage.wanted.sort(key=members.__getitem__)
    return [s for s in made if s.wanted]
