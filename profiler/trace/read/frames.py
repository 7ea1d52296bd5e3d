"""Which Python function made a call: a second pass over the file, for a handful of instants only.

Python frames are most of a trace recorded with stacks (84 % of the events of one), so the first pass keeps none. This
one keeps a frame only where it is open at an instant that is asked for.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from profiler.trace.model import Trace
from profiler.trace.read.columns import FRAMES
from profiler.trace.read.events import Event
from profiler.trace.read.source import Limits, Source
from profiler.trace.read.stream import EventStream

_FRAME = re.compile(r"^(?P<file>.+\.py)\((?P<line>\d+)\): (?P<function>.+)$")
_INSIDE_TORCH = re.compile(r"(^|(site|dist)-packages/)torch/|^<|(^|/)(contextlib|functools)\.py$")
MAX_TEXT = 100
"""Characters of a file's path that are kept, from its end, and of a function's name, from its start."""

Instant = tuple[int, float]
"""Index into Trace.threads, microseconds since the trace's origin."""


def callers(
    path: Path | str, trace: Trace, instants: Sequence[Instant], limits: Limits = Limits()  # noqa: B008 (frozen)
) -> list[str]:  # fmt: skip
    """For each instant "models/bert.py:429 attention_mask": the innermost Python function open, and its first line.

    Frames inside of torch are passed over. "" where none is open. Raises what read_trace raises.
    """
    functions = [""] * len(instants)
    if not trace.has_stacks or not instants:
        return functions
    frame_start_us = [-math.inf] * len(instants)
    by_thread: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for i, (thread, at_us) in enumerate(instants):
        by_thread.setdefault(trace.threads[thread], []).append((at_us, i))
    for thread_instants in by_thread.values():
        thread_instants.sort()
    with Source(Path(path), limits) as source:
        for batch in EventStream(source, limits):
            for event in batch:
                if not isinstance(event, Event) or event.cat.lower() not in FRAMES:
                    continue
                thread_instants = by_thread.get((str(event.pid), str(event.tid)), [])
                start = event.ts - trace.origin_us
                for place in range(bisect_left(thread_instants, (start, -1)), len(thread_instants)):
                    at_us, i = thread_instants[place]
                    if at_us > start + event.dur:
                        break
                    text = _caller(event.name) if start >= frame_start_us[i] else ""
                    if text:
                        functions[i], frame_start_us[i] = text, start
    return functions


def _caller(name: str) -> str:
    match = _FRAME.match(name)
    if match is None or _INSIDE_TORCH.search(match["file"]):
        return ""
    return f"{match['file'][-MAX_TEXT:]}:{match['line']} {match['function'][:MAX_TEXT]}"
