"""The binary tools that the triton package ships: cuobjdump, nvdisasm and ptxas, each with a time limit."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import triton

TIMEOUT_S = 60.0


class ToolError(Exception):
    """A tool is missing, failed or took too long; the message is its own first line."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources of a thread in a cubin: registers, and stack bytes (spilled registers and local arrays)."""

    registers: int | None
    stack_bytes: int | None


@dataclass(frozen=True, slots=True)
class Spills:
    """Bytes of a thread's registers that ptxas stores to and loads from local memory because it ran out of them."""

    stored_bytes: int
    loaded_bytes: int


def _run(name: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> tuple[str, str]:
    """Standard output and error of a tool."""
    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    try:
        done = subprocess.run([str(path), *arguments], capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as fault:
        raise ToolError(f"{name} took longer than {timeout_s:g} s") from fault
    except OSError as fault:
        raise ToolError(f"{name} cannot be started: {fault.strerror}") from fault
    if done.returncode:
        raise ToolError(f"{name}: {done.stderr.strip()[:200]}")
    return done.stdout, done.stderr


def usage_of(cubin: bytes) -> Usage:
    """Registers and stack as cuobjdump reads them from the cubin that would be loaded. Raises ToolError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        text, _ = _run("cuobjdump", "--dump-resource-usage", str(file))
    registers, stack = re.search(r"REG:(\d+)", text), re.search(r"STACK:(\d+)", text)
    return Usage(int(registers.group(1)) if registers else None, int(stack.group(1)) if stack else None)


def disassemble(cubin: bytes) -> str:
    """SASS, with lines of the kernel's source and of the PTX where the cubin has them. Raises ToolError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        return _run("nvdisasm", "-c", "-g", "-gp", str(file))[0]


def spills_of(ptx: str, capability: int, fused: bool, expected: Usage) -> Spills | None:
    """What ptxas reports of spills when it assembles a PTX text again; None where that is not the cubin that was made.

    Triton throws away the report of its own run. Its flags differ between versions, and other flags give other numbers
    of registers: the report counts only if registers and stack are those of the real cubin. Raises ToolError.
    """
    name = "ptxas-blackwell" if capability >= 100 else "ptxas"
    arch = f"--gpu-name=sm_{capability}{'a' if capability >= 90 else ''}"
    flags = ["-lineinfo", "-v", arch, *([] if fused else ["--fmad=false"])]
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        for extra in (["--regAllocOptLevel=2"], []):  # Triton 3.7 passes it, 3.6 does not
            try:
                _, report = _run(name, *flags, *extra, str(source), "-o", str(cubin))
            except ToolError:
                continue
            if usage_of(cubin.read_bytes()) == expected and (
                spills := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
            ):
                return Spills(int(spills.group(1)), int(spills.group(2)))
    return None
