"""Parameters of the operations that a wrapper calls, from torch's own schemas."""

from __future__ import annotations

import functools

import torch

from profiler.oracle.inductor.call_sites import DTYPES, Parameter
from profiler.oracle.model import Constant

SAME_PARAMETERS = {"bias_addmm": "addmm", "mm_dtype": "mm", "bmm_dtype": "bmm", "conv1x1_via_mm": "convolution"}
"""Inductor's own names of library calls -> the operation that takes the same arguments in the same order."""


@functools.cache
def parameters_of(name: str) -> tuple[Parameter, ...]:
    """Parameters in order, for "torch.ops.aten.topk.default", "extern_kernels.mm" or a tensor's method, "sum".

    Without the one that results are written into; () where torch has no such operation.
    """
    space, operation, overload = _parts(name)
    try:
        packet = getattr(getattr(torch.ops, space), SAME_PARAMETERS.get(operation, operation))
        choices = packet.overloads()
        chosen = getattr(packet, overload or ("default" if "default" in choices else choices[0]))
        arguments = chosen._schema.arguments
    except (AttributeError, RuntimeError, IndexError):
        return ()
    return tuple(
        Parameter(
            a.name, _constant(a.default_value), a.has_default_value(), bool(a.alias_info and a.alias_info.is_write)
        )
        for a in arguments
        if not a.is_out
    )


def _parts(name: str) -> tuple[str, str, str]:
    """Namespace, operation and overload, "" where the name has none."""
    words = name.removeprefix("torch.ops.").removeprefix("extern_kernels.").split(".")
    if words[0] in ("aten", "prims", "inductor", "inductor_ops", "quantized", "_quantized") or "torch.ops." in name:
        space, *words = words
    else:
        space = "aten"
    operation, overload = [*words, "", ""][:2]
    if operation == "sum" and not overload:
        overload = "dim_IntList"  # as the wrapper calls it on tensors
    return space.removesuffix("_ops"), operation, overload


def _constant(value: object) -> Constant:
    """A default that is a number, a truth value, a text, a type or a list of them; None for any other."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return DTYPES.get(str(value).removeprefix("torch."))
    if isinstance(value, list | tuple) and all(isinstance(v, bool | int | float | str) for v in value):
        return tuple(value)
    return None
