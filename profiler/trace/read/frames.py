"""Which Python functions made a call: a second pass over the file, for the instants that are asked about.

Python frames are most of a trace recorded with stacks (84 % of the events of one), so the first pass keeps none. This
one keeps a frame only where it is open at such an instant.

A frame is named by its file and the first line of its function. Some writers give an operation its `Call stack`
instead, whose lines are those of the calls.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import msgspec

from profiler.trace.model import Trace
from profiler.trace.read.columns import FRAMES, OPS
from profiler.trace.read.events import AnyEvent, Event
from profiler.trace.read.source import Limits, OnRead, Source
from profiler.trace.read.stream import EventStream

_FRAME = re.compile(r"^(?P<file>.+\.py)\((?P<line>\d+)\): (?P<function>.+)$")
_INSIDE_TORCH = re.compile(r"(^|(site|dist)-packages/)torch/|^<|(^|/)(contextlib|functools)\.py$")
_PACKAGES = re.compile(r"/(?:site|dist)-packages/")
MAX_TEXT = 100
"""Characters of a file's path that are kept, from its end, and of a function's name, from its start."""
MAX_NAME, MAX_DEPTH, MAX_NESTED = 400, 200, 1_000
"""Characters of a frame's name that are kept; functions of one call stack, and calls around one, the innermost."""
MAX_CALL_FRAMES = 200_000
"""Functions that the call stacks of one file have in all; of a stack beyond them the innermost is kept alone."""

Instant = tuple[int, float]
"""Index into Trace.threads, microseconds since the trace's origin."""

Stack = tuple[str, ...]
"""Python functions that are open at an instant, the outermost first, each as `caller_text` writes it."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One call that is open at an instant, with those around it. name: as the trace has it; text: `caller_text` of it;
    start_us: NaN for one of a call stack, which has no time of its own."""

    name: str
    text: str
    start_us: float
    parent: Frame | None

    def outwards(self) -> Iterator[Frame]:
        """This call and those around it, the innermost first."""
        frame: Frame | None = self
        for _ in range(MAX_NESTED):
            if frame is None:
                return
            yield frame
            frame = frame.parent

    @property
    def stack(self) -> Stack:
        """The functions of this call and of those around it."""
        return tuple(frame.text for frame in self.outwards() if frame.text)[::-1]

    @property
    def innermost(self) -> str:
        """The function that made the call, "models/bert.py:429 attention_mask" with its first line; "" for none."""
        return next((frame.text for frame in self.outwards() if frame.text), "")


NO_FRAME = Frame("", "", float("nan"), None)
"""Of an instant at which none is open."""


def open_frames(
    path: Path | str, trace: Trace, instants: Sequence[Instant], limits: Limits = Limits(), *,  # noqa: B008 (frozen)
    on_read: OnRead | None = None,
) -> list[Frame]:  # fmt: skip
    """For each instant the innermost call that is open; NO_FRAME where none is.

    on_read: as of read_trace, which raises what this raises.
    """
    answers = [NO_FRAME] * len(instants)
    if not (trace.has_stacks or trace.has_call_stacks) or not instants:
        return answers
    by_thread: dict[tuple[str, str], _Thread] = {}
    for i, (thread, at_us) in enumerate(instants):
        by_thread.setdefault(trace.threads[thread], _Thread([], [], [])).asked.append((at_us, i))
    for thread_instants in by_thread.values():
        thread_instants.asked.sort()
        thread_instants.at_us.extend(at_us for at_us, _ in thread_instants.asked)
    names: dict[str, str] = {}
    with Source(Path(path), limits) as source:
        for batch in EventStream(source, limits):
            for event, name in _named(batch, calls=trace.has_call_stacks):
                asked = by_thread.get((str(event.pid), str(event.tid)))
                if asked is None:
                    continue
                start = event.ts - trace.origin_us
                first, end = bisect_left(asked.at_us, start), bisect_right(asked.at_us, start + event.dur)
                if first < end:
                    asked.open.append((start, -event.dur, first, end, names.setdefault(name, name)))
            if on_read is not None:
                on_read(source.share_read)
    call_stacks = _CallStacks() if trace.has_call_stacks else None
    for thread_instants in by_thread.values():
        thread_instants.answer(answers, call_stacks)
    return answers


def _named(batch: Iterable[AnyEvent], *, calls: bool) -> Iterable[tuple[Event, str]]:
    """Frames with their names; else, where operations have call stacks, those with theirs."""
    for event in batch:
        if not isinstance(event, Event):
            continue
        category = event.cat.lower()
        if not calls:
            if category in FRAMES:
                yield event, event.name[:MAX_NAME]
        elif category in OPS and event.args is not None and event.args.call_stack:
            if text := _decode(event.args.call_stack):
                yield event, text


def _decode(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


@dataclass(slots=True)
class _Thread:
    """The instants of one thread by time, and the frames that are open at any: start, -length, first, end, name."""

    asked: list[tuple[float, int]]
    at_us: list[float]
    open: list[tuple[float, float, int, int, str]]

    def answer(self, answers: list[Frame], call_stacks: _CallStacks | None) -> None:
        """Write the innermost frame of each instant. Those of one thread nest: what is open is a stack in time."""
        self.open.sort(key=itemgetter(0, 1))
        place = 0
        nested: list[tuple[int, Frame]] = []
        texts: dict[str, str] = {}
        for at, (_, i) in enumerate(self.asked):
            while place < len(self.open) and self.open[place][2] <= at:
                start, _, _, end, name = self.open[place]
                place += 1
                if end <= at:
                    continue
                while nested and nested[-1][0] <= at:
                    nested.pop()
                if call_stacks is not None:
                    frame = call_stacks.innermost(name)
                else:
                    text = texts[name] if name in texts else texts.setdefault(name, caller_text(name))
                    frame = Frame(name, text, start, nested[-1][1] if nested else None)
                nested.append((end, frame))
            while nested and nested[-1][0] <= at:
                nested.pop()
            if nested:
                answers[i] = nested[-1][1]


@dataclass(slots=True)
class _CallStacks:
    """Frames of call stacks: one for those that begin with the same calls. Calls inside of torch are left out."""

    frames: dict[tuple[Frame | None, str], Frame] = field(default_factory=dict)
    innermost_of: dict[str, Frame] = field(default_factory=dict)

    def innermost(self, text: str) -> Frame:
        """Of "models/bert.py(430): forward;train.py(12): <module>", the innermost first."""
        if (known := self.innermost_of.get(text)) is not None:
            return known
        names = [name.strip()[-MAX_NAME:] for name in text.split(";", MAX_DEPTH)[:MAX_DEPTH]]
        frame: Frame | None = None
        if len(self.frames) + len(names) <= MAX_CALL_FRAMES:
            for name in reversed(names):
                frame = self._within(frame, name)
        else:
            frame = next((made for name in names if (made := self._within(None, name)) is not None), None)
        return self.innermost_of.setdefault(text, frame or NO_FRAME)

    def _within(self, parent: Frame | None, name: str) -> Frame | None:
        if (known := self.frames.get((parent, name))) is not None:
            return known
        text = caller_text(name)
        if not text:
            return parent
        return self.frames.setdefault((parent, name), Frame(name, text, float("nan"), parent))


def caller_text(name: str) -> str:
    """A frame's "models/bert.py:429 attention_mask"; "" for one inside of torch, or of no Python file."""
    match = _FRAME.match(name)
    if match is None or _INSIDE_TORCH.search(match["file"]):
        return ""
    file = _PACKAGES.split(match["file"])[-1]
    return f"{file[-MAX_TEXT:]}:{match['line']} {match['function'][:MAX_TEXT]}"
