"""Points: programs with the times that a GPU took for them, as lines of JSON that can be appended to."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NotRequired, TypedDict, cast

UNFINISHED = "not finished"
"""The reason of a point whose process ended before it was measured."""


class KernelTime(TypedDict):
    """One generated kernel of a compiled program.

    times_us: median between two device events of each of its launches in one call, in order. bytes_moved: Inductor's
    count.
    """

    name: str
    source: str
    bytes_moved: int | None
    stage: str
    times_us: list[float]


class Times(TypedDict, total=False):
    """Of one call. cold_us: on the device, inputs not in L2; warm_us: inputs in L2 as far as they fit; host_us: what
    the host takes to queue it."""

    cold_us: float
    warm_us: float
    host_us: float


class CompiledTimes(Times, total=False):
    """Under torch.compile. kernels: those that Inductor wrote; externs: "NAME xCALLS STAGE" of its library calls;
    compile_s: until the first call had ended, other processes' turns not counted; eager: the same program without it;
    default: of max-autotune, the same program in the default mode."""

    kernels: list[KernelTime]
    externs: list[str]
    compile_s: float
    eager: Times
    default: CompiledTimes


class GeneratedTime(Times, total=False):
    """One launch of a generated kernel by itself. traits: its `GeneratedTraits` as JSON."""

    name: str
    traits: dict[str, Any]


class GeneratedTimes(Times, total=False):
    """Of `triton:generated`. generated: its kernels as they are launched. kept: operations that stay calls."""

    generated: list[GeneratedTime]
    kept: list[str]


class CandidateTimes(Times, total=False):
    """Of eager, and by candidate of this project's kernels that take the whole region."""

    candidates: dict[str, Times]


class Point(CompiledTimes, GeneratedTimes, CandidateTimes, total=True):
    """One program. mode: its `programs.Kind`. forward: of a program with gradients, the same without them. failed: why
    there is no time. events_us: what two device events around nothing read on that host; points from before 2026-11-26
    do not have it."""

    family: str
    number: int
    mode: str
    text: str
    events_us: NotRequired[float]
    forward: NotRequired[Times]
    failed: NotRequired[str]


class Conditions(TypedDict):
    """Where and when points were measured.

    sm_clock_mhz, memory_clock_mhz: medians while it was measured. others: the most processes of others that were on
    the GPU at once. Each is left out where the host does not tell it.
    """

    device: str
    torch: str
    triton: str
    date: str
    minutes: float
    sm_clock_mhz: NotRequired[float]
    memory_clock_mhz: NotRequired[float]
    others: NotRequired[int]


def read(path: Path) -> Iterator[Point]:
    """Whole lines of a file that is being written; what a killed process left half written is not there."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield cast(Point, json.loads(line))
        except ValueError:
            continue


def append(path: Path, point: Point) -> None:
    """One more line; behind what a killed process left half written it begins a new one."""
    with path.open("ab+") as file:
        if file.tell() and not _ends_a_line(file):
            file.write(b"\n")
        file.write(json.dumps(point).encode() + b"\n")


def _ends_a_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def read_folder(folder: Path) -> Iterator[Point]:
    """What all workers of a folder have written."""
    for path in sorted(folder.glob("*.jsonl")):
        yield from read(path)


def finished(points: Iterable[Point]) -> list[Point]:
    """Those with times, by family and number, each once."""
    by_name = {(p["family"], p["number"]): p for p in points if "failed" not in p}
    return [by_name[key] for key in sorted(by_name)]


def write_recording(path: Path, conditions: Conditions, points: Iterable[Point]) -> None:
    """A line of conditions, then a line for each point; the same bytes for the same points."""
    lines = [json.dumps(conditions), *(json.dumps(p) for p in finished(points))]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0))


def read_recording(path: Path) -> tuple[Conditions, list[Point]]:
    """What write_recording wrote. ValueError where it is damaged, with what is wrong."""
    try:
        with gzip.open(path, "rt") as file:
            first, *rest = file.read().splitlines()
        return cast(Conditions, json.loads(first)), [cast(Point, json.loads(line)) for line in rest]
    except (OSError, EOFError, ValueError) as fault:
        raise ValueError(f"{path.name} holds no whole recording of points: {fault}") from None
