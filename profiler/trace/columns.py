"""Columns under construction: what each batch of events adds, before sorting and linking."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count

import msgspec
import numpy as np
import numpy.typing as npt

from profiler.trace.events import MALFORMED, Args, Event
from profiler.trace.model import NONE, Detail, Floats, Ints, Longs

OPS = frozenset({"cpu_op", "operator"})
KERNELS = frozenset({"kernel"})
MEMORY = frozenset({"gpu_memcpy", "gpu_memset", "memcpy", "memset"})
ANNOTATIONS = frozenset({"user_annotation"})
FRAMES = frozenset({"python_function"})
NEITHER = frozenset({"gpu_user_annotation", "cuda_sync", "overhead", "trace", "cuda_profiler_range", ""})
"""On the GPU's side or the profiler's own. An event of any other category with a correlation may be a launch: launch
names differ by vendor and version (cudaLaunchKernelExC, hipExtModuleLaunchKernel, urEnqueueKernelLaunch, INVALID)."""

MODULE_PREFIX = "nn.Module: "
STEP_PREFIX = "ProfilerStep"

_NO_ARGS = Args()
_NO_CORRELATION = frozenset({0, NONE})
_SEPARATOR = b"\0"  # never part of JSON text
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[1-9][0-9]{0,18}|0")
_UNTYPED = msgspec.json.Decoder()


class Column:
    """Numbers of one kind, appended batch by batch; taking them empties it."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._parts: list[npt.NDArray[np.generic]] = []

    def extend(self, values: list[int] | list[float] | list[bool]) -> None:
        try:
            # Ids nearly always fit 32 bits: half the memory until they are taken.
            part = np.array(values, dtype=np.int32 if self._dtype == np.int64 else self._dtype)
        except OverflowError:
            # Ids above 2^63 exist ("Comms Id" 10159970886766084423); none that joins events does.
            limit = np.iinfo(self._dtype).max
            part = np.array([v if abs(v) <= limit else NONE for v in values], dtype=self._dtype)
        self._parts.append(part)

    def _take(self) -> npt.NDArray[np.generic]:
        whole = np.concatenate(self._parts) if self._parts else np.empty(0, self._dtype)
        self._parts = []
        return whole

    def ints(self) -> Ints:
        return self._take().astype(np.int32, copy=False)

    def longs(self, order: Longs | None = None) -> Longs:
        """As int64, in this order where one is given."""
        whole = self._take()
        return (whole if order is None else whole[order]).astype(np.int64, copy=False)

    def floats(self) -> Floats:
        return self._take().astype(np.float64, copy=False)

    def flags(self) -> npt.NDArray[np.bool_]:
        return self._take().astype(np.bool_, copy=False)


def _longs() -> Column:
    return Column(np.int64)


def _ints() -> Column:
    return Column(np.int32)


def _floats() -> Column:
    return Column(np.float64)


def _flags() -> Column:
    return Column(np.bool_)


@dataclass(slots=True)
class Spans:
    """Host events: ops, annotations, module frames."""

    name: Column = field(default_factory=_ints)
    ts: Column = field(default_factory=_floats)
    dur: Column = field(default_factory=_floats)
    thread: Column = field(default_factory=_ints)


@dataclass(slots=True)
class OpColumns(Spans):
    """cpu_op events."""

    detail: Column = field(default_factory=_ints)
    external: Column = field(default_factory=_longs)
    record: Column = field(default_factory=_longs)
    sequence: Column = field(default_factory=_longs)


@dataclass(slots=True)
class GpuColumns:
    """Kernels, or copies and sets."""

    name: Column = field(default_factory=_ints)
    ts: Column = field(default_factory=_floats)
    dur: Column = field(default_factory=_floats)
    stream: Column = field(default_factory=_longs)
    device: Column = field(default_factory=_ints)
    correlation: Column = field(default_factory=_longs)
    external: Column = field(default_factory=_longs)


@dataclass(slots=True)
class LaunchColumns:
    """Runtime and driver events that carry a correlation."""

    ts: Column = field(default_factory=_floats)
    thread: Column = field(default_factory=_ints)
    correlation: Column = field(default_factory=_longs)
    external: Column = field(default_factory=_longs)
    graph: Column = field(default_factory=_flags)


class Columns:
    """Everything that one pass over the events collects."""

    def __init__(self) -> None:
        self.ops = OpColumns()
        self.kernels = GpuColumns()
        self.memory = GpuColumns()
        self.launches = LaunchColumns()
        self.annotations = Spans()
        self.frames = Spans()
        self.events = 0
        self.timeless = 0  # spans without a usable time: dropped
        self.has_stacks = False
        self.is_trace = False  # any event with a phase
        self._names: defaultdict[str, int] = defaultdict(count().__next__)
        self._threads: defaultdict[tuple[int | str, int | str], int] = defaultdict(count().__next__)
        self._details: defaultdict[bytes, int] = defaultdict(count().__next__)
        self._details[_SEPARATOR * 3] = NONE

    def add(self, events: list[Event]) -> None:
        """Adds one batch. Only complete events (ph X) with a time become rows; all are counted."""
        self.events += len(events)
        groups: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                groups[event.cat].append(event)
        self.is_trace = self.is_trace or bool(groups) or any(event.ph for event in events)
        for spelling, group in groups.items():
            cat = spelling.lower()
            if cat in OPS:
                self._add_ops(self._timed(group))
            elif cat in KERNELS:
                self._add_gpu(self.kernels, self._timed(group))
            elif cat in MEMORY:
                self._add_gpu(self.memory, self._timed(group))
            elif cat in ANNOTATIONS:
                self._add_spans(self.annotations, self._timed(group))
            elif cat in FRAMES:
                self.has_stacks = True
                modules = [event for event in group if event.name.startswith(MODULE_PREFIX)]
                self._add_spans(self.frames, self._timed(modules))
            elif cat not in NEITHER:
                self._add_launches(self._timed(group))

    def _timed(self, group: list[Event]) -> list[Event]:
        """Those with a finite time; the others are counted as dropped."""
        times = np.array([(event.ts + event.dur) for event in group])
        if np.isfinite(times).all():
            return group
        timed = [event for event, time in zip(group, times.tolist(), strict=True) if math.isfinite(time)]
        self.timeless += len(group) - len(timed)
        return timed

    def _add_spans(self, to: Spans, group: list[Event]) -> None:
        names, threads = self._names, self._threads
        to.name.extend([names[e.name] for e in group])
        to.ts.extend([e.ts for e in group])
        to.dur.extend([e.dur for e in group])
        to.thread.extend([threads[e.pid, e.tid] for e in group])

    def _add_ops(self, group: list[Event]) -> None:
        self._add_spans(self.ops, group)
        args = [e.args or _NO_ARGS for e in group]
        details, join = self._details, _SEPARATOR.join
        self.ops.detail.extend([details[join((a.dims or a.dims_old, a.types, a.strides, a.concrete))] for a in args])
        self.ops.external.extend(_external(args))
        self.ops.record.extend([a.record for a in args])
        self.ops.sequence.extend([a.sequence for a in args])

    def _add_gpu(self, to: GpuColumns, group: list[Event]) -> None:
        names = self._names
        args = [e.args or _NO_ARGS for e in group]
        to.name.extend([names[e.name] for e in group])
        to.ts.extend([e.ts for e in group])
        to.dur.extend([e.dur for e in group])
        to.stream.extend([_stream(a.stream, e.tid) for a, e in zip(args, group, strict=True)])
        to.device.extend([max(a.device, 0) for a in args])
        to.correlation.extend([a.correlation or NONE for a in args])
        to.external.extend(_external(args))

    def _add_launches(self, group: list[Event]) -> None:
        kept = [(e, e.args) for e in group if e.args is not None and e.args.correlation not in _NO_CORRELATION]
        args = [a for _, a in kept]
        to, threads = self.launches, self._threads
        to.ts.extend([e.ts for e, _ in kept])
        to.thread.extend([threads[e.pid, e.tid] for e, _ in kept])
        to.correlation.extend([a.correlation for a in args])
        to.external.extend(_external(args))
        to.graph.extend(["GraphLaunch" in e.name for e, _ in kept])

    def names(self) -> tuple[str, ...]:
        return tuple(self._names)

    def threads(self) -> tuple[tuple[str, str], ...]:
        return tuple((str(pid), str(tid)) for pid, tid in self._threads)

    def details(self) -> tuple[tuple[Detail, ...], Ints]:
        """Distinct details, and the index of each one for the numbers in `ops.detail` (NONE for unreadable ones).

        The same shapes with other spacing are one Detail.
        """
        found: dict[Detail, int] = {}
        index = np.full(max(1, len(self._details) - 1), NONE, np.int32)
        for key, number in self._details.items():
            detail = parse_detail(key) if number != NONE else None
            if detail is not None:
                index[number] = found.setdefault(detail, len(found))
        return tuple(found), index


def _external(args: list[Args]) -> list[int]:
    """ "External id", under the older name where the newer one is absent."""
    return [a.external if a.external != NONE else a.external_old for a in args]


def _stream(number: int | str, tid: int | str) -> int:
    """The number of a stream written as 7, "7", "0x0" (ROCm), or only in the tid as "stream 7"; NONE for none."""
    text = tid if number == NONE else number
    if isinstance(text, int):
        return text
    found = _NUMBER.search(text)
    return int(found.group(), 0) if found else NONE


def parse_detail(key: bytes) -> Detail | None:
    """The Detail of dims, types, strides and concrete inputs as the trace spells them; None for none or unreadable."""
    parts = key.split(_SEPARATOR)
    try:
        dims, types, strides, concrete = (_UNTYPED.decode(part) if part else None for part in parts)
        detail = Detail(dims=_sizes(dims), types=_texts(types), strides=_sizes(strides), concrete=_texts(concrete))
    except (*MALFORMED, ValueError):
        return None
    return detail


def _texts(values: object) -> tuple[str, ...]:
    return tuple(map(str, values)) if isinstance(values, list) else ()


def _sizes(values: object) -> tuple[tuple[object, ...], ...]:
    """Sizes or strides of each argument; a TensorList is a tuple of tuples."""
    return tuple(_frozen(v) if isinstance(v, list) else () for v in values) if isinstance(values, list) else ()


def _frozen(values: list[object]) -> tuple[object, ...]:
    return tuple(_frozen(v) if isinstance(v, list) else v if isinstance(v, int) else str(v) for v in values)
