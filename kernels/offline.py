"""Generated kernels compiled for a GPU that is not here: what profiler.oracle reads off any kernel, for our own.

Nothing is launched and no driver is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.codegen.source import Source, load
from profiler.oracle.machine import Machine
from profiler.oracle.machine_code import compile_for

POINTERS: Mapping[str, str] = {
    "f64": "fp64", "f32": "fp32", "bf16": "bf16", "f16": "fp16", "f8e4m3": "fp8e4nv", "f8e5m2": "fp8e5",
    "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "u8": "u8", "bool": "i1",
}  # fmt: skip
"""Triton's names of the element types that a region's inputs have."""


def kernel_of(source: Source) -> Any:
    """The jit function of a generated kernel, without its autotuner."""
    return getattr(load(source), source.kernel).fn


def signature_of(source: Source) -> dict[str, str]:
    """Argument types of a generated kernel, by its parameter names in order."""
    function = kernel_of(source)
    types = [o.dtype for o in source.operands] + [s.dtype for s in source.outputs]
    found = {name: f"*{POINTERS[t]}" for name, t in zip(function.arg_names, types, strict=False)}
    return {**found, "seed": "i32"} if source.seeded else found


def compile_source(source: Source, target: str = "sm_90") -> tuple[Machine, ...]:
    """Every configuration of a generated kernel, compiled for a target. Raises profiler.oracle's CompileError."""
    if source.form == "empty":
        return ()
    function, signature = kernel_of(source), signature_of(source)
    return tuple(
        compile_for(function, signature, dict(constants), target, warps) for constants, warps in source.constants
    )


__all__ = ["POINTERS", "compile_source", "kernel_of", "signature_of"]
