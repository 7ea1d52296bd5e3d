"""Columns as collected -> Trace: one clock, sorted, linked, with steps and notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from profiler.hardware import Properties, device_by_properties, find_device
from profiler.trace.analyze.kernel_links import Launches, external_disagreement, innermost, launch_of, nesting
from profiler.trace.analyze.steps import STEP_PREFIX, find_steps
from profiler.trace.errors import Damage
from profiler.trace.mmap_columns import empty, look_up, pieces, release, take
from profiler.trace.model import (
    NONE,
    Annotations,
    Floats,
    Ints,
    Kernels,
    Longs,
    Memory,
    Ops,
    Predicted,
    Trace,
)
from profiler.trace.notes import trace_notes
from profiler.trace.read.columns import MODULE_PREFIX, Columns, GpuColumns, Spans
from profiler.trace.read.events import DeviceProperties, Header
from profiler.trace.read.timestamp_repair import FARTHEST_US, LONGEST_US, drop_far

_EXACT_US = 2.0**43
"""Below this (102 days) a float64 of microseconds tells nanoseconds apart. Older files count from the epoch."""

_LONGEST_PATH = 1000
"""Characters of a path that are kept, counted from its end: hostile nesting would make them quadratic otherwise."""


def assemble(columns: Columns, header: Header, dropped: int, truncated: bool, damage: Damage = Damage.NONE) -> Trace:
    """Takes the columns (they are empty afterwards). dropped: events lost before they became columns."""
    names, threads = columns.names(), columns.threads()
    details, detail_index = columns.details()
    clock = _Clock(columns)
    ops, annotations = _host_spans(columns, clock, names, detail_index)
    ops, modules = _with_modules(columns.frames, clock, names, ops)
    device, device_told_by = _device(header)
    launches = Launches(
        start_us=clock.launches,
        end_us=_ends(clock.launches, columns.launches.dur.floats()),
        thread=columns.launches.thread.ints(),
        correlation=columns.launches.correlation.longs(),
        external_id=columns.launches.external.longs(),
        graph=columns.launches.graph.flags(),
    )
    kernels, external_id = _kernels(columns.kernels, clock.kernels, launches, ops)
    memory, memory_launch_us = _memory(columns.memory, clock.memory, launches, ops)
    steps, profiler_steps, step_source = find_steps(names, ops, kernels, memory, memory_launch_us, annotations)
    release(*(getattr(ops, column) for column in Ops.__slots__))
    trace = Trace(
        names=names,
        threads=threads,
        modules=modules,
        details=details,
        ops=ops,
        kernels=kernels,
        memory=memory,
        annotations=annotations,
        steps=steps,
        profiler_steps=profiler_steps,
        step_source=step_source,
        events=columns.events + dropped,
        dropped=dropped + columns.timeless,
        device=device,
        device_told_by=device_told_by,
        rank=_rank(header),
        origin_us=clock.origin_us,
        has_shapes=any(detail.dims for detail in details),
        has_stacks=columns.has_stacks,
        has_call_stacks=columns.has_call_stacks,
        with_modules=header.with_modules in (1, "1", True, "true"),
        truncated=truncated,
        notes=(),
        syncs=_syncs(columns.syncs, clock),
        triton_files=columns.tables.triton_files,
        capability=_capability(header),
        damage=damage,
        predicted=_predicted(header),
    )
    disagreement = external_disagreement(kernels.op, external_id, ops.external_id)
    return replace(trace, notes=trace_notes(trace, disagreement, len(launches.start_us)))


class _Clock:
    """Start times of all columns, in microseconds from the first event. Rows whose time cannot be are dropped."""

    def __init__(self, columns: Columns) -> None:
        parts = (
            columns.ops, columns.annotations, columns.frames, columns.launches, columns.kernels, columns.memory,
            columns.syncs,
        )  # fmt: skip
        raw = [part.ts.floats() for part in parts]
        times = [time for ts in raw for time in _extremes(ts)]
        first, last = min(times, default=0.0), max(times, default=0.0)
        if last - first > LONGEST_US or last > FARTHEST_US or first < -FARTHEST_US:
            columns.timeless += drop_far(
                [[getattr(part, f.name) for f in fields(part) if f.name != "ts"] for part in parts], raw
            )
            times = [time for ts in raw for time in _extremes(ts)]
        self.origin_us = min(times, default=0.0)
        exact = max(map(abs, times), default=0.0) < _EXACT_US
        raw.reverse()
        relative = [self._relative(raw.pop(), exact) for _ in parts]
        self.ops, self.annotations, self.frames, self.launches, self.kernels, self.memory, self.syncs = relative

    def _relative(self, ts: Floats, exact: bool) -> Floats:
        relative = cast("Floats", empty(len(ts), np.float64))
        for at in pieces(len(ts), ts, relative):
            # Whole nanoseconds: subtracting the floats would leave up to 1 ns of rounding.
            relative[at] = (
                (np.rint(ts[at] * 1e3) - np.rint(self.origin_us * 1e3)) / 1e3 if exact else ts[at] - self.origin_us
            )
        return relative


def _extremes(ts: Floats) -> Iterator[float]:
    """Times among which the least and the greatest are."""
    for at in pieces(len(ts), ts):
        yield float(ts[at].min())
        yield float(ts[at].max())


def _ends(start: Floats, duration: Floats) -> Floats:
    ends = cast("Floats", empty(len(start), np.float64))
    for at in pieces(len(start), start, duration, ends):
        ends[at] = np.round(np.maximum(duration[at], 0.0) + start[at], 3)
    return ends


def _host_spans(columns: Columns, clock: _Clock, names: tuple[str, ...], detail_index: Ints) -> tuple[Ops, Annotations]:
    """Ops and annotations; ProfilerStep is an annotation also where it is written as an op (before torch 1.11)."""
    c = columns.ops
    name, start, thread = c.name.ints(), clock.ops, c.thread.ints()
    end = _ends(start, c.dur.floats())
    a = columns.annotations
    a_name, a_start, a_thread = a.name.ints(), clock.annotations, a.thread.ints()
    a_end = _ends(a_start, a.dur.floats())
    steps = np.array([text.startswith(STEP_PREFIX) for text in names], np.bool_)
    if any(steps[name[at]].any() for at in pieces(len(name), name)):
        is_step = steps[name]
        a_name, a_start = np.append(a_name, name[is_step]), np.append(a_start, start[is_step])
        a_end, a_thread = np.append(a_end, end[is_step]), np.append(a_thread, thread[is_step])
        op_rows = np.flatnonzero(~is_step)
        order, parent = nesting(thread[op_rows], start[op_rows], end[op_rows])
        order = op_rows[order]
    else:
        order, parent = nesting(thread, start, end)
    # Each unsorted column is freed as soon as it is sorted.
    clock.ops = np.empty(0)
    start = cast("Floats", take(start, order))
    end = cast("Floats", take(end, order))
    name = cast("Ints", take(name, order))
    thread = cast("Ints", take(thread, order))
    ops = Ops(
        name=name,
        start_us=start,
        end_us=end,
        thread=thread,
        parent=parent,
        detail=_details(cast("Ints", take(c.detail.ints(), order)), detail_index),
        external_id=c.external.longs(order),
        record_id=c.record.longs(order),
        sequence=c.sequence.longs(order),
        module=np.broadcast_to(np.int32(NONE), len(order)),
    )
    in_time = np.argsort(a_start, kind="stable")
    annotations = Annotations(
        name=a_name[in_time], start_us=a_start[in_time], end_us=a_end[in_time], thread=a_thread[in_time]
    )
    return ops, annotations


def _details(number: Ints, index: Ints) -> Ints:
    """The index of each op's Detail, NONE where it has none."""
    detail = cast("Ints", empty(len(number), np.int32))
    for at in pieces(len(number), number, detail):
        detail[at] = np.where(number[at] != NONE, index[number[at]], NONE)
    return detail


def _syncs(c: Spans, clock: _Clock) -> Annotations:
    """Waits of the host for the GPU, in order of start."""
    start = clock.syncs
    order = np.argsort(start, kind="stable")
    end = _ends(start, c.dur.floats())
    return Annotations(
        name=c.name.ints()[order], start_us=start[order], end_us=end[order], thread=c.thread.ints()[order]
    )


def _with_modules(frames: Spans, clock: _Clock, names: tuple[str, ...], ops: Ops) -> tuple[Ops, tuple[str, ...]]:
    start = clock.frames
    if not len(start):
        return ops, ()
    end = _ends(start, frames.dur.floats())
    modules, module = _module_paths(
        frames.name.ints(), frames.thread.ints(), start, end, names, ops.thread, ops.start_us
    )
    return replace(ops, module=module), modules


def _module_paths(
    frame_name: Ints,
    frame_thread: Ints,
    frame_start_us: Floats,
    frame_end_us: Floats,
    names: tuple[str, ...],
    op_thread: Ints,
    op_start_us: Floats,
) -> tuple[tuple[str, ...], Ints]:
    """(paths, index of each op's path or NONE): "Model_0/Block_2/RMSNorm_0" from the frames open when the op starts.

    A backward op runs outside its module's frame and has none.
    """
    order, parent = nesting(frame_thread, frame_start_us, frame_end_us)
    paths: dict[str, int] = {}
    frame_path: list[str] = []
    for name, outer in zip(frame_name[order].tolist(), parent.tolist(), strict=True):
        module = names[name].removeprefix(MODULE_PREFIX)
        frame_path.append(f"{frame_path[outer][-_LONGEST_PATH:]}/{module}" if outer != NONE else module)
    path_of = np.array([paths.setdefault(path, len(paths)) for path in frame_path], dtype=np.int32)
    frame = innermost(op_thread, op_start_us, frame_thread[order], frame_start_us[order], frame_end_us[order], parent)
    if len(path_of):
        for at in pieces(len(frame), frame):
            frame[at] = np.where(frame[at] != NONE, path_of[frame[at]], NONE)
    return tuple(paths), frame


def _links(correlation: Longs, start_us: Floats, launches: Launches, ops: Ops) -> tuple[Longs, Floats, Ints]:
    """(index of the launch, its start or NaN, innermost op around it) for GPU work of these correlations."""
    launch = launch_of(correlation, start_us, launches)
    launch_us = cast("Floats", look_up(launches.start_us, launch, np.nan))
    thread = cast("Ints", look_up(launches.thread, launch, NONE))
    return launch, launch_us, innermost(thread, launch_us, ops.thread, ops.start_us, ops.end_us, ops.parent)


def _kernels(c: GpuColumns, start_us: Floats, launches: Launches, ops: Ops) -> tuple[Kernels, Longs]:
    """Kernels, and the "External id" of each: its own, else its launch's, else NONE."""
    order = np.argsort(start_us, kind="stable")
    correlation = c.correlation.longs(order)
    start = cast("Floats", take(start_us, order))
    launch, launch_us, op = _links(correlation, start, launches, ops)
    external_id = c.external.longs(order)
    unnamed = external_id == NONE
    if unnamed.any():
        external_id = np.where(unnamed, look_up(launches.external_id, launch, NONE), external_id)
    kernels = Kernels(
        name=cast("Ints", take(c.name.ints(), order)),
        start_us=start,
        duration_us=cast("Floats", take(c.dur.floats(), order)),
        stream=c.stream.longs(order),
        device=cast("Ints", take(c.device.ints(), order)),
        correlation=correlation,
        launch_us=launch_us,
        op=op,
        launched=launch != NONE,
        graph=cast("npt.NDArray[np.bool_]", look_up(launches.graph, launch, False)),
        launch_end_us=cast("Floats", look_up(launches.end_us, launch, np.nan)),
    )
    return kernels, external_id


def _memory(c: GpuColumns, start_us: Floats, launches: Launches, ops: Ops) -> tuple[Memory, Floats]:
    """Copies and sets, and the start of each one's launch, NaN where it is not in the window."""
    order = np.argsort(start_us, kind="stable")
    _, launch_us, op = _links(c.correlation.longs(order), start_us[order], launches, ops)
    memory = Memory(
        name=c.name.ints()[order],
        start_us=start_us[order],
        duration_us=c.dur.floats()[order],
        stream=c.stream.longs()[order],
        op=op,
        launch_us=launch_us,
    )
    return memory, launch_us


def _device(header: Header) -> tuple[str | None, str]:
    """(the GPU's name, by what it is told where that is no name): None where the trace has none and its properties are
    of no device of the table. A name that is of no device, such as AMD's general one, stands where they are neither."""
    named = ""
    for properties in header.devices or ():
        name = properties.name.strip() if isinstance(properties.name, str) else ""
        if name and find_device(name) is not None:
            return name, ""
        told = _properties(properties)
        device = device_by_properties(told)
        if device is not None:
            by = f"by its {told.processors} processors, warps of {told.warp_size} and {told.memory_bytes / 1e9:.0f} GB"
            return device.name, f"{by}; the trace calls it {name}" if name else by
        named = named or name
    return named or None, ""


def _properties(told: DeviceProperties) -> Properties:
    def number(value: object) -> int:
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    capability = (number(told.major), number(told.minor))
    return Properties(capability, number(told.processors), number(told.warp_size), number(told.memory_bytes))


def _capability(header: Header) -> tuple[int, int] | None:
    """Of the first GPU, where it is NVIDIA's by its warps of 32."""
    told = [_properties(properties) for properties in header.devices or ()][:1]
    return next((p.capability for p in told if p.warp_size == 32 and p.capability[0] > 0), None)


MOST_GAPS = 50


def _predicted(header: Header) -> Predicted | None:
    """What the header says that the trace was predicted from; None for a recorded one. A value of another type than
    is written is the empty one: a file may say anything."""
    told = header.program
    if not isinstance(told, dict):
        return None

    def text(value: object) -> str:
        return value[:MOST_TEXT] if isinstance(value, str) else ""

    def whole(key: str) -> int:
        value = told.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

    known, gaps = told.get("known_share"), told.get("gaps")
    return Predicted(
        name=text(told.get("name")),
        device=text(told.get("device")),
        training=told.get("training") is True,
        parameters=whole("parameters"),
        weights_bytes=whole("weights_bytes"),
        known_share=min(1.0, max(0.0, float(known))) if isinstance(known, int | float) else 0.0,
        gaps=tuple(
            (text(gap.get("what")), text(gap.get("where")), gap.get("ends") is True)
            for gap in (gaps if isinstance(gaps, list) else [])[:MOST_GAPS]
            if isinstance(gap, dict)
        ),
    )


MOST_TEXT = 300
"""Characters of a text in that header that are kept."""


def _rank(header: Header) -> int | None:
    """The rank that wrote the trace; None where it does not say."""
    rank = header.distributed.get("rank") if isinstance(header.distributed, dict) else None
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 else None
