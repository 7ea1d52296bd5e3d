"""Loops over time that a region writes out step by step: as long as the region says, so that no terms say them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch.fx import Node

from kernels.libraries.launchers import Launcher
from kernels.libraries.patterns.terms import Bound
from profiler.region.graph.lowering import Graph
from profiler.region.graph.nodes import argument, is_call, operands, shape

TIME = 1
"""The axis of a, b and the result that the steps go along: [batch, time, channels]."""


def recurrences(graph: Graph) -> Iterator[tuple[Node, Bound]]:
    """Stacks of h[t] = a[:, t] * h[t - 1] + b[:, t] for every t of a and b [B, T, C], from h[-1] = 0."""
    for node, name in graph.named_calls:
        if name != "stack" or argument(node, 1, "dim", 0) not in (TIME, TIME - len(shape(node))):
            continue
        steps: Any = node.args[0]
        bound = _coefficients_of(steps)
        if bound is not None and shape(node) == shape(bound["b"]):  # and the first state adds no axis to the others
            yield node, bound


def _coefficients_of(steps: Sequence[Node]) -> Bound | None:
    """a and b of the states, in the order of the steps."""
    state: Node | None = None
    a: Node | None = None
    b: Node | None = None
    for t, step in enumerate(steps):
        of_a, of_b = _coefficients(step, state, t)
        if of_b is None or (b is not None and of_b is not b) or (a is not None and of_a is not a):
            return None
        state, a, b = step, a if a is not None else of_a, of_b
    if a is None or b is None or len(shape(b)) != 3 or shape(a) != shape(b) or len(steps) != shape(b)[TIME]:
        return None
    return {"a": a, "b": b}


def _coefficients(step: Node, state: Node | None, t: int) -> tuple[Node | None, Node | None]:
    """What step t takes its factor and its addend of; (None, b) where the first one is the addend alone."""
    if state is None and (first := _at(step, t)) is not None:
        return None, first
    for product, addend in _sums(step):
        source = _at(addend, t)
        if source is None:
            continue
        for factor, before in (product, product[::-1]):
            if (before is state if state is not None else _is_zero(before)) and (of := _at(factor, t)) is not None:
                return of, source
    return None, None


def _sums(step: Node) -> Iterator[tuple[tuple[object, object], object]]:
    """Every way to read it as (the operands of a product, what is added)."""
    if is_call(step, "addcmul") and argument(step, 3, "value", 1) == 1:
        yield (step.args[1], step.args[2]), step.args[0]
    if is_call(step, "add") and argument(step, 2, "alpha", 1) == 1:
        one, other = operands(step)
        for product, addend in ((one, other), (other, one)):
            if is_call(product, "mul"):
                yield operands(product), addend


def _at(node: object, t: int) -> Node | None:
    """What the node is step t of."""
    if not is_call(node, "select") or argument(node, 1, "dim") != TIME or argument(node, 2, "index") != t:
        return None
    source = node.args[0]
    return source if isinstance(source, Node) else None


def _is_zero(node: object) -> bool:
    filled = is_call(node, "full", "full_like") and argument(node, 1, "fill_value") == 0
    return filled or is_call(node, "zeros", "zeros_like", "new_zeros")


def _unchanged(bound: Bound) -> Bound:
    return bound


RECURRENCES: tuple[Launcher, ...] = (
    Launcher(
        "triton:linear_recurrence", "linear_recurrence", "linear_recurrence", ("a", "b"), ("a",), (), _unchanged,
        ("a", "b"), walk=recurrences, trained=True,
    ),
)  # fmt: skip
