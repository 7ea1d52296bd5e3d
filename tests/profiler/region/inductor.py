"""What the installed torch's Inductor does with an aten operation, read from its own tables."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any

from torch._C import DispatchKey
from torch._inductor import lowering
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes import replace_random

ALWAYS, SOMETIMES, NEVER = "always", "sometimes", "never"


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    return select_decomp_table()


def left_to_aten(overload: Any) -> str:
    """Whether a call of it on a GPU stays a call of aten: a fallback, or an operation that Inductor has nothing for."""
    if any(target is overload for _, target in replace_random.patterns.patterns):
        return NEVER  # Inductor puts its own generator in its place
    if DispatchKey.Autograd in overload.py_kernels:
        return NEVER  # taken apart in Python before Inductor sees it
    if overload in lowering.lowerings:
        lowered = _lowered(lowering.lowerings[overload])
    elif overload.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd):
        return NEVER  # taken apart likewise
    else:
        lowered = ALWAYS
    parts = decompositions().get(overload)
    if parts is None or lowered == NEVER:
        return lowered
    return SOMETIMES if "return NotImplemented" in _source(_innermost(parts)) else NEVER


def _lowered(function: Any) -> str:
    inner = _innermost(function)
    if getattr(inner, "_is_fallback_handler", False):
        return ALWAYS
    cells = inspect.getclosurevars(inner).nonlocals if isinstance(inner, FunctionType) else {}
    if "triton_fallback" in cells:  # a pointwise function, for which Triton may have no text
        return NEVER if cells["triton_fallback"] is None else ALWAYS
    called = getattr(getattr(inner, "__code__", None), "co_names", ())
    sources = [_source(inner), *(_source(getattr(lowering, n)) for n in HELPERS if n in called)]
    return SOMETIMES if any(FALLBACK.search(s) for s in sources) else NEVER


FALLBACK = re.compile(r"(?<!compute_)fallback")
HELPERS = ("_avg_poolnd", "sort_stable")
"""Functions of torch._inductor.lowering that several lowerings share, and that decide for them."""


def _innermost(function: Any) -> Any:
    """What a function wraps, by `functools.wraps` or as the one function in the closure of a decorator's own."""
    while True:
        function = function.func if isinstance(function, functools.partial) else function
        if not isinstance(function, FunctionType):
            return function
        cells = (c.cell_contents for c in getattr(function, "__closure__", None) or ())
        inner = [c for c in cells if isinstance(c, FunctionType)] if "<locals>" in function.__qualname__ else []
        inside = getattr(function, "__wrapped__", None) or (inner[0] if len(inner) == 1 else None)
        if inside is None or "triton_fallback" in inspect.getclosurevars(function).nonlocals:
            return function
        function = inside


def _source(function: Any) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""
