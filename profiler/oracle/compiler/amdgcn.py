"""AMD's assembly as LLVM writes it: instructions by class with their source line, registers, scratch.

Lines are the last that LLVM names before an instruction: what it moved without a line counts for its new neighbour.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from profiler.oracle.compiler.machine import (
    ASYNC_COPY,
    ATOMIC,
    BARRIER,
    CONTROL,
    CONVERSION,
    FLOAT,
    GLOBAL_LOAD,
    GLOBAL_STORE,
    INTEGER,
    LOCAL_LOAD,
    LOCAL_STORE,
    MATRIX,
    OTHER,
    SHARED_LOAD,
    SHARED_STORE,
    SHUFFLE,
    SPECIAL,
    WAIT,
    Instruction,
    Matrix,
)
from profiler.oracle.compiler.ptx import source_lines

RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"(global|buffer|flat)_load_lds|(global|buffer)_load_\w+ .*\blds\b", ASYNC_COPY),
        (r"(global|buffer|flat)_atomic|ds_(add|sub|max|min|cmpst|cmpswap|or|and|xor)_", ATOMIC),
        (r"(global|buffer|flat)_load", GLOBAL_LOAD),
        (r"(global|buffer|flat)_store", GLOBAL_STORE),
        (r"scratch_load", LOCAL_LOAD),
        (r"scratch_store", LOCAL_STORE),
        (r"ds_(bpermute|permute|swizzle)|v_permlane|v_mov_b32_dpp|v_readlane|v_writelane|v_\w+_dpp\b", SHUFFLE),
        (r"ds_(read|load)", SHARED_LOAD),
        (r"ds_(write|store)", SHARED_STORE),
        (r"v_s?mfma|v_wmma|v_smfmac", MATRIX),
        (r"s_barrier", BARRIER),
        (r"s_waitcnt|s_nop|s_sleep|buffer_(inv|wbl2|gl)", WAIT),
        (r"v_cvt", CONVERSION),
        (r"v_(exp|log|rcp|rsq|sqrt|sin|cos|div_(scale|fmas|fixup))_", SPECIAL),
        (r"v_(pk_)?\w*_(f16|f32|f64|bf16)", FLOAT),
        (r"s_(branch|cbranch|endpgm|setpc|swappc|getpc|trap|setprio|code_end)", CONTROL),
        (r"s_(load|buffer_load|store|memtime|sendmsg)", OTHER),
        (r"[vs]_", INTEGER),
    )
)
WIDTHS: Mapping[str, int] = {
    "dwordx4": 128, "dwordx3": 96, "dwordx2": 64, "dword": 32, "ushort": 16, "sshort": 16, "short": 16, "ubyte": 8,
    "sbyte": 8, "byte": 8, "b128": 128, "b96": 96, "b64": 64, "b32": 32, "b16": 16, "u16": 16, "u8": 8, "b8": 8,
}  # fmt: skip
MOVING = frozenset({GLOBAL_LOAD, GLOBAL_STORE, ASYNC_COPY, ATOMIC, SHARED_LOAD, SHARED_STORE, LOCAL_LOAD, LOCAL_STORE})
_CODE = re.compile(r"^\s+((?:v|s|ds|global|buffer|flat|scratch)_[a-z0-9_]+)(.*)")
_MFMA = re.compile(r"v_mfma_(\w+?)_(\d+)x(\d+)x(\d+)_?(?:\d+b_)?(\w+)")


@dataclass(frozen=True, slots=True)
class Usage:
    """The assembly's own metadata: vector registers (accumulators included), scratch bytes, spilled registers."""

    registers: int | None
    scratch_bytes: int | None
    spilled_registers: int | None


def usage(text: str) -> Usage:
    """Registers and scratch of a thread."""

    def number(name: str) -> int | None:
        return int(match.group(1)) if (match := re.search(rf"\.{name}:\s*(\d+)", text)) else None

    return Usage(number("vgpr_count"), number("private_segment_fixed_size"), number("vgpr_spill_count"))


def instructions(text: str) -> tuple[Instruction, ...]:
    """Every instruction of the assembly."""
    lines = source_lines(text, ";")
    return tuple(
        Instruction(lines[number], code.group(1), kind, bits_of(code.group(1)) if kind in MOVING else None)
        for number, one in enumerate(text.splitlines(), 1)
        if (code := _CODE.match(one)) and (kind := kind_of(code.group(1) + code.group(2)))
    )


def kind_of(text: str) -> str:
    """Class of an instruction such as "global_load_dwordx4 v[0:3], v1, s[2:3]"."""
    return next((kind for pattern, kind in RULES if pattern.match(text)), OTHER)


def bits_of(opcode: str) -> int | None:
    """Bits that one lane moves; a "2" as in ds_read2_b64 moves two of them."""
    width = next((WIDTHS[part] for part in reversed(opcode.split("_")) if part in WIDTHS), None)
    return width * 2 if width and re.match(r"ds_(read|write|load|store)_?2", opcode) else width


def matrices(text: str) -> tuple[Matrix, ...]:
    """Matrix instructions, counted by form and source line."""
    lines = source_lines(text, ";")
    counts: Counter[tuple[str, str, int]] = Counter()
    for number, one in enumerate(text.splitlines(), 1):
        if (code := _CODE.match(one)) and (mfma := _MFMA.match(code.group(1))):
            result, m, n, k, element = mfma.groups()
            counts[f"m{m}n{n}k{k}", f"{result}.{element}", lines[number]] += 1
    return tuple(Matrix("v_mfma", shape, types, count, line) for (shape, types, line), count in counts.items())
