"""Sums over indices, against every value of them written out."""

from __future__ import annotations

import ast
import itertools
import operator
import random

import pytest

from profiler.oracle import index_expressions as index
from profiler.oracle.index_expressions import Axis, Bounds, Linear, Opaque

SIZES = {"x": 24, "y": 5, "r0": 8}


def values(make: str, x: int, y: int, r: int) -> int:
    """The value of a formula of x, y and r."""
    return evaluate(ast.parse(make, mode="eval").body, {"x": x, "y": y, "r": r})


OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


def evaluate(node: ast.expr, names: dict[str, int]) -> int:
    match node:
        case ast.Name(id=name):
            return names[name]
        case ast.Constant(value=int() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right):
            return int(OPERATORS[type(op)](evaluate(left, names), evaluate(right, names)))
    raise AssertionError(ast.dump(node))


def form(make: str) -> Linear:
    """The same formula, as the reader of kernels builds it: left to right, operator by operator."""

    def build(node: ast.expr) -> Linear:
        match node:
            case ast.Name(id=name):
                return index.single(Axis({"r": "r0"}.get(name, name)))
            case ast.Constant(value=int() as number):
                return index.constant(number)
            case ast.BinOp(left=left, op=op, right=right):
                a, b = build(left), build(right)
                made = {
                    ast.Add: lambda: index.add(a, b), ast.Sub: lambda: index.add(a, b, -1),
                    ast.Mult: lambda: index.multiply(a, b), ast.FloorDiv: lambda: index.divide(a, b.const, SIZES),
                    ast.Mod: lambda: index.remainder(a, b.const, SIZES),
                }[type(op)]()  # fmt: skip
                assert made is not None
                return made
        raise AssertionError(ast.dump(node))

    return build(ast.parse(make, mode="eval").body)


EXACT = [
    "x", "3*x", "x % 6", "x // 6", "x // 6 % 2", "(x // 2) % 3 + 3*(x % 2)", "x + 24*y", "y + 5*x", "r + 8*(x % 4)",
    "(r + 8*y) // 4", "(r + 8*y) % 10", "56*((r + 8*y) // 10) + (r + 8*y) % 10", "x // 24", "(6*x + 3) // 6",
    "x % 6 + 7*(x // 6)", "23 - x", "x + y", "2*x + y", "7 + r", "((x // 2) // 3) % 2", "((x % 12) // 3) % 2",
]  # fmt: skip
"""Formulas whose digits are independent of each other, as those in kernels are."""


@pytest.mark.parametrize("make", EXACT)
def test_as_many_addresses_are_counted_as_there_are(make: str) -> None:
    points = itertools.product(range(24), range(5), range(8))
    assert index.count(form(make), SIZES) == len({values(make, *p) for p in points})


@pytest.mark.parametrize("make", EXACT)
def test_the_ends_are_those_of_the_values(make: str) -> None:
    all_values = [values(make, *p) for p in itertools.product(range(24), range(5), range(8))]
    low, high = index.reach(form(make), SIZES) or (None, None)
    assert low is not None and high is not None
    assert low <= min(all_values) and high >= max(all_values), "never too narrow"
    if "//" not in make and "%" not in make:
        assert (low, high) == (min(all_values), max(all_values))


@pytest.mark.parametrize("make", EXACT)
@pytest.mark.parametrize(("axis", "place"), [("x", 0), ("y", 1), ("r0", 2)])
def test_a_step_is_the_first_one_along_the_axis(make: str, axis: str, place: int) -> None:
    start, end = [0, 0, 0], [0, 0, 0]
    end[place] = 1
    assert index.step(form(make), axis) == values(make, *end) - values(make, *start)


@pytest.mark.parametrize(
    ("make", "length"),
    [("x", 24), ("2*x", 1), ("x % 6", 6), ("x % 6 + 7*(x // 6)", 6), ("x + 24*y", 120), ("y + 5*x", 120),
     ("y + 6*x", 5), ("64*x + r", 8)],
)  # fmt: skip
def test_a_run_ends_where_the_next_element_is_not_the_neighbour(make: str, length: int) -> None:
    ordered = sorted({values(make, *p) for p in itertools.product(range(24), range(5), range(8))})
    run = next((i for i, (a, b) in enumerate(itertools.pairwise(ordered), 1) if b != a + 1), len(ordered))
    assert run == length == index.run_length(form(make), SIZES)


def test_bounds_leave_out_what_is_masked() -> None:
    bounds = [Bounds(form("x % 6"), 2, 5)]
    address = form("x % 6 + 6*(x // 6)")
    kept = {x for x in range(24) if 2 <= x % 6 < 5}
    assert index.count(address, SIZES, bounds) == len(kept)
    assert index.count(form("x"), SIZES, [Bounds(form("x + 3"), None, 10)]) == len([x for x in range(24) if x + 3 < 10])
    assert not index.restricts(Bounds(form("x"), 0, 24), SIZES)
    assert index.restricts(Bounds(form("x"), 1, None), SIZES)


def test_what_was_read_counts_as_often_as_it_can_differ() -> None:
    row = index.multiply(index.constant(64), index.single(Opaque(1, frozenset({"y"}), 5)))
    assert row is not None
    address = index.add(form("r"), row)
    assert index.count(address, SIZES) == 8 * 5
    assert (index.step(address, "r0"), index.step(address, "y")) == (1, None)
    halves = index.divide(index.single(Opaque(3, frozenset({"y"}), 5)), 2, SIZES)
    assert halves is not None and index.count(halves, SIZES) == 5, "at most"
    assert index.count(index.single(Opaque(2, frozenset(), None)), SIZES) is None


def test_an_unknown_size_is_no_number() -> None:
    assert index.count(form("x"), {}) is None and index.reach(form("x"), {}) is None
    assert index.run_length(form("x"), {}) is None
    assert index.count(index.single(index.Digit(form("x"), 1, 6)), {}) == 6, "a remainder has a size of its own"


def test_no_digits_of_random_formulas_are_lost() -> None:
    random.seed(23)
    for _ in range(300):
        divisor, modulus, factor = random.randint(1, 9), random.randint(1, 9), random.randint(1, 30)
        inner = f"(x + {factor}*y)"
        make = f"{inner} // {divisor} % {modulus}"
        exact = {values(make, *p) for p in itertools.product(range(24), range(5), range(1))}
        counted = index.count(form(make), SIZES)
        assert counted is not None and len(exact) <= counted <= modulus, make
