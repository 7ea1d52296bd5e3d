"""Columns under construction: what each batch of events adds, before sorting and linking."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from typing import cast

import msgspec
import numpy as np
from msgspec import Raw

from profiler.trace.model import NONE, Detail, Ints
from profiler.trace.read.column import Column, flags, floats, ints, longs
from profiler.trace.read.events import MALFORMED, AnyEvent, Args, Event, Phaseless
from profiler.trace.read.timestamp_repair import keep_timed

OPS = frozenset({"cpu_op", "operator"})
KERNELS = frozenset({"kernel"})
MEMORY = frozenset({"gpu_memcpy", "gpu_memset", "memcpy", "memset"})
ANNOTATIONS = frozenset({"user_annotation"})
FRAMES = frozenset({"python_function"})
MEASURED = KERNELS | MEMORY | ANNOTATIONS
"""Events that are nothing without their duration."""
NEITHER = frozenset(
    "gpu_user_annotation cuda_sync xpu_sync cuda_event overhead trace cuda_profiler_range gpu_pm_counter "
    "external_correlation collective_comm mtia_ccp_events mtia_insight hpu_op".split()
) | {""}
"""On the GPU's side or the profiler's own. An event of any other category with a correlation may be a launch: launch
names differ by vendor and version (cudaLaunchKernelExC, hipExtModuleLaunchKernel, urEnqueueKernelLaunch, INVALID)."""

GRAPH_LAUNCHES = ("GraphLaunch", "CommandBuffer")
"""In the name of what launches a whole graph: cudaGraphLaunch, hipGraphLaunch, urEnqueueCommandBufferExp."""

HOST_WAITS = re.compile(
    r"Synchronize|^hipMemcpyWithStream$|^(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol|ToArray|FromArray)?$"
    r"|^(?:cu|hip)Memcpy(?:HtoD|DtoH|DtoD|2D|3D)?(?:_v2)?$"
)
"""Runtime and driver calls in which the host waits for the GPU: synchronisations, and copies that are not asynchronous
(PyTorch on ROCm copies by hipMemcpyWithStream, which synchronises the stream)."""

MODULE_PREFIX = "nn.Module: "
TRITON = "triton"
"""The kernel_backend of what torch.compile launches through its own runner of Triton kernels."""

SEPARATOR = b"\0"
"""Between dims, types, strides and concrete inputs: never part of JSON text."""

_UNTYPED = msgspec.json.Decoder()
_NO_ARGS = Args()
_NO_CORRELATION = frozenset({0, NONE})
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[1-9][0-9]{0,18}|0")

Thread = tuple[int | str, int | str]
"""pid and tid as the trace has them."""
Values = Callable[[], Iterable[float]]

# attrgetter under map runs in C: with np.fromiter half the time of a list comprehension a field.
_name, _ts, _dur, _tid = (attrgetter(key) for key in ("name", "ts", "dur", "tid"))
_thread: Callable[[Event], Thread] = attrgetter("pid", "tid")
_record, _sequence, _correlation, _stream_arg, _backend, _file, _call_stack = (
    attrgetter(key) for key in ("record", "sequence", "correlation", "stream", "backend", "file", "call_stack")
)


@dataclass(slots=True)
class Spans:
    """Host events: ops, annotations, module frames."""

    name: Column = field(default_factory=ints)
    ts: Column = field(default_factory=floats)
    dur: Column = field(default_factory=floats)
    thread: Column = field(default_factory=ints)


@dataclass(slots=True)
class OpColumns(Spans):
    """cpu_op events."""

    detail: Column = field(default_factory=ints)
    external: Column = field(default_factory=longs)
    record: Column = field(default_factory=longs)
    sequence: Column = field(default_factory=longs)


@dataclass(slots=True)
class GpuColumns:
    """Kernels, or copies and sets."""

    name: Column = field(default_factory=ints)
    ts: Column = field(default_factory=floats)
    dur: Column = field(default_factory=floats)
    stream: Column = field(default_factory=longs)
    device: Column = field(default_factory=ints)
    correlation: Column = field(default_factory=longs)
    external: Column = field(default_factory=longs)


@dataclass(slots=True)
class LaunchColumns:
    """Runtime and driver events that carry a correlation."""

    ts: Column = field(default_factory=floats)
    dur: Column = field(default_factory=floats)
    thread: Column = field(default_factory=ints)
    correlation: Column = field(default_factory=longs)
    external: Column = field(default_factory=longs)
    graph: Column = field(default_factory=flags)


class Tables:
    """Texts that repeat, each with the number that stands for it in the columns. Several Columns may share one."""

    def __init__(self) -> None:
        self.names: defaultdict[str, int] = defaultdict(count().__next__)
        self.threads: defaultdict[Thread, int] = defaultdict(count().__next__)
        self.details: defaultdict[bytes, int] = defaultdict(count().__next__)
        self.details[SEPARATOR * 3] = NONE
        self.triton_files: dict[str, str] = {}  # see Trace


class Columns:
    """Everything that one pass over the events collects."""

    def __init__(self, tables: Tables | None = None) -> None:
        self.ops = OpColumns()
        self.kernels = GpuColumns()
        self.memory = GpuColumns()
        self.launches = LaunchColumns()
        self.annotations = Spans()
        self.frames = Spans()
        self.syncs = Spans()
        self.events = 0
        self.timeless = 0  # spans without a usable time: dropped
        self.has_stacks = False
        self.has_call_stacks = False
        self.is_trace = False  # any event with a phase
        self.tables = tables or Tables()

    def add(self, events: list[AnyEvent]) -> None:
        """Adds one batch. Only complete events (ph X) with a time become rows; all are counted."""
        self.events += len(events)
        groups: defaultdict[str, list[AnyEvent]] = defaultdict(list)
        for event in events:
            groups[event.cat].append(event)
        self.is_trace = self.is_trace or not all(isinstance(event, Phaseless) for event in events)
        for spelling, group in groups.items():
            cat = spelling.lower()
            if cat in NEITHER:
                continue
            complete = cast("list[Event]", group)  # only complete events have a category
            spans = keep_timed(complete, measured=cat in MEASURED)
            self.timeless += len(complete) - len(spans)
            if cat in OPS:
                self._add_ops(spans)
            elif cat in KERNELS:
                self._add_gpu(self.kernels, spans)
            elif cat in MEMORY:
                self._add_gpu(self.memory, spans)
            elif cat in ANNOTATIONS:
                self._add_spans(self.annotations, spans)
            elif cat in FRAMES:
                self.has_stacks = True
                self._add_spans(self.frames, [event for event in spans if event.name.startswith(MODULE_PREFIX)])
            else:
                self._add_launches(spans)

    def _add_spans(self, to: Spans, group: list[Event]) -> None:
        size = len(group)
        to.name.extend(self._numbers(group), size)
        to.ts.extend(lambda: map(_ts, group), size)
        to.dur.extend(lambda: map(_dur, group), size)
        to.thread.extend(self._threads(group), size)

    def _numbers(self, group: list[Event]) -> Values:
        return lambda: map(self.tables.names.__getitem__, map(_name, group))

    def _threads(self, group: list[Event]) -> Values:
        return lambda: map(self.tables.threads.__getitem__, map(_thread, group))

    def _add_ops(self, group: list[Event]) -> None:
        self._add_spans(self.ops, group)
        args = [e.args or _NO_ARGS for e in group]
        size = len(args)
        details, join = self.tables.details, SEPARATOR.join
        keys = [join((a.dims or a.dims_old, a.types, a.strides, a.concrete)) for a in args]
        self.ops.detail.extend(lambda: map(details.__getitem__, keys), size)
        self.ops.external.extend(_external(args), size)
        self.ops.record.extend(lambda: map(_record, args), size)
        self.ops.sequence.extend(lambda: map(_sequence, args), size)
        self.has_call_stacks = self.has_call_stacks or any(map(_call_stack, args))
        if any(map(_backend, args)) or any(map(_file, args)):
            files = self.tables.triton_files
            for event, arg in zip(group, args, strict=True):
                if event.name not in files and (_text(arg.file) or _text(arg.backend) == TRITON):
                    files[event.name] = _text(arg.file)

    def _add_gpu(self, to: GpuColumns, group: list[Event]) -> None:
        args = [e.args or _NO_ARGS for e in group]
        size = len(args)
        to.name.extend(self._numbers(group), size)
        to.ts.extend(lambda: map(_ts, group), size)
        to.dur.extend(lambda: map(_dur, group), size)
        to.stream.extend(lambda: map(_stream, map(_stream_arg, args), map(_tid, group)), size)
        to.device.extend(lambda: [max(a.device, 0) for a in args], size)
        to.correlation.extend(lambda: [a.correlation or NONE for a in args], size)
        to.external.extend(_external(args), size)

    def _add_launches(self, group: list[Event]) -> None:
        launches = [e for e in group if e.args is not None and e.args.correlation not in _NO_CORRELATION]
        args = [cast("Args", e.args) for e in launches]
        size = len(args)
        to = self.launches
        to.ts.extend(lambda: map(_ts, launches), size)
        to.dur.extend(lambda: map(_dur, launches), size)
        to.thread.extend(self._threads(launches), size)
        to.correlation.extend(lambda: map(_correlation, args), size)
        to.external.extend(_external(args), size)
        to.graph.extend(lambda: [any(map(e.name.__contains__, GRAPH_LAUNCHES)) for e in launches], size)
        self._add_spans(self.syncs, [e for e in group if HOST_WAITS.search(e.name)])

    def names(self) -> tuple[str, ...]:
        return tuple(self.tables.names)

    def threads(self) -> tuple[tuple[str, str], ...]:
        return tuple((str(pid), str(tid)) for pid, tid in self.tables.threads)

    def details(self) -> tuple[tuple[Detail, ...], Ints]:
        """Distinct details, and the index of each one for the numbers in `ops.detail` (NONE for unreadable ones).

        The same shapes with other spacing are one Detail.
        """
        distinct: dict[Detail, int] = {}
        index = np.full(max(1, len(self.tables.details) - 1), NONE, np.int32)
        for key, number in self.tables.details.items():
            detail = _parse_detail(key) if number != NONE else None
            if detail is not None:
                index[number] = distinct.setdefault(detail, len(distinct))
        return tuple(distinct), index


def _parse_detail(key: bytes) -> Detail | None:
    """The Detail of dims, types, strides and concrete inputs as the trace spells them; None for none or unreadable."""
    parts = key.split(SEPARATOR)
    try:
        dims, types, strides, concrete = (_UNTYPED.decode(part) if part else None for part in parts)
        return Detail(dims=_sizes(dims), types=_as_texts(types), strides=_sizes(strides), concrete=_as_texts(concrete))
    except (*MALFORMED, ValueError):
        return None


def _as_texts(values: object) -> tuple[str, ...]:
    return tuple(map(str, values)) if isinstance(values, list) else ()


def _sizes(values: object) -> tuple[tuple[object, ...], ...]:
    """Sizes or strides of each argument; a TensorList is a tuple of tuples."""
    return tuple(_freeze(v) if isinstance(v, list) else () for v in values) if isinstance(values, list) else ()


def _freeze(values: list[object]) -> tuple[object, ...]:
    return tuple(_freeze(v) if isinstance(v, list) else v if isinstance(v, int) else str(v) for v in values)


def _external(args: list[Args]) -> Values:
    """ "External id", under the older name where the newer one is absent."""
    return lambda: [a.external if a.external != NONE else a.external_old for a in args]


def _text(raw: Raw) -> str:
    """The string that a raw value is, else ""."""
    try:
        value = msgspec.json.decode(raw) if raw else ""
    except MALFORMED:
        return ""
    return value if isinstance(value, str) else ""


def _stream(number: int | str, tid: int | str) -> int:
    """The number of a stream written as 7, "7", "0x0" (ROCm), or only in the tid as "stream 7"; NONE for none."""
    text = tid if number == NONE else number
    if isinstance(text, int):
        return text
    match = _NUMBER.search(text)
    return int(match.group(), 0) if match else NONE
