"""How a region says what our kernel of weights of 8 and 4 bits computes: W [N, K] in rows, unpacked and scaled by hand.

Narrower than `weight_only.py`, which names packages that pack the weights themselves: here it matters which half of a
byte is which column, and that rows of W are what is stored.
"""

from __future__ import annotations

from math import prod

import torch
from torch.fx import Node

from kernels.libraries.launchers import Launcher, Pattern
from kernels.libraries.model import Facts
from kernels.libraries.patterns.rows import Roles
from kernels.libraries.patterns.scaled_products import turned, widened
from kernels.libraries.patterns.terms import Bound, Constant, Fixed, Leaf, Listed, Term, Viewed, With, call, either
from kernels.ops.quantised.weight_only_gemm import LEAST_GROUP
from profiler.region.graph.lowering import Graph
from profiler.region.graph.nodes import is_call, shape, value

X, W, BIAS = Leaf("x"), Leaf("w"), Leaf("bias")
BYTES = (torch.int8, torch.uint8)
FLOATS = ("f32", "bf16", "f16")
AND, SHIFT = "bitwise_and|__and__", "bitwise_right_shift|__rshift__"
OFFSET, HALF_OFFSET = Constant("zero"), Constant("half_zero")
SMALL_OFFSETS = (-112, 128)
"""The least and the most that can be taken off 0 to 15 as int8."""


def _shown(name: str) -> Term:
    """Numbers of rows or groups, with an axis of one behind them."""
    return either(call("unsqueeze", Leaf(name), dim=Fixed((-1, 1, 2)), role=f"{name}_shown"), Leaf(name))


def _less(term: Term, by: Term) -> Term:
    return either(call("sub", term, by), term)


def _less_half(term: Term) -> Term:
    """Half of every byte, with a number taken off before or behind the conversion."""
    taken = call("sub", term, HALF_OFFSET)
    return either(call("sub", widened(term), HALF_OFFSET), widened(taken), taken)


def _whole_half(term: Term) -> Term:
    return either(widened(term), term)


LOW = call(AND, W, Fixed((15,)))
SHIFTED = call(SHIFT, W, Fixed((4,)))
HIGH = either(With(call(AND, SHIFTED, Fixed((15,))), {"masked": True}), With(SHIFTED, {"masked": False}))
# The same is taken off both halves, or nothing off either.
PAIRS = either(*(
    call("stack", Listed((half(LOW), half(HIGH))), dim=Fixed((-1, 2)), role="pairs")
    for half in (_less_half, _whole_half)
))  # fmt: skip
NUMBERS = Viewed(either(widened(W), widened(Viewed(PAIRS)), PAIRS))
LESS = either(_less(NUMBERS, _shown("zero")), _less(NUMBERS, OFFSET))
SCALED = Viewed(call("mul", LESS, _shown("scale"), role="scaled"))


BEFORE = Viewed(call("mm", X, turned(SCALED), role="product"))
BIASED = Viewed(call("addmm", BIAS, X, turned(SCALED), role="product"))
BEHIND = call("mul", Viewed(call("mm", X, turned(Viewed(LESS)), role="product")), Leaf("scale"), role="behind")
TERM = either(call("add", BEFORE, BIAS, role="sum"), BEFORE, BIASED, call("add", BEHIND, BIAS, role="sum"), BEHIND)


def _stored(bound: Bound) -> Roles | None:
    (rows, k), w, n = shape(bound["x"]), shape(bound["w"]), shape(bound["product"])[-1]
    half = "pairs" in bound
    if len(shape(bound["x"])) != 2 or not rows or not bound["turned"] or w != ((n, k // 2) if half else (n, k)):
        return None
    if value(bound["w"]).dtype not in BYTES or _wraps(bound["product"], bound["w"]):
        return None
    if half and (k % 2 or (value(bound["w"]).dtype.is_signed and not bound["masked"])):
        return None
    if "half_zero" in bound:
        if "zero" in bound or not SMALL_OFFSETS[0] <= bound["half_zero"] <= SMALL_OFFSETS[1]:
            return None
        bound = {**bound, "zero": bound["half_zero"]}
    bias = bound.get("bias")
    if bias is not None and shape(bias) != (n,):
        return None
    if "behind" in bound:
        with_zero = isinstance(bound.get("zero"), Node)
        if shape(bound["scale"]) not in ((n,), (1, n)) or (with_zero and not _of_rows(bound, "zero", (n, k))):
            return None
    else:
        sizes = shape(bound["scaled"])
        if sizes != (n, k) and (len(sizes) != 3 or sizes[0] != n or prod(sizes) != n * k):
            return None
        given = [name for name in ("scale", "zero") if isinstance(bound.get(name), Node)]
        if "scale" not in given or not all(_of_rows(bound, name, sizes) for name in given):
            return None
    return {"zero": None, "bias": None, **bound}


def _wraps(node: Node, stored: Node) -> bool:
    """Something is taken off bytes without a sign, which 3 - 8 = 251 is no zero point's."""
    if node is stored:
        return False
    if is_call(node, "sub") and value(node).dtype == torch.uint8:
        return True
    return any(_wraps(n, stored) for n in node.all_input_nodes)


def _of_rows(bound: Bound, name: str, sizes: tuple[int, ...]) -> bool:
    """One number for what shares all axes but the last of these sizes."""
    return shape(bound.get(f"{name}_shown", bound[name])) == (*sizes[:-1], 1)


def _limits(facts: Facts, graph: Graph) -> str:
    if facts.dtypes["x"] not in ("bf16", "f16"):
        return f"rows in {facts.dtypes['x']}"
    wrong = [facts.dtypes[r] for r in ("scale", "zero", "bias") if facts.dtypes.get(r, "f32") not in FLOATS]
    if wrong:
        return f"scales, zero points or bias in {wrong[0]}"
    groups = prod(facts.sizes["scale"]) // facts.sizes["w"][0]
    size = facts.sizes["x"][-1] // groups
    return "" if groups == 1 or not size % LEAST_GROUP else f"takes groups of a multiple of {LEAST_GROUP}, not {size}"


STORED: tuple[Launcher, ...] = (
    Launcher(
        "triton:weight_only_gemm", "weight_only_gemm", "weight_only_gemm", ("x", "w", "scale", "zero", "bias"), ("x",),
        (Pattern((TERM,)),), _stored, ("x",), rank=2, limits=_limits,
    ),
)  # fmt: skip
