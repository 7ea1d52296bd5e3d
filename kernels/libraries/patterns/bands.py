"""Attention within a band of positions, soft-capped or not: what its scores' code says, as the numbers a kernel takes.

`profiler.region.graph.scores` says the scores of any attention as code of FlexAttention. Where that is a cap alone
(`c * torch.tanh(a * score)`) and comparisons of the two positions that leave a band of distances between query and key
(0 or more, or any; up to the window), a kernel needs no mask: it skips what lies outside.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch.fx import Node

from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, operation_names
from profiler.region.graph.scores import functions
from profiler.region.graph.scores.text import COLUMN, ROW, SCORE
from profiler.region.language import trees

KIND, TITLE = "banded_attention", "attention within a window, or with a soft cap"
Interval = tuple[float, float]
"""The least and the largest distance, query's position less key's, both included."""
ALL: Interval = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Linear:
    """row * the query's position + column * the key's + constant."""

    row: int = 0
    column: int = 0
    constant: int = 0

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        """The sum, or with a sign of -1 the difference."""
        return Linear(
            self.row + sign * other.row, self.column + sign * other.column, self.constant + sign * other.constant
        )


def matches(graph: Graph) -> Iterator[Match]:
    """Attention with a window or a cap, its roles causal, window, cap and scale; plain and causal ones are left out."""
    for item in functions.matches(graph):
        numbers = settings(str(item.roles["score"]), str(item.roles["keep"]), item.roles["scale"])
        if numbers is not None and (numbers.window is not None or numbers.cap is not None):
            more = {"causal": numbers.causal, "window": numbers.window, "cap": numbers.cap, "scale": numbers.scale}
            inside = item.operations | _of_positions(graph, item)
            yield replace(item, kind=KIND, title=TITLE, operations=inside, roles={**item.roles, **more, "mask": None})


def _of_positions(graph: Graph, item: Match) -> frozenset[str]:
    """Operations that make the mask from positions alone, for this match alone: the call needs none of them."""
    inside = {n for n in graph.module.graph.nodes if n.name in item.operations}
    given: set[Node] = set()
    for node in graph.module.graph.nodes:
        if node.op == "placeholder" or any(n in given for n in node.all_input_nodes):
            given.add(node)
    more: set[Node] = set()
    for node in reversed(graph.module.graph.nodes):
        alone = node.op == "call_function" and node.users and all(u in inside or u in more for u in node.users)
        if alone and node not in given and node not in inside:
            more.add(node)
    return operation_names(graph, more)


@dataclass(frozen=True, slots=True)
class Settings:
    """As `kernels.flash_attention` has them: scores are cap * tanh(scale * q k / cap)."""

    causal: bool
    window: int | None
    cap: float | None
    scale: float


def settings(score: str, keep: str, scale: object) -> Settings | None:
    """Of code as FlexAttention takes it, "" where it changes or hides nothing; None where the kernel has no such."""
    if not isinstance(scale, (int, float)):
        return None
    capped: tuple[float, float] | None = (math.inf, 1.0) if not score else _capped(trees.expression(score))
    kept = ALL if not keep else _interval(trees.expression(keep), False)
    if capped is None or kept is None:
        return None
    (least, most), (cap, slope) = kept, capped
    if least not in (0, -math.inf) or most < 0:
        return None
    window = None if most == math.inf else int(most)
    if score:
        return Settings(least == 0, window, cap, float(scale) * cap * slope)
    return Settings(least == 0, window, None, float(scale))


def _capped(code: ast.expr) -> tuple[float, float] | None:
    """(c, a) of c * tanh(a * score), c above 0."""
    factor = 1.0
    if isinstance(code, ast.BinOp) and isinstance(code.op, ast.Mult):
        first, second = _number(code.left), _number(code.right)
        if first is not None:
            factor, code = first, code.right
        elif second is not None:
            factor, code = second, code.left
    named = isinstance(code, ast.Call) and trees.dotted_name(code.func) == "torch.tanh"
    if not isinstance(code, ast.Call) or not named or len(code.args) != 1 or code.keywords:
        return None
    slope = _slope(code.args[0])
    return (factor, slope) if slope is not None and 0 < factor < math.inf else None


def _slope(code: ast.expr) -> float | None:
    """a of a * score."""
    if isinstance(code, ast.Name):
        return 1.0 if code.id == SCORE else None
    if not isinstance(code, ast.BinOp):
        return None
    first, second = _number(code.left), _number(code.right)
    if isinstance(code.op, ast.Div) and second:
        inner = _slope(code.left)
        return None if inner is None else inner / second
    if isinstance(code.op, ast.Mult):
        inner, number = (_slope(code.right), first) if first is not None else (_slope(code.left), second)
        return None if inner is None or number is None else inner * number
    return None


def _number(code: ast.expr) -> float | None:
    if isinstance(code, ast.UnaryOp) and isinstance(code.op, ast.USub):
        inner = _number(code.operand)
        return None if inner is None else -inner
    is_number = isinstance(code, ast.Constant) and type(code.value) in (int, float)
    return float(code.value) if is_number else None  # type: ignore[attr-defined]


def _interval(code: ast.expr, negated: bool) -> Interval | None:
    """The distances that a condition keeps, or that its negation does; None where that is no one interval."""
    if isinstance(code, ast.UnaryOp) and isinstance(code.op, ast.Invert):
        return _interval(code.operand, not negated)
    if isinstance(code, ast.BinOp) and isinstance(code.op, ast.BitOr if negated else ast.BitAnd):
        first, second = _interval(code.left, negated), _interval(code.right, negated)
        return None if first is None or second is None else (max(first[0], second[0]), min(first[1], second[1]))
    if isinstance(code, ast.Compare) and len(code.ops) == 1:
        left, right = _linear(code.left), _linear(code.comparators[0])
        return None if left is None or right is None else _half(code.ops[0], left.plus(right, -1), negated)
    return None


def _half(operator: ast.cmpop, difference: Linear, negated: bool) -> Interval | None:
    """Of `difference operator 0`, where that compares the two positions."""
    if abs(difference.row) != 1 or difference.row + difference.column:
        return None
    below = isinstance(operator, (ast.Lt, ast.LtE))
    if not below and not isinstance(operator, (ast.Gt, ast.GtE)):
        return None
    included = isinstance(operator, (ast.GtE, ast.LtE)) != negated
    downwards = below != negated
    # sign * distance + constant, at least (or at most) 0: numbers are whole.
    bound = -difference.constant * difference.row
    step = 0 if included else 1
    if downwards == (difference.row > 0):
        return -math.inf, bound - step
    return bound + step, math.inf


def _linear(code: ast.expr) -> Linear | None:
    if isinstance(code, ast.Name):
        return {ROW: Linear(row=1), COLUMN: Linear(column=1)}.get(code.id)
    if isinstance(code, ast.Constant) and type(code.value) is int:
        return Linear(constant=code.value)
    if isinstance(code, ast.UnaryOp) and isinstance(code.op, ast.USub):
        inner = _linear(code.operand)
        return None if inner is None else Linear().plus(inner, -1)
    if isinstance(code, ast.BinOp) and isinstance(code.op, (ast.Add, ast.Sub)):
        left, right = _linear(code.left), _linear(code.right)
        sign = 1 if isinstance(code.op, ast.Add) else -1
        return None if left is None or right is None else left.plus(right, sign)
    return None
