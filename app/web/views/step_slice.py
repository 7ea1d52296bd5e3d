"""The shown step as Trace Event JSON, which Perfetto and chrome://tracing open. Pure functions of API JSON.

It is of the spans that a stored trace keeps: runs of one region's kernels, not every kernel and nothing of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from app.objects.trace import Timeline, Trace
from app.trace_report.timeline import COPIES, ELSEWHERE, NO_REGION
from app.web.labels import TOOL_LABELS

OTHERS = {COPIES: "copies and sets", NO_REGION: "no region", ELSEWHERE: "work of other steps"}
IDLE_THREAD = 0
"""The thread of the gaps; streams follow."""


class SliceEvent(TypedDict, total=False):
    """A complete event ("X"), or the name of a process or thread ("M"). Times in µs."""

    ph: str
    name: str
    cat: str
    pid: int
    tid: int
    ts: float
    dur: float
    args: dict[str, str | int | float]


class StepSlice(TypedDict):
    """A file of trace events."""

    displayTimeUnit: str
    traceEvents: list[SliceEvent]


def step_slice(trace: Trace, names: Sequence[str]) -> StepSlice | None:
    """names: of the trace's regions, in the report's order. None for a trace without a timeline."""
    timeline = trace.get("timeline")
    if not timeline:
        return None
    tools = [advice["tool"] if (advice := r.get("advice")) else "none" for r in trace["regions"]]
    events = _names(timeline)
    for thread, stream in enumerate(timeline["streams"], IDLE_THREAD + 1):
        columns = (stream["start_us"], stream["length_us"], stream["region"], stream["kernels"], stream["name"])
        for start, length, region, kernels, kernel in zip(*columns, strict=True):
            known = 0 <= region < len(names)
            args: dict[str, str | int | float] = {"kernels": kernels}
            if kernel >= 0:
                args["longest kernel"] = timeline["names"][kernel]
            if known:
                args["advice"] = TOOL_LABELS.get(tools[region], tools[region])
            name = names[region] if known else OTHERS.get(region, "no region")
            events.append(_span(name, tools[region] if known else "rest", thread, start, length, args))
    gaps = timeline["gaps"]
    for start, length, cause, number, idle in zip(
        gaps["start_us"], gaps["length_us"], gaps["cause"], gaps["gaps"], gaps["idle_us"], strict=True
    ):
        events.append(_span(f"idle: {cause}", "idle", IDLE_THREAD, start, length, {"gaps": number, "idle us": idle}))
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _span(
    name: str, category: str, thread: int, start_us: float, length_us: float, args: dict[str, str | int | float]
) -> SliceEvent:
    return {
        "ph": "X", "name": name, "cat": category, "pid": 1, "tid": thread, "ts": start_us, "dur": length_us,
        "args": args,
    }  # fmt: skip


def _names(timeline: Timeline) -> list[SliceEvent]:
    threads = ["GPU idle"] + [
        "other streams" if s["stream"] is None else f"GPU {s['device']} stream {s['stream']}"
        for s in timeline["streams"]
    ]
    named: list[SliceEvent] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": timeline["step"]}}]
    named += [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": thread, "args": {"name": name}}
        for thread, name in enumerate(threads, IDLE_THREAD)
    ]
    return named
