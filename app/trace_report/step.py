"""A trace's step as the API tells it: its times, what its wall time is made of, its bottleneck, its graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from app.objects import trace as objects
from app.units import share
from profiler.trace.analyze.gpu_graphs import PAST_IT, Graph, find_graphs
from profiler.trace.analyze.host_activity import HostTime, host_times
from profiler.trace.analyze.idle_breakdown import StepParts, critical_resource, step_parts
from profiler.trace.analyze.steps import StepTimes, measured_steps, middle_steps, step_times
from profiler.trace.model import Step, Trace

if TYPE_CHECKING:
    from profiler.region.mining.mine import Mining

MAX_GRAPHS, MAX_NAMES, MAX_TEXT = 8, 6, 160

IDLE_WORDS = {
    "idle_launch_us": (
        "idle: waiting for launches",
        'launch-bound: torch.compile(model, mode="reduce-overhead") replays the step as CUDA graphs',
    ),
    "idle_host_us": (
        "idle: waiting for the host",
        "the host holds it up: look at data loading, synchronising calls (.item(), .cpu()), slow Python",
    ),
    "idle_communication_us": (
        "idle: waiting for communication",
        "it waits for communication: overlap it with compute, or look at the slowest rank",
    ),
    "idle_device_us": ("idle: queued, not started", ""),
}
"""The four kinds of idle time as rests of the step, with what helps. A few µs are queued between any two kernels."""

OTHER_STEPS = "work of other steps"


class StepFigures(TypedDict):
    """What a trace says of its step; None where nothing is known of it."""

    step_times: objects.StepTimes | None
    step_parts: objects.StepParts | None
    critical: objects.Critical | None


HOST_WORDS: Mapping[objects.HostKind, str] = {
    "loader": "most of it for the data loader",
    "capturing": "most of it under `{name}`, where a graph is captured",
    "start_up": "most of it in what begins once, such as `{name}`",
    "compiling": "most of it before code that is compiled first",
    "sync": "most of it in a call that waits for the GPU",
    "library": "most of it inside `{name}`",
    "cpu": "most of it inside `{name}`, which runs on the CPU",
    "inputs": "most of it before inputs are copied to the GPU",
    "ending": "most of it behind the last operation",
    "python": "most of it in Python, outside of every operation",
}


def step_json(
    trace: Trace, mined: Sequence[Step], parts: StepParts | None, host: Sequence[objects.HostTime] = ()
) -> StepFigures:  # fmt: skip
    """Of the API's trace what is about its step. mined: the steps that figures are the mean of; parts: of these; host:
    what the host does in their gaps."""
    times, critical = step_times(trace), critical_resource(parts) if parts else None
    if critical is not None and critical.name == "host" and parts is not None and host:
        most = host[0]
        if not most["other_steps"] and most["time_us"] > parts.idle_host_us / 2:
            words = HOST_WORDS[most["kind"]].format(name=most["name"])
            because = f"for {share(critical.share)} of the step the GPU waits for the host, {words}"
            critical = replace(critical, because=because)
    return {
        "step_times": {**times_json(times), "of": step_of(trace, mined), "steps": len(mined)} if times else None,
        "step_parts": parts_json(parts) if parts else None,
        "critical": {"resource": critical.name, "share": critical.share, "because": critical.because}
        if critical
        else None,
    }


def step_of(trace: Trace, mined: Sequence[Step]) -> objects.StepOf:
    """What the mined steps are among the measured ones."""
    measured = measured_steps(trace)
    if len(measured) < 2:
        return "one"
    if [step.start_us for step in mined] == [step.start_us for step in middle_steps(trace)]:
        return "median"
    return "mean" if len(mined) > 1 else "covered"


GPU_PACE, WAITING = 0.5, 0.1
"""Of the step: the GPU sets the pace of less and the GPU waits for the host in at least so much, and the host is what
the step waits for, whatever part of it kernels run in."""


def critical_by_pace(
    critical: objects.Critical | None, parts: objects.StepParts | None, gpu_us: float, host: Sequence[objects.HostTime]
) -> objects.Critical | None:
    """The bottleneck once it is known who sets the pace. gpu_us: of the step, in which the GPU does.

    Kernels may run for most of a step that the host paces: each begins when its launch comes, and a faster one only
    waits longer for the next. Then launches are the bottleneck, or the host where the GPU waits longer for that.
    """
    if critical is None or parts is None or critical["resource"] != "gpu":
        return critical
    wall, waiting_us = parts["wall_us"], parts["idle_launch_us"] + parts["idle_host_us"]
    by_host = 1 - gpu_us / wall
    if gpu_us >= GPU_PACE * wall or waiting_us < WAITING * wall:
        return critical
    because = (
        f"the host sets the pace of {share(by_host)} of the step: kernels run for {share(critical['share'])} of it, but"
    )
    if parts["idle_launch_us"] >= parts["idle_host_us"]:
        waits = f"the GPU waits for the next launch for {share(parts['idle_launch_us'] / wall)}"
        return {"resource": "launches", "share": by_host, "because": f"{because} {waits}"}
    words = ""
    if host and not host[0]["other_steps"] and host[0]["time_us"] > parts["idle_host_us"] / 2:
        words = ", " + HOST_WORDS[host[0]["kind"]].format(name=host[0]["name"])
    waits = f"the GPU waits for the host for {share(parts['idle_host_us'] / wall)}{words}"
    return {"resource": "host", "share": by_host, "because": f"{because} {waits}"}


MAX_HOST_TIMES, LEAST_HOST_TIME = 12, 0.005
"""So much is told of what the host does, and of the step what each takes at least."""
OF_ALL_STEPS = 0.2
"""Of all steps' time, from which a loader is told of that the steps in the middle do not wait for."""


def host_times_json(trace: Trace, steps: Sequence[Step], parts: StepParts | None) -> list[objects.HostTime]:
    """What the host does while the GPU waits for it, and a loader that other steps than the shown one wait for."""
    if parts is None:
        return []
    told = [one for one in host_times(trace, steps) if one.time_us >= LEAST_HOST_TIME * parts.wall_us]
    shown = [_host_time(one, False) for one in told[:MAX_HOST_TIMES]]
    if any(one.kind == "loader" for one in told) or len(trace.steps) <= len(steps):
        return shown
    every = step_parts(trace, trace.steps)
    loads = [one for one in host_times(trace, trace.steps) if one.kind == "loader"]
    long = [one for one in loads if every is not None and one.time_us >= OF_ALL_STEPS * every.wall_us]
    return shown + [_host_time(one, True) for one in long]


def _host_time(one: HostTime, other_steps: bool) -> objects.HostTime:
    return {
        "kind": one.kind,
        "name": one.name[:MAX_TEXT],
        "time_us": one.time_us,
        "longest_us": one.longest_us,
        "following": one.following[:MAX_TEXT],
        "module": one.module[-MAX_TEXT:],
        "other_steps": other_steps,
    }


def times_json(times: StepTimes) -> objects.StepTimes:
    """The API's object."""
    return {
        "count": times.count,
        "left_out": times.left_out,
        "median_us": times.median_us,
        "low_us": times.low_us,
        "high_us": times.high_us,
        "shortest_us": times.shortest_us,
        "longest_us": times.longest_us,
    }


def parts_json(parts: StepParts) -> objects.StepParts:
    """What a step's wall time is made of, in µs, and the share of it in which nothing runs on the GPU."""
    return {
        "wall_us": parts.wall_us,
        "kernels_us": parts.kernels_us,
        "communication_us": parts.communication_us,
        "copies_us": parts.copies_us,
        "idle_launch_us": parts.idle_launch_us,
        "idle_host_us": parts.idle_host_us,
        "idle_communication_us": parts.idle_communication_us,
        "idle_device_us": parts.idle_device_us,
        "idle_us": parts.idle_us,
        "idle_share": parts.idle_us / parts.wall_us if parts.wall_us else None,
    }


def idle_rests(parts: StepParts | None) -> list[objects.Rest]:
    """The kinds of idle time as rests of the step; [] for a step without length."""
    if parts is None or parts.wall_us <= 0.0:
        return []
    return [
        {
            "name": words,
            "kind": "idle",
            "time_us": getattr(parts, name),
            "kernels": 0,
            "remedy": remedy,
            "share_of_step": getattr(parts, name) / parts.wall_us,
        }
        for name, (words, remedy) in IDLE_WORDS.items()
        if getattr(parts, name) > 0.0
    ]


def rests(mining: Mining, parts: StepParts | None) -> list[objects.Rest]:
    """Everything of the step that is no region: with the regions' shares theirs add up to 1."""
    from profiler.region.mining.mine import COPIES

    told: list[objects.Rest] = []
    shares, steps = mining.shares, len(mining.mined)
    if shares is None or shares.wall_us <= 0.0:
        return []
    after = iter(shares.groups_us[len(mining.regions) :])
    for rest in mining.rests:
        time = shares.copies_us if rest.name == COPIES else next(after)
        told.append(
            {
                "name": rest.name,
                "kind": "copies" if rest.name == COPIES else "kernels",
                "time_us": time / steps,
                "kernels": round(len(rest.kernels) / steps),
                "remedy": rest.remedy,
                "share_of_step": time / shares.wall_us,
            }
        )
    if shares.other_us > 0.0:
        told.append(
            {
                "name": OTHER_STEPS, "kind": "kernels", "time_us": shares.other_us / steps, "kernels": 0,
                "remedy": "", "share_of_step": shares.other_us / shares.wall_us,
            }
        )  # fmt: skip
    return [*told, *idle_rests(parts)]


def graphs_json(trace: Trace, steps: tuple[Step, ...]) -> list[objects.Graph]:
    """The graphs replayed in the steps, by time: what each hides."""
    return [_graph(graph, len(steps)) for graph in find_graphs(trace, steps)[:MAX_GRAPHS]]


def _graph(graph: Graph, steps: int) -> objects.Graph:
    return {
        "name": graph.name,
        "replays_per_step": len(graph.replays) / steps,
        "kernels_per_replay": graph.kernels_per_replay,
        "time_us_per_replay": graph.time_us_per_replay,
        "share_of_kernel_time": graph.share_of_kernel_time,
        "hidden_share": graph.hidden_share,
        "kernel_names": [name[:MAX_TEXT] for name in graph.kernel_names[:MAX_NAMES]],
        "remedy": PAST_IT if graph.hidden_share else "",
    }
