"""Products whose weights are integers of 8 or 4 bits, unpacked, scaled and multiplied by hand.

There are too many spellings for terms: the scale before or behind the product, zero points as tensors or numbers, taken
off integers or off floats, halves stacked or side by side, words of 32 bits and shifts. So the weight is walked back
from the product to the one integer tensor that it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch.fx import Node

from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import VIEWS, Match, Role, calls, covered_operations, role
from profiler.region.graph.nodes import CASTS, is_call, number, operands, shape, value

MOVES = (*CASTS, *VIEWS, "_unsafe_view", "clone")
SHIFTS = ("__rshift__", "bitwise_right_shift")
AND = ("bitwise_and", "__and__")
BYTES = (torch.int8, torch.uint8)
WORDS = (*BYTES, torch.int16, torch.int32, torch.int64)
HALF, BYTE = 15, 255
FLOATS = (torch.bfloat16, torch.float16, torch.float32)
KINDS = {8: ("int8_weight_gemm", "GEMM with int8 weights"), 4: ("int4_gemm", "GEMM with int4 weights")}


@dataclass(frozen=True, slots=True)
class Stored:
    """Weights as they are stored: the integer tensor, its bits a number, what it is scaled by and what is taken off.

    others: further tensors that it is unpacked with. group: numbers that share a scale, 0 for a row or more.
    """

    packed: Node
    bits: int
    scale: Node | float | None = None
    zero: Node | float | None = None
    others: tuple[Node, ...] = ()
    group: int = 0


def weight_only(graph: Graph) -> Iterator[Match]:
    """Every product of floats with weights that are unpacked from integers."""
    for product in calls(graph, "mm", "addmm"):
        a, b = product.args[-2:]
        stored = _stored(b) if value(a).dtype in FLOATS else None
        if stored is None or _stored(a) is not None:
            continue
        output = product
        if stored.scale is None:
            behind = _scaled_behind(product)
            if behind is None:
                continue
            output, scale = behind
            stored = replace(stored, scale=scale)
        bias = product.args[0] if is_call(product, "addmm") else None
        leaves = (a, bias, stored.packed, stored.scale, stored.zero, *stored.others)
        inside = covered_operations(graph, output, leaves)
        if inside is not None:
            kind, title = KINDS[stored.bits]
            yield Match(kind, title, True, inside, output.name, _roles(graph, a, stored))


def _roles(graph: Graph, a: object, stored: Stored) -> dict[str, Role]:
    roles: dict[str, Role] = {"a": role(graph, a), "b": role(graph, stored.packed), "scale": role(graph, stored.scale)}
    if stored.zero is not None:
        roles["zero"] = role(graph, stored.zero)
    return {**roles, "group": stored.group} if stored.group else roles


def _stored(node: Any) -> Stored | None:
    """What the weight is made of; None where it is no stored integer's."""
    if not isinstance(node, Node):
        return None
    if is_call(node, "stack", "cat"):
        return _halves(node)
    if is_call(node, *AND):
        return _of_a_word(node)
    if is_call(node, *MOVES):
        return _stored(node.args[0])
    if is_call(node, "mul", "div", "sub", "add"):
        return _scaled(node)
    return Stored(node, 8) if value(node).dtype in BYTES else None


def _scaled(node: Node) -> Stored | None:
    """Scaled, or with a zero point taken off; either may stand first where the order is nothing."""
    first, second = operands(node)
    ways = [(first, second)] if is_call(node, "div", "sub") else [(first, second), (second, first)]
    for one, by in ways:
        stored = _stored(one)
        given = _given(by)
        if stored is None or given is None:
            continue
        if is_call(node, "sub", "add"):
            return replace(stored, zero=given) if stored.zero is None and stored.scale is None else None
        if stored.scale is None:
            return replace(stored, scale=given, group=_group(node, by, given))
    return None


def _given(by: Any) -> Node | float | None:
    """A scale or zero point as it is given: a number, or a tensor in front of what spreads it."""
    constant: float | None = number(by)
    if constant is not None or not isinstance(by, Node):
        return constant
    given: Any = by
    while is_call(given, *MOVES):
        given = given.args[0]
    return given if isinstance(given, Node) else None


def _group(node: Node, by: Any, given: Node | float) -> int:
    """Numbers of a row that share a scale: the last axis of a view as groups, or how often a scale is repeated."""
    if not isinstance(given, Node):
        return 0
    size = shape(node)
    if len(size) > 2 and isinstance(by, Node) and shape(by)[-1:] == (1,):
        return size[-1]
    rows = shape(given)
    several = len(rows) == len(size) == 2 and rows[0] == size[0] and rows[1] > 1
    return size[1] // rows[1] if several and rows[1] < size[1] else 0


def _halves(node: Node) -> Stored | None:
    """The low and the high four bits of the same bytes, put together."""
    parts: Any = node.args[0]
    if len(parts) != 2:
        return None
    known = [half for p in parts if (half := _half(p)) is not None]
    if len(known) != 2 or known[0][0] is not known[1][0] or known[0][1] == known[1][1]:
        return None
    packed, zeros = known[0][0], {zero for _, _, zero in known}
    return Stored(packed, 4, zero=zeros.pop()) if len(zeros) == 1 and value(packed).dtype in WORDS else None


def _half(node: Any) -> tuple[Node, bool, float | None] | None:
    """(bytes, whether it is their high half, the number that is taken off)."""
    zero = None
    while isinstance(node, Node):
        if is_call(node, *MOVES):
            node = node.args[0]
        elif is_call(node, "sub", "add") and zero is None and number(node.args[1]) is not None:
            zero, node = number(node.args[1]), node.args[0]
        else:
            break
    masked = is_call(node, *AND) and number(node.args[1]) == HALF
    if masked:
        node = node.args[0]
    high = is_call(node, *SHIFTS) and number(node.args[1]) == 4
    if high:
        node = node.args[0]
    return (node, high, zero) if isinstance(node, Node) and (masked or high) else None


def _of_a_word(node: Node) -> Stored | None:
    """Several to a word: the word shifted by a tensor of places, and masked."""
    mask = number(node.args[1])
    shifted: Any = node.args[0]
    while is_call(shifted, *MOVES):
        shifted = shifted.args[0]
    if mask not in (HALF, BYTE) or not is_call(shifted, *SHIFTS) or not isinstance(shifted.args[1], Node):
        return None
    word, places = _given(shifted.args[0]), _given(shifted.args[1])
    if not isinstance(word, Node) or not isinstance(places, Node) or value(word).dtype not in WORDS:
        return None
    return Stored(word, 4 if mask == HALF else 8, others=(places,))


def _scaled_behind(product: Node) -> tuple[Node, Node | float] | None:
    """(the scaled result, its scale): one number, or one for each column of the product."""
    node: Any = product
    while len(node.users) == 1:
        node = next(iter(node.users))
        if is_call(node, "mul"):
            first, second = operands(node)
            for one, by in ((first, second), (second, first)):
                given = _given(by)
                columns = prod(shape(given)) if isinstance(given, Node) else 1
                if _behind_moves(one) is product and given is not None and columns in (1, shape(product)[-1]):
                    return node, given
            return None
        if not is_call(node, *MOVES):
            return None
    return None


def _behind_moves(node: Any) -> Any:
    while is_call(node, *MOVES):
        node = node.args[0]
    return node
