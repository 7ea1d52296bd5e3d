"""What each aten operation is in Helion's source: torch's own calls, which Helion lowers inside a tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch.fx

from kernels.codegen.index import Unsupported

BINARY: Mapping[str, str] = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==",
    "ne": "!=", "bitwise_and": "&", "bitwise_or": "|", "logical_and": "&", "logical_or": "|",
}  # fmt: skip
UNARY = frozenset(
    "exp exp2 log log2 log1p sqrt rsqrt sigmoid tanh relu abs sin cos erf floor ceil reciprocal neg sign".split()
)
ACTIVATIONS = frozenset("silu gelu softplus mish".split())
PAIRS = frozenset("maximum minimum pow".split())
REDUCTIONS: Mapping[str, str] = {"sum": "sum", "mean": "mean", "amax": "amax", "amin": "amin"}

POINTWISE = frozenset({*BINARY, *UNARY, *ACTIVATIONS, *PAIRS, "rsub", "where", "clamp", "clamp_min", "clamp_max",
                       "_to_copy", "logical_not", "bitwise_not", "square", "leaky_relu", "masked_fill"})  # fmt: skip


def number(value: Any) -> str:
    """A Python number as source: infinities have no literal."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def atom(text: str) -> str:
    """In parentheses where an operator or a method call next to it would take a part of it: x + y, -x, ~x."""
    if text[0] in "-~" and not text[1].isdigit():
        return f"({text})"
    depth = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == " " and not depth:
            return f"({text})"
    return text


def pointwise(name: str, said: list[str], values: Mapping[str, Any]) -> str:
    """The expression. said: operands in order, as source; values: the call's arguments by the schema's names.

    Raises Unsupported for options that have no such form.
    """
    made = _WRITERS.get(name)
    if made is not None:
        return made(said, values)
    if name in BINARY:
        if name == "div" and values.get("rounding_mode") is not None:
            raise Unsupported(f"a division with rounding mode {values['rounding_mode']}")
        right = atom(said[1])
        if name in ("add", "sub") and values.get("alpha", 1) != 1:
            right = f"{right} * {number(values['alpha'])}"
        return f"{atom(said[0])} {BINARY[name]} {right}"
    if name in UNARY:
        return f"-{atom(said[0])}" if name == "neg" else f"torch.{name}({said[0]})"
    if name in PAIRS:
        return f"torch.{name}({said[0]}, {said[1]})"
    raise Unsupported(f"{name} is not in the Helion generator's table")


def _activation(name: str) -> Callable[[list[str], Mapping[str, Any]], str]:
    def made(said: list[str], values: Mapping[str, Any]) -> str:
        approximate = values.get("approximate", "none")
        more = "" if approximate == "none" else f', approximate="{approximate}"'
        return f"F.{name}({said[0]}{more})"

    return made


def _softplus(said: list[str], values: Mapping[str, Any]) -> str:
    usual = {"beta": 1, "threshold": 20}
    more = "".join(f", {key}={number(values[key])}" for key, value in usual.items() if values.get(key, value) != value)
    return f"F.softplus({said[0]}{more})"


def _clamp(said: list[str], values: Mapping[str, Any]) -> str:
    """Bounds that are numbers by torch.clamp; tensors, which are among the operands, by a maximum and a minimum."""
    text, tensors, numbers = said[0], iter(said[1:]), []
    for key, call in (("min", "maximum"), ("max", "minimum")):
        bound = values.get(key)
        if isinstance(bound, torch.fx.Node):
            text = f"torch.{call}({text}, {next(tensors)})"
        elif bound is not None:
            numbers.append(f"{key}={number(bound)}")
    return f"torch.clamp({', '.join([text, *numbers])})" if numbers else text


def _rsub(said: list[str], values: Mapping[str, Any]) -> str:
    if values.get("alpha", 1) != 1:
        raise Unsupported("rsub with a factor")
    return f"{atom(said[1])} - {atom(said[0])}"


def _leaky(said: list[str], values: Mapping[str, Any]) -> str:
    return f"torch.where({said[0]} > 0, {said[0]}, {atom(said[0])} * {number(values.get('negative_slope', 0.01))})"


_WRITERS: Mapping[str, Callable[[list[str], Mapping[str, Any]], str]] = {
    **{name: _activation(name) for name in ACTIVATIONS},
    "softplus": _softplus,
    "rsub": _rsub,
    "where": lambda said, _: f"torch.where({', '.join(said)})",
    "masked_fill": lambda said, _: f"torch.where({said[1]}, {said[2]}, {said[0]})",
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "square": lambda said, _: f"{atom(said[0])} * {atom(said[0])}",
    "logical_not": lambda said, _: f"~{atom(said[0])}",
    "bitwise_not": lambda said, _: f"~{atom(said[0])}",
    "leaky_relu": _leaky,
}
