"""Traces of real models -> region programs, cut by the product's own reader and miner.

A region that the trace has at several sizes gives one program for each. Left out: regions that have no text, send data
to other GPUs, compute nothing (copies, views, casts, random numbers alone), or take under MIN_US a call.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from profiler.region import op_kinds
from profiler.region.language.text import parse, to_text
from profiler.region.mining.mine import MinedRegion, mine
from profiler.region.model import RegionError
from profiler.trace.execution_trace import read_execution
from profiler.trace.read.reader import read_trace
from tools.corpus.dtypes import AUTOCAST, main_dtype
from tools.corpus.fingerprints import program_of

MIN_US = 2.0
EXECUTION = ".et.json.gz"
TRACE = ".json.gz"
IDLE_KINDS = frozenset({op_kinds.COMMUNICATION, op_kinds.VIEW, op_kinds.COPY, op_kinds.CONSTANT, "optimizer"})


@dataclass(frozen=True, slots=True)
class Source:
    """Where a program was seen. model: the row that was recorded. library: whose code it is.

    time_us: of one eager call, all its kernels, as the trace has them. calls: in the step.
    """

    model: str
    library: str
    module: str
    mode: str
    dtype: str
    device: str
    time_us: float
    calls: float


@dataclass(frozen=True, slots=True)
class MinedProgram:
    """One text at one size, with the source whose calls take longest together. models: all rows that have it."""

    text: str
    kind: str
    source: Source
    models: frozenset[str]

    @property
    def dtype(self) -> str:
        """autocast where the model ran under it, whatever this part of it is in."""
        return AUTOCAST if self.source.dtype == AUTOCAST else main_dtype(self.text)


def mined_programs(folder: Path) -> list[MinedProgram]:
    """Of all traces of a folder, each program once, in the order of its text's fingerprint."""
    by_program: dict[str, MinedProgram] = {}
    for trace in traces_in(folder):
        for item in programs_of(trace):
            key = program_of(item.text)
            known = by_program.get(key)
            by_program[key] = item if known is None else joined(known, item)
    return [by_program[key] for key in sorted(by_program)]


def traces_in(folder: Path) -> list[Path]:
    """By name, without their execution traces."""
    return sorted(p for p in folder.glob(f"*{TRACE}") if not p.name.endswith(EXECUTION))


def joined(one: MinedProgram, other: MinedProgram) -> MinedProgram:
    """The same program seen twice: with the source that it costs more."""
    first = min(one, other, key=lambda p: (-p.source.time_us * p.source.calls, p.source.model))
    return replace(first, models=one.models | other.models)


def programs_of(trace: Path) -> Iterator[MinedProgram]:
    """Of one trace, which says in "corpus" what was recorded; with its execution trace where there is one."""
    about, device = describe(trace)
    companion = trace.with_name(trace.name.removesuffix(TRACE) + EXECUTION)
    execution = read_execution(companion) if companion.exists() else None
    for region in mine(read_trace(trace, processes=1), execution=execution).regions:
        if region.text is None or region.kind in IDLE_KINDS:
            continue
        yield from _at_its_sizes(region, about, device)


def describe(trace: Path) -> tuple[Mapping[str, str], str]:
    """(what was recorded, the GPU's name) as the trace itself says."""
    body = json.loads(gzip.decompress(trace.read_bytes()))
    devices = body.get("deviceProperties") or [{}]
    return body["corpus"], str(devices[0].get("name", ""))


def _at_its_sizes(region: MinedRegion, about: Mapping[str, str], device: str) -> Iterator[MinedProgram]:
    for shape in region.shapes:
        time_us = shape.time_us_per_step / max(shape.calls_per_step, 1e-9)
        if time_us < MIN_US or region.text is None:
            continue
        try:
            text = at_sizes(region.text, dict(shape.sizes))
        except RegionError:  # a size of 0, or a symbol where the language takes numbers only
            continue
        source = Source(
            about["name"], about["maker"], region.module, about["mode"], about["dtype"], device, round(time_us, 2),
            round(shape.calls_per_step, 2),
        )  # fmt: skip
        yield MinedProgram(text, region.kind, source, frozenset({source.model}))


def at_sizes(text: str, sizes: Mapping[str, int]) -> str:
    """The text with numbers in the place of its symbols, as the parser prints it."""
    region = parse(text)
    lines = [line for line in to_text(region).splitlines() if not re.match(r"\w+: sizes\[", line)]
    for name in (s.name for s in region.symbols):
        lines = [re.sub(rf"(?<![\w.]){name}(?!\w)", str(sizes[name]), line) for line in lines]
    return to_text(parse("\n".join(lines)))
