"""PTX as Triton writes it: which source line each of its lines came from, matrix instructions, threads of a block."""

from __future__ import annotations

import re
from collections import Counter

from profiler.oracle.compiler.machine import Matrix

_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)\s+\d+")
_CHAIN = re.compile(r"([^\s:@\[\]]*):(\d+):\d+")
_OPCODE = re.compile(r"^\s*(?:\{\s*)?(?:@!?%p\d+\s+)?([a-z][\w.:]*)")
_SHAPE = re.compile(r"\.(m\d+n\d+k\d+)\b")
_THREADS = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)")
_TYPES = re.compile(r"\.((?:f|bf|s|u|tf|e\d+m)\d+\w*|kind::\w+)(?=\.|$)")
MATRIX_OPCODES = {"wgmma.mma_async": "wgmma", "mma.sync": "mma.sync", "tcgen05.mma": "tcgen05.mma"}
DEBUG_SECTION = re.compile(r"^\s*\.section\s+\.debug_", re.MULTILINE)


def source_lines(text: str, comment: str = "//") -> dict[int, int]:
    """Line of the assembly (from 1) -> line of the kernel's source, for every line after the first `.loc`.

    LLVM writes the chain of inlined callers into the comment of each `.loc`: "standard.py:263:15 @[ k.py:17:13 ]". The
    outermost is the kernel's own line. Line 0 means that the compiler made the code up: the line before stays.
    """
    source_line_of: dict[int, int] = {}
    line = 0
    for number, one in enumerate(text.splitlines(), 1):
        if at := _LOC.match(one):
            chain = _CHAIN.findall(one.partition(comment)[2])
            line = int(chain[-1][1] if chain else at.group(1)) or line
        source_line_of[number] = line
    return source_line_of


def matrices(text: str) -> tuple[Matrix, ...]:
    """Matrix instructions of a PTX text, counted by form and source line."""
    lines = source_lines(text)
    counts: Counter[tuple[str, str, str, int]] = Counter()
    for number, one in enumerate(text.splitlines(), 1):
        if not (code := _OPCODE.match(one)):
            continue
        opcode = code.group(1)
        for prefix, name in MATRIX_OPCODES.items():
            if opcode.startswith(prefix + "."):
                shape = match.group(1) if (match := _SHAPE.search(opcode)) else ""
                counts[name, shape, ".".join(_TYPES.findall(opcode)), lines[number]] += 1
    return tuple(Matrix(name, shape, types, count, line) for (name, shape, types, line), count in counts.items())


def threads(text: str) -> int | None:
    """Threads of a block as the kernel demands them; more than its warps where the compiler specialises warps."""
    return int(match.group(1)) if (match := _THREADS.search(text)) else None


def without_debug_sections(text: str) -> str:
    """The code alone: what follows is debug information as bytes."""
    return text[: match.start()] if (match := DEBUG_SECTION.search(text)) else text
