"""What a part of a step computes, as names that its eager and its compiled form share. Pure functions.

Eager parts tell their aten operations; a kernel of torch.compile has those it computes in its name, each once. Views
cost nothing in either and are left out; what one form writes otherwise (`to` as `_to_copy`, softmax as exp and sub)
has one name here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache

from profiler.region.op_kinds import ATTENTION, CONSTANT, CONVOLUTION, COPY, GEMM, SOFTMAX, VIEW, base_name
from profiler.region.operations import BY_NAME, find

FUSED = re.compile(r"^triton_[a-z]+_fused_(?P<names>.+?)(_\d+)?$")
PRODUCT, COPYING = "matrix product", "copy"
EXTERNAL = frozenset({PRODUCT, ATTENTION, CONVOLUTION})
"""What runs as a call of its own: a fused kernel that has one in its name reads or writes for it."""
WEAK = frozenset({"add", "mul", "sub", "div", "to", COPYING})
"""Operations that stand in most kernels: a part of these alone is seldom told by them."""
_SHARED = {"_to_copy": "to", "to_copy": "to", "_softmax": "softmax", "prepare_softmax_online": "softmax"}
_KINDS = {GEMM: PRODUCT, ATTENTION: ATTENTION, CONVOLUTION: CONVOLUTION, SOFTMAX: "softmax"}
_OF_SOFTMAX = frozenset({"exp", "sub", "amax", "sum"})
_SILENT = frozenset({VIEW, CONSTANT})
_KEEPS_NAME = frozenset({"cat", "stack", "constant_pad_nd"})
"""Of what only copies, those that are told by their name."""
_LONGEST = 8
_DIMS = re.compile(r"\[(\d+(?:, *\d+)*)\]")


def shared_name(operation: str) -> str:
    """The name of one operation in both forms; "" for one that leaves no work."""
    name = base_name(operation)
    if name in _SHARED:
        return _SHARED[name]
    known = find(name)
    if known is None:
        return name.strip("_")
    if known.kind in _SILENT:
        return ""
    if known.kind == COPY and known.name not in _KEEPS_NAME:
        return COPYING
    return _KINDS.get(known.kind, known.name.strip("_").removeprefix("native_"))


@cache
def _vocabulary() -> frozenset[str]:
    return frozenset({n.strip("_") for n in BY_NAME} | {n.strip("_") for n in _SHARED})


def is_fused(operation: str) -> bool:
    """Whether it is a kernel that torch.compile wrote."""
    return FUSED.match(operation) is not None


def fused_operations(kernel: str) -> frozenset[str]:
    """The operations in the name of a kernel of torch.compile's; those that it calls are not its own."""
    match = FUSED.match(kernel)
    words = [w for w in match["names"].split("_") if w] if match else []
    named, at = set(), 0
    while at < len(words):
        ends = range(min(len(words), at + _LONGEST), at, -1)
        end = next((e for e in ends if "_".join(words[at:e]) in _vocabulary()), at + 1)
        text = "_".join(words[at:end])
        named.add(_SHARED.get(text) or shared_name(text if text in BY_NAME else f"_{text}"))
        at = end
    return frozenset(named - {""} - EXTERNAL)


def operations(ops: Iterable[str]) -> frozenset[str]:
    """Of a part: its operations, and those of its kernels that torch.compile wrote."""
    named: set[str] = set()
    for op in ops:
        named |= fused_operations(op) if is_fused(op) else {shared_name(op)}
    if "softmax" in named:
        named -= _OF_SOFTMAX
    return frozenset(named - {""})


def sizes(operands: Iterable[str]) -> tuple[int, ...]:
    """Elements of each operand of two dimensions and more, ascending: what a matrix product keeps however it is
    called, `linear` with a batch or `mm` with rows."""
    dims = [[int(d) for d in match[1].split(",")] for operand in operands if (match := _DIMS.search(operand))]
    return tuple(sorted(math.prod(d) for d in dims if len(d) > 1))
