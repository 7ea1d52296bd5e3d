"""The plan of a kernel that reduces runs of rows: what is computed of each row's element, where a run begins and ends,
and what is computed of the result.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch.fx

from kernels.codegen.budget import Budget
from kernels.codegen.expressions import ops
from kernels.codegen.expressions.rules import compute
from kernels.codegen.expressions.values import Builder, Value
from kernels.codegen.index import Linear, Split, Unsupported
from kernels.codegen.nodes import base, bind, dtype_of, fake
from kernels.codegen.plan import Plan, used
from kernels.codegen.product_plan import Side, Space, plan_result, plan_side

REDUCED = ("sum", "mean", "max", "min")
WIDEST = 1024
"""Columns of a result that a program holds whole, so that it can reduce over them."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Runs of rows and what is made of them. begin, end: of `bounds`, rows; acc: stands for the reduced row."""

    how: str
    count: int
    rows: int
    width: int
    source: Side
    bounds: Plan
    begin: Value
    end: Value
    space: Space
    result: Plan
    acc: Value
    plan: Plan

    @property
    def wide(self) -> bool:
        """Some address does not fit in 32 bits."""
        return any(p.wide_addresses for p in (self.source.plan, self.bounds, self.result))


def is_segments(node: torch.fx.Node) -> bool:
    """A reduction of runs of rows by offsets."""
    if node.op != "call_function" or node.target is operator.getitem or base(node) != "segment_reduce":
        return False
    a = bind(node)
    given = a.get("offsets") is not None and fake(a["offsets"]).dim() == 1
    plain = not a.get("axis") and a.get("initial") is None and a["reduce"] in REDUCED
    return given and plain and dtype_of(fake(node)) in ("f32", "f64") and fake(node).numel() > 0


def in_front(node: torch.fx.Node) -> Sequence[torch.fx.Node]:
    """The rows and the offsets; nothing for any other node."""
    return (bind(node)["data"], bind(node)["offsets"]) if is_segments(node) else ()


def plan_segments(
    node: torch.fx.Node, steps: Sequence[torch.fx.Node], behind: Sequence[torch.fx.Node],
    names: Mapping[torch.fx.Node, str], budget: Budget,
) -> Segments:  # fmt: skip
    """The kernel of a reduction of runs, the steps in front of it, and a group behind it. Raises Unsupported."""
    a = bind(node)
    data = fake(a["data"])
    rows, width, count = data.shape[0], math.prod(data.shape[1:]), fake(node).shape[0]
    if not data.numel():
        raise Unsupported("runs of no rows")
    inside = frozenset(s for s in steps if base(s) not in ops.VIEWS)
    source = plan_side(a["data"], Space.of(1, rows, width), inside, names, budget)
    bounds, begin, end = _bounds(a["offsets"], Space.of(1, count, 1), inside, names, budget)
    acc = Value("given", dtype_of(fake(node)), "acc", columns=True, name="acc")
    space, result = plan_result(node, Space.of(1, count, width), acc, behind, names, budget, WIDEST)
    plans = (source.plan, bounds, result)
    operands = {name: o for p in plans for name, o in p.operands.items()}
    values = tuple(v for p in plans for v in p.values)
    helpers = tuple(dict.fromkeys(h for p in plans for h in p.helpers))
    if a["reduce"] in ("max", "min"):
        helpers = tuple(dict.fromkeys((*helpers, f"nan_{a['reduce']}")))
    for value in (*bounds.values, *result.values):
        value.rows = False  # a program has one run
    for value in bounds.values:
        value.columns = False
    whole = Plan(space.domain, values, result.stores, operands, helpers, False)
    return Segments(a["reduce"], count, rows, width, source, bounds, begin, end, space, result, acc, whole)


def _bounds(
    offsets: torch.fx.Node, space: Space, inside: frozenset[torch.fx.Node], names: Mapping[torch.fx.Node, str],
    budget: Budget,
) -> tuple[Plan, Value, Value]:  # fmt: skip
    builder = Builder(inside, space.domain, dict(names), True, compute, budget)
    try:
        begin, end = (builder.settled(offsets, (Linear(first, ((1, 1),)),)) for first in (0, 1))
    except Split:
        raise Unsupported("offsets that are a reshape of several dimensions") from None
    begin.name, end.name = "begin", "end"
    needed = used(builder.values, [begin, end])
    operands = {v.operand: builder.operands[v.operand] for v in needed if v.kind == "load"}
    return Plan(space.domain, needed, (), operands, tuple(builder.helpers), False), begin, end
