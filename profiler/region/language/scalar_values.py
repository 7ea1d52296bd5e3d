"""Values of a region that are no tensors: numbers, tuples, lists. Arithmetic on them, within bounds."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch.fx

from profiler.region.language.syntax import error
from profiler.region.limits import MAX_EXPONENT, MAX_ITEMS, MAX_NESTING, MAX_NUMBER

Operator = Callable[..., Any]

BINARY: Mapping[type[ast.operator], Operator] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}  # fmt: skip
UNARY: Mapping[type[ast.unaryop], Operator] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_,
}  # fmt: skip
COMPARE: Mapping[type[ast.cmpop], Operator] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip

OPERATORS = frozenset({operator.getitem, *BINARY.values(), *UNARY.values(), *COMPARE.values()})
"""What is done with numbers as with tensors."""

BUILTINS: Mapping[str, Operator] = MappingProxyType({"len": len, "min": min, "max": max, "abs": abs, "int": int,
                                                     "float": float})  # fmt: skip
"""On numbers, and len, min, max on tuples of numbers; on tensors `abs`, `min`, `max` are torch's."""

FLOATS = ("inf", "-inf", "nan")
"""What float("...") reads."""


def has_tensor(value: object) -> bool:
    """A tensor anywhere in nested tuples, lists and slices."""
    if isinstance(value, tuple | list):
        return any(has_tensor(v) for v in value)
    if isinstance(value, slice):
        return any(has_tensor(v) for v in (value.start, value.stop, value.step))
    return isinstance(value, torch.fx.Node)


def weigh(node: ast.AST, *values: object) -> None:
    """Raises RegionError where values hold more than MAX_ITEMS, counted with repetition: `(a, a)` doubles a; or are
    nested too deeply for what goes through them by recursion.
    """
    stack, count = [(value, 0) for value in values], 0
    while stack:
        value, depth = stack.pop()
        count += 1
        if count > MAX_ITEMS or len(stack) > MAX_ITEMS:
            raise error(node, f"more than {MAX_ITEMS} values in one list", code="region-too-long")
        if isinstance(value, tuple | list):
            if depth >= MAX_NESTING:
                raise error(node, f"lists are nested more than {MAX_NESTING} deep", code="region-too-deep")
            stack.extend((part, depth + 1) for part in value)


def copy_for_keeping(node: ast.AST, value: object) -> object:
    """The value to put into a tuple or list: a list is copied, so that no list can come to hold itself."""
    weigh(node, value)
    return [copy_for_keeping(node, v) for v in value] if isinstance(value, list) else value


def apply(node: ast.AST, function: Operator, args: tuple[Any, ...]) -> Any:
    """function on numbers, or `+`, indexing and len on tuples. RegionError for all else and what grows too large."""
    if function is operator.getitem:
        if not isinstance(args[0], tuple | list) or has_tensor(args[1]):
            raise error(node, "only tensors and tuples can be indexed", code="region-type")
    elif function is operator.add and all(isinstance(a, tuple) for a in args):
        weigh(node, *args)
    elif function in (operator.eq, operator.ne):
        pass
    elif function in (len, min, max) and len(args) == 1 and isinstance(args[0], tuple | list):
        if function is not len and not all(_is_number(a) for a in args[0]):
            raise error(node, f"{function.__name__} takes numbers", code="region-type")
    elif not args or not all(_is_number(a) for a in args):
        raise error(node, f"{_name(function)} takes numbers or tensors", code="region-type")
    if function in (operator.pow, operator.lshift) and (abs(args[0]) > 2**32 or abs(args[1]) > MAX_EXPONENT):
        raise error(node, "the number grows too large", code="region-too-large")
    try:
        result = function(*args)
    except (TypeError, ValueError, IndexError, ArithmeticError) as fault:
        raise error(node, str(fault)[:200] or "this is no number", code="region-type") from None
    if isinstance(result, int) and abs(result) > MAX_NUMBER:
        raise error(node, "the number does not fit 64 bits", code="region-too-large")
    if isinstance(result, complex):
        raise error(node, "complex numbers are not part of the language", code="region-type")
    return result


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | torch.SymInt)


def _name(function: Operator) -> str:
    return {"truediv": "/", "getitem": "[]"}.get(function.__name__, function.__name__.strip("_"))
