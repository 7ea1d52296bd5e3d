"""What the host of the recorded models took for a call, by their traces (`app.program.layout` assumes four such times).

    python -m benchmarks.program.host_times DIR FILE     DIR: what `benchmarks.program.recorded --out` wrote

Of the last recorded step of each model, by thread: what is between two outermost calls, and how long a call takes that
makes no other and launches one kernel, a library's product, convolution or attention apart from others. Times are as
recorded; slowdown says how many times longer such a step took than one without the profiler.
"""

from __future__ import annotations

import gzip
import sys
import zipfile
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import msgspec

from benchmarks.program.recorded_results import PACKED, RESULTS, Results

LIBRARY = ("::mm", "::addmm", "::bmm", "convolution", "attention")
"""In names of calls that look for a library's kernel."""
STEP, STEPS, OPERATION, LAUNCHES = "ProfilerStep#", "user_annotation", "cpu_op", ("cuda_runtime", "cuda_driver")
Event = dict[str, Any]


class Spent(msgspec.Struct, frozen=True):
    """µs of several."""

    number: int
    median_us: float
    mean_us: float


class Thread(msgspec.Struct, frozen=True):
    """engine: autograd's, else the program's. Spent is None where there was none."""

    engine: bool
    between: Spent | None
    launch: Spent | None
    library_launch: Spent | None


class HostTimes(msgspec.Struct, frozen=True):
    """One model."""

    name: str
    slowdown: float
    threads: tuple[Thread, ...]


class Record(msgspec.Struct, frozen=True):
    """What tests/records has of it."""

    device: str
    rows: tuple[HostTimes, ...]


def main(argv: Sequence[str]) -> int:
    """Write the record."""
    if len(argv) != 2:
        print("two are wanted: DIR FILE", file=sys.stderr)
        return 1
    folder, target = map(Path, argv)
    results = msgspec.json.decode((folder / RESULTS).read_bytes(), type=Results)
    traces: dict[str, bytes] = {}
    for archive in sorted(folder.glob(PACKED.replace(".", "*."))):
        with zipfile.ZipFile(archive) as packed:
            traces |= {name: packed.read(name) for name in packed.namelist()}
    rows = []
    for run in results.runs:
        events = msgspec.json.decode(gzip.decompress(traces[run.trace]))["traceEvents"]
        slowdown = run.overhead.plain_us / run.overhead.its_bare_us
        rows.append(HostTimes(run.name, round(slowdown, 3), threads_of([e for e in events if e.get("ph") == "X"])))
    record = Record(results.device, tuple(rows))
    target.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    return 0


def threads_of(events: Sequence[Event]) -> tuple[Thread, ...]:
    """Of the last step among complete events."""
    step = max(
        (e for e in events if e["name"].startswith(STEP) and e.get("cat") == STEPS), key=lambda e: float(e["ts"])
    )
    within = [e for e in events if step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
    by_thread: dict[object, list[Event]] = {}
    for event in within:
        if event.get("cat") == OPERATION:
            by_thread.setdefault(event["tid"], []).append(event)
    return tuple(
        _thread(calls, [e for e in within if e["tid"] == thread and _is_launch(e)], thread != step["tid"])
        for thread, calls in by_thread.items()
    )


def _is_launch(event: Event) -> bool:
    return event.get("cat") in LAUNCHES and "aunch" in event["name"]


def _thread(calls: list[Event], launches: Sequence[Event], engine: bool) -> Thread:
    calls.sort(key=lambda e: (e["ts"], -e["dur"]))
    starts = sorted(float(e["ts"]) for e in launches)
    between: list[float] = []
    own: list[float] = []
    library: list[float] = []
    last_end = None
    for number, call in enumerate(calls):
        end = call["ts"] + call["dur"]
        if last_end is None or call["ts"] >= last_end:
            if last_end is not None:
                between.append(call["ts"] - last_end)
            last_end = end
        makes_none = number + 1 == len(calls) or calls[number + 1]["ts"] >= end
        if makes_none and bisect_left(starts, end) - bisect_left(starts, call["ts"]) == 1:
            (library if any(part in call["name"] for part in LIBRARY) else own).append(call["dur"])
    return Thread(engine, _spent(between), _spent(own), _spent(library))


def _spent(times_us: Sequence[float]) -> Spent | None:
    return Spent(len(times_us), round(median(times_us), 2), round(mean(times_us), 2)) if times_us else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
