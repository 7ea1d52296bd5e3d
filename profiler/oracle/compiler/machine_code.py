"""Compile a kernel for a GPU that is not here, with Triton's own compiler, and read off what it decided.

Needs only the triton package: it ships ptxas, cuobjdump and nvdisasm. Nothing is launched and no driver is loaded.
"""

from __future__ import annotations

import inspect
import linecache
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from profiler.oracle.compiler import amdgcn, binary_tools, ptx, sass, ttgir
from profiler.oracle.compiler.machine import Instruction, Machine, Matrix, table
from profiler.oracle.compiler.targets import TARGETS, residence

MAX_TEXT = 2_000_000
"""Characters of one listing that are kept; a kernel whose loop was unrolled a thousand times has more."""

DEFAULT_STAGES = 3
DIVISIBLE = 16
"""Pointers and integers that are multiples of this are declared so by Inductor and by Triton's launcher."""

_QUOTED_PATH = re.compile(r'"/[^"\n]*?/?([^"/\n]+)"')


class CompileError(Exception):
    """The kernel does not compile for this target; the message is the compiler's first line."""


Attributes = Mapping[tuple[int, ...], list[list[Any]]]


def multiples_of_16(names: Sequence[str], divisible: Iterable[str]) -> Attributes:
    """Triton's attributes for arguments that are multiples of 16: pointers in bytes, integers in value."""
    return {(names.index(name),): [["tt.divisibility", DIVISIBLE]] for name in divisible}


class _StandIn:
    """What Triton's language asks of a driver: which GPU the kernel is for (target_info.is_cuda())."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        return self._target


@contextmanager
def _as_if_on(target: GPUTarget) -> Iterator[None]:
    """Kernels that ask for their target are compiled for this one, into a cache of their own.

    Without the stand-in a kernel's inline assembly is left out where there is no GPU, and Triton's cache, whose key
    does not know of it, would hand that version to a launch on a host that has one.
    """
    driver = triton.runtime.driver
    before = driver._active
    with knobs.cache.scope():
        knobs.cache.dir = os.path.join(knobs.cache.dir, "offline")
        driver.set_active(_StandIn(target))
        try:
            yield
        finally:
            driver._active = before


def compile_for(
    function: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    target: str = "sm_90",
    warps: int = 4,
    stages: int = DEFAULT_STAGES,
    aligned: bool = True,
    divisible: Sequence[str] = (),
    attributes: Attributes | None = None,
    options: Mapping[str, Any] | None = None,
) -> Machine:
    """Compile a `triton.jit` or `gluon.jit` function of a file.

    signature: argument -> "*bf16", "i32", ...; constants: tl.constexpr arguments. aligned: pointers are multiples of
    16 bytes, as torch allocates them. divisible: integer arguments that are multiples of 16; without it, strides that
    are arguments forbid wide loads. attributes: all that is known of arguments in Triton's own form, instead of these.
    options: further compile options. Raises CompileError where the compiler refuses, or the target is none of TARGETS.
    """
    if (limits := TARGETS.get(target)) is None:
        raise CompileError(f"no machine code for {target}: only for {', '.join(TARGETS)}")
    started_s = time.perf_counter()
    names = list(function.arg_names)
    if attributes is None:
        pointers = [name for name, kind in signature.items() if aligned and kind.startswith("*")]
        attributes = multiples_of_16(names, [*pointers, *divisible])
    full = {name: signature.get(name, "constexpr") for name in names}
    settings = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True, **(options or {})}
    gpu = GPUTarget(limits.backend, limits.capability, limits.warp_size)
    try:
        with _as_if_on(gpu):
            compiled = triton.compile(
                _source_class(function)(function, full, constexprs=dict(constants), attrs=dict(attributes)),
                target=gpu,
                options=settings,
            )
    except Exception as fault:  # Triton raises many kinds; each means that this target does not take the kernel
        raise CompileError(_first_line(fault)) from fault
    texts = {k: str(v) for k, v in compiled.asm.items() if k in ("ttir", "ttgir", "llir", "ptx", "amdgcn")}
    plain_constants = {k: v for k, v in constants.items() if isinstance(v, bool | int | float | str) or v is None}
    shared = int(compiled.metadata.shared)
    try:
        if limits.backend == "cuda":
            texts["sass"] = binary_tools.disassemble(compiled.asm["cubin"])
            code = _of_cubin(compiled.asm["cubin"], texts, int(limits.capability), bool(settings["enable_fp_fusion"]))
        else:
            code = _of_amdgcn(texts["amdgcn"])
    except binary_tools.ToolError as fault:
        raise CompileError(str(fault)) from fault
    block_warps = (ptx.threads(texts.get("ptx", "")) or warps * limits.warp_size) // limits.warp_size
    room = residence(limits, code.registers, block_warps, shared) if code.registers else None
    text, text_of = _source_of(function)
    short_texts, cut = _clean(texts)
    return Machine(
        target=target,
        kernel=function.__name__,
        num_warps=warps,
        num_stages=int(getattr(compiled.metadata, "num_stages", stages)),
        block_warps=block_warps,
        constants=tuple(plain_constants.items()),
        registers=code.registers,
        stack_bytes=code.stack_bytes,
        spill_bytes=code.spill_bytes,
        spill_load_bytes=code.spill_load_bytes,
        shared_bytes=shared,
        blocks=room.blocks if room else None,
        occupancy=room.share if room else None,
        limited_by=room.limited_by if room else "",
        lines=table(code.instructions, text_of),
        matrix=code.matrix,
        buffers=ttgir.buffers(texts.get("ttgir", "")),
        warp_specialized=ttgir.warp_specialized(texts.get("ttgir", "")),
        source=text,
        triton=str(triton.__version__),
        texts=short_texts,
        cut=cut,
        took_s=time.perf_counter() - started_s,
    )


@dataclass(frozen=True, slots=True)
class _CodeFacts:
    """What a listing says; the fields are Machine's."""

    registers: int | None
    stack_bytes: int | None
    spill_bytes: int | None
    spill_load_bytes: int | None
    instructions: tuple[Instruction, ...]
    matrix: tuple[Matrix, ...]


def _of_cubin(cubin: bytes, texts: Mapping[str, str], capability: int, fused: bool) -> _CodeFacts:
    """Everything from the cubin that would be loaded. Without stack there are no spills; ptxas says which are."""
    usage = binary_tools.usage_of(cubin)
    spills: binary_tools.Spills | None = binary_tools.Spills(0, 0) if usage.stack_bytes == 0 else None
    if usage.stack_bytes:
        spills = binary_tools.spills_of(texts["ptx"], capability, fused, usage)
    return _CodeFacts(
        usage.registers,
        usage.stack_bytes,
        spills.stored_bytes if spills else None,
        spills.loaded_bytes if spills else None,
        sass.instructions(texts["sass"], ptx.source_lines(texts["ptx"])),
        ptx.matrices(texts["ptx"]),
    )


def _of_amdgcn(text: str) -> _CodeFacts:
    """The same from AMD's assembly; LLVM counts spilled registers, of 4 bytes a lane each, but not their loads."""
    usage = amdgcn.usage(text)
    spilled = None if usage.spilled_registers is None else 4 * usage.spilled_registers
    instructions = amdgcn.instructions(text)
    return _CodeFacts(usage.registers, usage.scratch_bytes, spilled, None, instructions, amdgcn.matrices(text))


def _source_class(function: Any) -> Any:
    """What Triton compiles it from: Gluon's functions begin a step later than Triton's own."""
    if not function.is_gluon():
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource  # experimental: only who needs it depends on it

    return GluonASTSource


def _source_of(function: Any) -> tuple[str, dict[int, str]]:
    """The text of the file that a kernel is in, and its lines by number from 1."""
    file = inspect.getsourcefile(function.fn) or ""
    lines = linecache.getlines(file)
    return "".join(lines), dict(enumerate((line.rstrip("\n") for line in lines), 1))


def _clean(texts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, int]]:
    """Listings to be read: without bytes of debug sections, folders of this machine, and more than MAX_TEXT."""
    cleaned, cut = {}, {}
    for name, text in texts.items():
        text = _QUOTED_PATH.sub(r'"\1"', ptx.without_debug_sections(text) if name == "ptx" else text)
        if len(text) > MAX_TEXT:
            cut[name] = len(text)
            text = text[: text.rfind("\n", 0, MAX_TEXT) + 1] + f"... cut here: {len(text):,} characters in all\n"
        cleaned[name] = text
    return cleaned, cut


def _first_line(fault: BaseException) -> str:
    """A short reason. A CompilationError of Triton shows the code first and says why at the end."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    cause = fault.__cause__
    if cause is not None and str(cause).strip():
        return f"{str(cause).strip().splitlines()[0][:300]}"
    return (lines[0] if lines else repr(fault))[:300]


__all__ = ["MAX_TEXT", "CompileError", "compile_for", "multiples_of_16"]
