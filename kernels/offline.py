"""Compile a kernel for a GPU that is not here: registers, spills, shared memory, PTX and SASS as evidence.

Needs only the triton package: it ships ptxas, cuobjdump and nvdisasm. Nothing is launched and no driver is loaded.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.codegen.source import Source, load

TARGETS: Mapping[str, GPUTarget] = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_86": GPUTarget("cuda", 86, 32),
    "sm_89": GPUTarget("cuda", 89, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "sm_120": GPUTarget("cuda", 120, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
"""Targets by the name that `profiler.hardware` uses."""

REGISTERS_PER_SM = 65536
THREADS_PER_SM = 2048
TOOL_TIMEOUT_S = 60.0


class CompileError(Exception):
    """The kernel does not compile for this target; the message is the compiler's first line."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a compiled kernel takes of a GPU. spill_bytes: stack per thread, which holds spilled registers.

    registers and spill_bytes are None where the target's tools do not tell. occupancy: share of an SM's threads that
    registers and shared memory leave room for, 0 to 1, None where registers are unknown.
    """

    target: str
    kernel: str
    warps: int
    constants: tuple[tuple[str, int], ...]
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int
    ptx: str = ""
    sass: str = ""
    occupancy: float | None = None


def compile_for(
    function: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    target: str = "sm_90",
    warps: int = 4,
    sass: bool = False,
    aligned: bool = True,
) -> Compiled:
    """Compile a jit function. signature: argument -> "*bf16", "i32", ...; constants: tl.constexpr arguments.

    aligned: pointers are multiples of 16 bytes, as torch allocates them. Raises CompileError where the compiler
    refuses, KeyError for an unknown target.
    """
    names = list(function.arg_names)
    attributes = {(names.index(n),): [["tt.divisibility", 16]] for n, t in signature.items() if aligned and t[0] == "*"}
    full = {n: signature.get(n, "constexpr") for n in names}
    source = ASTSource(function, full, constexprs=dict(constants), attrs=attributes)
    try:
        made = triton.compile(source, target=TARGETS[target], options={"num_warps": warps, "enable_fp_fusion": True})
    except Exception as fault:  # Triton raises many kinds; each means that this target does not take the kernel
        raise CompileError(str(fault).strip().splitlines()[0][:300] if str(fault).strip() else repr(fault)) from fault
    result = Compiled(
        target, function.__name__, warps, tuple(constants.items()), None, None, int(made.metadata.shared),
        ptx=str(made.asm.get("ptx", made.asm.get("amdgcn", ""))),
    )  # fmt: skip
    if "cubin" in made.asm:
        return _from_cubin(result, made.asm["cubin"], sass)
    return _from_amdgcn(result)


def signature_of(source: Source) -> dict[str, str]:
    """Argument types of a generated kernel, by its parameter names in order."""
    function = kernel_of(source)
    types = [o.dtype for o in source.operands] + [s.dtype for s in source.outputs]
    return {name: f"*{POINTERS[t]}" for name, t in zip(function.arg_names, types, strict=False)}


POINTERS: Mapping[str, str] = {
    "f64": "fp64", "f32": "fp32", "bf16": "bf16", "f16": "fp16", "f8e4m3": "fp8e4nv", "f8e5m2": "fp8e5",
    "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "u8": "u8", "bool": "i1",
}  # fmt: skip


def kernel_of(source: Source) -> Any:
    """The jit function of a generated kernel, without its autotuner."""
    return getattr(load(source), source.kernel).fn


def compile_source(source: Source, target: str = "sm_90", sass: bool = False) -> tuple[Compiled, ...]:
    """Every configuration of a generated kernel, compiled for a target. Raises CompileError."""
    if source.form == "empty":
        return ()
    function, signature = kernel_of(source), signature_of(source)
    return tuple(
        compile_for(function, signature, dict(constants), target, warps, sass) for constants, warps in source.constants
    )


def _tool(name: str) -> str:
    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    if done.returncode:
        raise CompileError(f"{Path(command[0]).name}: {done.stderr.strip()[:200]}")
    return done.stdout


def _from_cubin(compiled: Compiled, cubin: bytes, sass: bool) -> Compiled:
    """Registers, stack and shared memory from the real cubin: re-running ptxas would give other numbers."""
    handle, path = tempfile.mkstemp(suffix=".cubin")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(cubin)
        usage = _run(_tool("cuobjdump"), "--dump-resource-usage", path)
        listing = _run(_tool("nvdisasm"), path) if sass else ""
    finally:
        os.unlink(path)
    registers = int(found.group(1)) if (found := re.search(r"REG:(\d+)", usage)) else None
    stack = int(found.group(1)) if (found := re.search(r"STACK:(\d+)", usage)) else None
    occupancy = None if registers is None else _occupancy(registers, compiled.warps)
    return replace(compiled, registers=registers, spill_bytes=stack, sass=listing, occupancy=occupancy)


def _occupancy(registers: int, warps: int) -> float:
    """Share of an SM's 2048 threads that 65536 registers leave room for; allocation is in 256s per warp."""
    per_warp = -(-registers * 32 // 256) * 256
    blocks = min(REGISTERS_PER_SM // (per_warp * warps), THREADS_PER_SM // (32 * warps), 32)
    return blocks * warps * 32 / THREADS_PER_SM


def _from_amdgcn(compiled: Compiled) -> Compiled:
    """AMD: vector registers and scratch from the assembly's own metadata."""
    registers = re.search(r"\.vgpr_count:\s*(\d+)", compiled.ptx)
    scratch = re.search(r"\.private_segment_fixed_size:\s*(\d+)", compiled.ptx)
    return replace(
        compiled,
        registers=int(registers.group(1)) if registers else None,
        spill_bytes=int(scratch.group(1)) if scratch else None,
    )


__all__ = ["TARGETS", "CompileError", "Compiled", "compile_for", "compile_source", "kernel_of", "signature_of"]
