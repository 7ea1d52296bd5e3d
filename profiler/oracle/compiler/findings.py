"""What a compiler decided about a kernel, in short sentences, each with the source lines that it is seen on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from profiler.oracle.compiler.machine import (
    ASYNC_COPY,
    ATOMIC,
    BARRIER,
    GLOBAL_LOAD,
    GLOBAL_STORE,
    LOCAL_LOAD,
    LOCAL_STORE,
    MATRIX,
    Line,
    Machine,
    Tally,
)
from profiler.oracle.compiler.targets import TARGETS

FULL = 0.999
"""Share of a processor's threads from which on nothing counts as running out."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One decision. subject: a short key for pages ("loads", "spills"); lines: of the source, where there are any."""

    subject: str
    text: str
    lines: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.lines:
            return self.text
        return f"{self.text}: {'line' if len(self.lines) == 1 else 'lines'} {', '.join(map(str, self.lines))}"


def findings(machine: Machine) -> tuple[Finding, ...]:
    """Every decision that can be read off, the costly ones as well as their absence where that is worth knowing.

    For AMD without lines: LLVM moves loads there without saying which line they came from, and a wrong line is worse
    than none.
    """
    decisions = tuple(finding for rule in RULES for finding in rule(machine))
    if TARGETS[machine.target].backend == "hip":
        return tuple(replace(finding, lines=()) for finding in decisions)
    return decisions


def _moves(verb: str, subject: str, *kinds: str) -> Callable[[Machine], Iterator[Finding]]:
    """A rule: one finding for each width that these kinds of instructions have, widest first."""

    def rule(machine: Machine) -> Iterator[Finding]:
        for bits in reversed(machine.bits(*kinds)):
            lines = _numbers(line.number for line, tally in machine.tallies(*kinds) if tally.bits == bits)
            yield Finding(subject, f"{verb} {bits} bits at a time", lines)

    return rule


def _residence(machine: Machine) -> Iterator[Finding]:
    limit = TARGETS[machine.target].shared_block_bytes
    if machine.shared_bytes > limit:
        yield Finding(
            "residence",
            f"takes {machine.shared_bytes:,} bytes of shared memory, a block may have {limit:,}: it cannot be launched",
        )
        return
    parts = [_count(machine.block_warps, "warp") + " a block"]
    if machine.registers is not None:
        parts.append(f"{_count(machine.registers, 'register')} a thread")
    if machine.shared_bytes:
        parts.append(f"{machine.shared_bytes:,} bytes of shared memory a block")
    if machine.occupancy is None or machine.blocks is None:
        yield Finding("residence", ", ".join(parts))
        return
    room = f"{_count(machine.blocks, 'block')}/SM, {machine.occupancy:.0%} occupancy"
    why = f"; {machine.limited_by} run{'s' if machine.limited_by == 'shared memory' else ''} out first"
    yield Finding("residence", f"{', '.join(parts)}: {room}{why if machine.occupancy < FULL else ''}")


def _spills(machine: Machine) -> Iterator[Finding]:
    where = _lines(machine.tallies(LOCAL_LOAD, LOCAL_STORE))
    if machine.spill_bytes:
        reads = f", {machine.spill_load_bytes:,} loaded back" if machine.spill_load_bytes else ""
        into = f" into {machine.stack_bytes:,} of local memory" if machine.stack_bytes else ""
        yield Finding("spills", f"a thread spills registers: {machine.spill_bytes:,} bytes stored{into}{reads}", where)
    elif machine.stack_bytes and machine.spill_bytes is None:
        yield Finding(
            "spills", f"a thread keeps {machine.stack_bytes:,} bytes in local memory, spilled or indexed", where
        )
    elif machine.stack_bytes:
        yield Finding(
            "spills", f"a thread keeps {machine.stack_bytes:,} bytes in local memory for arrays, no spills", where
        )
    elif machine.stack_bytes == 0:
        yield Finding("spills", "spills nothing")


def _matrix(machine: Machine) -> Iterator[Finding]:
    for name, shape, types in dict.fromkeys((m.instruction, m.shape, m.types) for m in machine.matrix):
        of = [m for m in machine.matrix if (m.instruction, m.shape, m.types) == (name, shape, types)]
        words = " ".join(w for w in (name, shape, types) if w)
        yield Finding("matrix", f"multiplies with the matrix instruction {words}", _numbers(m.line for m in of))
    dots = [line.number for line in machine.lines if "tl.dot(" in line.text or "tl.dot_scaled(" in line.text]
    if dots and not machine.matrix and not machine.count(MATRIX):
        yield Finding("matrix", "no matrix instruction: products run on the vector units", _numbers(dots))


def _pipeline(machine: Machine) -> Iterator[Finding]:
    for buffer in machine.buffers:
        tile = " × ".join(map(str, buffer.shape))
        yield Finding(
            "pipeline",
            f"keeps {_count(buffer.copies, 'tile')} of {tile} {buffer.dtype} in shared memory",
            _numbers([buffer.line]),
        )
    if machine.matrix and machine.num_stages > 1 and not machine.buffers:
        yield Finding("pipeline", f"{machine.num_stages} stages were asked for, no loop is pipelined in shared memory")
    bulk = _numbers(line.number for line, tally in machine.tallies(ASYNC_COPY) if tally.bits is None)
    if bulk:
        yield Finding("pipeline", "copies whole tiles asynchronously (TMA)", bulk)
    if machine.warp_specialized:
        yield Finding("pipeline", "gives warps different work (warp specialisation)")


def _barriers(machine: Machine) -> Iterator[Finding]:
    if machine.barriers:
        yield Finding(
            "barriers", f"{_count(machine.barriers, 'barrier')} of the block", _lines(machine.tallies(BARRIER))
        )
    elif machine.lines:
        yield Finding("barriers", "no barriers: warps never wait for each other")


def _atomics(machine: Machine) -> Iterator[Finding]:
    if count := machine.count(ATOMIC):
        yield Finding("atomics", _count(count, "atomic instruction"), _lines(machine.tallies(ATOMIC)))


RULES: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    _residence,
    _spills,
    _moves("loads", "loads", GLOBAL_LOAD),
    _moves("copies to shared memory asynchronously,", "copies", ASYNC_COPY),
    _moves("stores", "stores", GLOBAL_STORE),
    _atomics,
    _matrix,
    _pipeline,
    _barriers,
)


def _lines(tallies: Iterable[tuple[Line, Tally]]) -> tuple[int, ...]:
    return _numbers(line.number for line, _ in tallies)


def _numbers(lines: Iterable[int]) -> tuple[int, ...]:
    """Line numbers in order, each once, without 0, which means none."""
    return tuple(sorted({line for line in lines if line}))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


__all__ = ["Finding", "findings"]
