"""What the tests read off a compiled kernel: widths of its accesses, and the findings as sentences."""

from __future__ import annotations

from profiler.oracle.compiler.findings import findings
from profiler.oracle.compiler.machine import ASYNC_COPY, GLOBAL_LOAD, GLOBAL_STORE, Machine


def load_bits(machine: Machine) -> tuple[int, ...]:
    """Widths of loads from global memory, asynchronous copies to shared memory included."""
    return machine.bits(GLOBAL_LOAD, ASYNC_COPY)


def store_bits(machine: Machine) -> tuple[int, ...]:
    """Widths of stores to global memory."""
    return machine.bits(GLOBAL_STORE)


def sentences(machine: Machine) -> tuple[str, ...]:
    """The findings: "loads 128 bits at a time: lines 5, 6", "spills 64 bytes a thread: line 9"."""
    return tuple(str(finding) for finding in findings(machine))
