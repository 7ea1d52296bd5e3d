"""Which Python functions made a call: a second pass over the file, for the instants that are asked about.

Python frames are most of a trace recorded with stacks (84 % of the events of one), so the first pass keeps none. This
one keeps a frame only where it is open at such an instant.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.trace.model import Trace
from profiler.trace.read.columns import FRAMES
from profiler.trace.read.events import Event
from profiler.trace.read.source import Limits, OnRead, Source
from profiler.trace.read.stream import EventStream

_FRAME = re.compile(r"^(?P<file>.+\.py)\((?P<line>\d+)\): (?P<function>.+)$")
_INSIDE_TORCH = re.compile(r"(^|(site|dist)-packages/)torch/|^<|(^|/)(contextlib|functools)\.py$")
MAX_TEXT = 100
"""Characters of a file's path that are kept, from its end, and of a function's name, from its start."""

Instant = tuple[int, float]
"""Index into Trace.threads, microseconds since the trace's origin."""

Stack = tuple[str, ...]
"""Python functions that are open at an instant, the outermost first, each as `caller_text` writes it."""


def stacks(
    path: Path | str, trace: Trace, instants: Sequence[Instant], limits: Limits = Limits(), *,  # noqa: B008 (frozen)
    on_read: OnRead | None = None,
) -> list[Stack]:  # fmt: skip
    """For each instant the Python functions that are open, without those inside of torch; () where none is.

    on_read: as of read_trace, which raises what this raises.
    """
    answers: list[Stack] = [()] * len(instants)
    if not trace.has_stacks or not instants:
        return answers
    by_thread: dict[tuple[str, str], _Thread] = {}
    for i, (thread, at_us) in enumerate(instants):
        by_thread.setdefault(trace.threads[thread], _Thread([], [], [])).asked.append((at_us, i))
    for thread_instants in by_thread.values():
        thread_instants.asked.sort()
        thread_instants.at_us.extend(at_us for at_us, _ in thread_instants.asked)
    texts: dict[str, str] = {}
    with Source(Path(path), limits) as source:
        for batch in EventStream(source, limits):
            for event in batch:
                if not isinstance(event, Event) or event.cat.lower() not in FRAMES:
                    continue
                asked = by_thread.get((str(event.pid), str(event.tid)))
                if asked is None:
                    continue
                start = event.ts - trace.origin_us
                first, end = bisect_left(asked.at_us, start), bisect_right(asked.at_us, start + event.dur)
                if first == end:
                    continue
                name = event.name
                text = texts[name] if name in texts else texts.setdefault(name, caller_text(name))
                if text:
                    asked.open.append((start, -event.dur, first, end, text))
            if on_read is not None:
                on_read(source.share_read)
    for thread_instants in by_thread.values():
        thread_instants.answer(answers)
    return answers


@dataclass(slots=True)
class _Thread:
    """The instants of one thread by time, and the frames that are open at any: start, -length, first, end, text."""

    asked: list[tuple[float, int]]
    at_us: list[float]
    open: list[tuple[float, float, int, int, str]]

    def answer(self, answers: list[Stack]) -> None:
        """Write the stack of each instant. Frames of one thread nest: those that are open are a stack in time."""
        self.open.sort()
        place, nested = 0, []
        made: dict[Stack, Stack] = {}
        for at, (_, i) in enumerate(self.asked):
            while place < len(self.open) and self.open[place][2] <= at:
                nested.append(self.open[place])
                place += 1
            nested = [frame for frame in nested if frame[3] > at]
            stack = tuple(frame[4] for frame in nested)
            answers[i] = made.setdefault(stack, stack)


def innermost(stack: Stack) -> str:
    """The function that made the call, "models/bert.py:429 attention_mask" with its first line; "" for none."""
    return stack[-1] if stack else ""


def caller_text(name: str) -> str:
    """A frame's "models/bert.py:429 attention_mask"; "" for one inside of torch, or of no Python file."""
    match = _FRAME.match(name)
    if match is None or _INSIDE_TORCH.search(match["file"]):
        return ""
    return f"{match['file'][-MAX_TEXT:]}:{match['line']} {match['function'][:MAX_TEXT]}"
