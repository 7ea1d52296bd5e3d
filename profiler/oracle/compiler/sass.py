"""SASS, NVIDIA's machine code, as nvdisasm prints it: instructions by class, each with its source line.

The listing must be made with `nvdisasm -c -g -gp`. Its `-g` names the innermost file and line, which for tl.sum is a
line of Triton's own library; its `-gp` names the line of the PTX, whose comments know the whole chain of callers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
    MBARRIER,
    OTHER,
    SHARED_LOAD,
    SHARED_STORE,
    SHUFFLE,
    SPECIAL,
    TENSOR_MEMORY,
    WAIT,
    Instruction,
)

OPCODES: Mapping[str, str] = {
    GLOBAL_LOAD: "LDG LD",
    GLOBAL_STORE: "STG ST UTMASTG UBLKRED",
    ATOMIC: "ATOM ATOMG RED REDG UTMAREDG",
    ASYNC_COPY: "LDGSTS UTMALDG UBLKCP UTMAPF",
    SHARED_LOAD: "LDS LDSM LDSMT",
    SHARED_STORE: "STS STSM STAS ATOMS",
    LOCAL_LOAD: "LDL",
    LOCAL_STORE: "STL",
    TENSOR_MEMORY: "LDTM STTM UTCCP UTCSHIFT ATOMSWS UTCATOMSWS",
    MATRIX: "HMMA IMMA DMMA QMMA OMMA BMMA HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCQMMA UTCIMMA UTCOMMA UTCMMA",
    BARRIER: "BAR UCGABAR CGABAR B2R",
    MBARRIER: "SYNCS UTCBAR",
    WAIT: "DEPBAR LDGDEPBAR WARPGROUP WARPGROUPSET FENCE MEMBAR ERRBAR UTMACMDFLUSH UTMACCTL CCTL ARRIVES LDTMWAIT "
    "NANOSLEEP ACQBULK PREEXIT",
    SHUFFLE: "SHFL REDUX VOTE VOTEU MATCH CREDUX",
    SPECIAL: "MUFU FCHK",
    CONVERSION: "F2F F2FP F2I F2IP I2F I2FP I2I I2IP FRND F2FP2",
    FLOAT: "FADD FADD2 FADD32I FMUL FMUL2 FMUL32I FFMA FFMA2 FFMA32I FMNMX FMNMX3 FSEL FSET FSETP FSWZADD HADD2 "
    "HADD2_32I HMUL2 HMUL2_32I HFMA2 HFMA2_32I HMNMX2 HMNMX HSET2 HSETP2 DADD DMUL DFMA DSETP DMNMX",
    CONTROL: "BRA BRX BRXU JMP JMX EXIT RET CALL BSSY BSYNC BREAK BMOV WARPSYNC YIELD KILL BPT RTT PLOP3 UPLOP3 ELECT "
    "UVIRTCOUNT USETMAXREG ENDCOLLECTIVE WARPSYNCALL",
    INTEGER: "IADD IADD3 IADD32I IABS IMAD IMUL IMUL32I IMNMX ISCADD ISETP ISET LEA LOP LOP3 LOP32I SHF SHL SHR SEL "
    "SGXT PRMT POPC FLO BREV BMSK IDP IDP4A VABSDIFF VABSDIFF4 VADD VIADD VIADDMNMX VIMNMX VIMNMX3 VHMNMX ICMP MOV "
    "MOV32I MOVM CS2R S2R S2UR R2UR R2P P2R CSET R2B",
}  # fmt: skip
KIND_OF: Mapping[str, str] = {opcode: kind for kind, names in OPCODES.items() for opcode in names.split()}
MOVING = frozenset({GLOBAL_LOAD, GLOBAL_STORE, ATOMIC, ASYNC_COPY, SHARED_LOAD, SHARED_STORE, LOCAL_LOAD, LOCAL_STORE})
BITS: Mapping[str, int] = {
    "U8": 8,
    "S8": 8,
    "U16": 16,
    "S16": 16,
    "F16": 16,
    "64": 64,
    "96": 96,
    "128": 128,
    "256": 256,
}
BULK = ("UTMA", "UBLK")  # their size is in a descriptor or a register

_CODE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)")
_PTX_LINE = re.compile(r'//## File "\.nv_debug_ptx_txt", line (\d+)')


def instructions(listing: str, source_line_of: Mapping[int, int]) -> tuple[Instruction, ...]:
    """Every instruction of a listing but its padding. source_line_of: PTX line -> line of the kernel's source."""
    decoded: list[Instruction] = []
    line = 0
    for text in listing.splitlines():
        if at := _PTX_LINE.search(text):
            line = source_line_of.get(int(at.group(1)), line)
        elif code := _CODE.match(text):
            opcode = code.group(1)
            if opcode != "NOP":
                kind = kind_of(opcode)
                decoded.append(Instruction(line, opcode, kind, bits_of(opcode) if kind in MOVING else None))
    return tuple(decoded)


def kind_of(opcode: str) -> str:
    """Class of an opcode such as "LDG.E.128"; uniform ones (UIADD3) count as their ordinary kind."""
    name = opcode.split(".", 1)[0]
    return KIND_OF.get(name) or KIND_OF.get(name.removeprefix("U"), OTHER)


def bits_of(opcode: str) -> int | None:
    """Bits that one thread moves with a memory instruction; None for bulk copies: the opcode does not say."""
    name, *parts = opcode.split(".")
    if name.startswith(BULK):
        return None
    if name in ("LDSM", "STSM"):  # 8x8 matrices of 16 bits: each gives every thread 32
        return 32 * max((int(p) for p in parts if p in ("1", "2", "4")), default=1)
    return next((BITS[p] for p in parts if p in BITS), 32)
