"""Traces and regions as assertions see them, with round numbers."""

from __future__ import annotations

from typing import Any

from app.check.subject import Subject
from tests.app import samples

Json = dict[str, Any]


def criterion(name: str, holds: bool | None, **more: Any) -> Json:
    return {"name": name, "holds": holds, "value": 0.5, "threshold": 0.1, "because": f"{name} because", "source": "",
            **more}  # fmt: skip


def region(name: str = "chain", tool: str = "compile", share: float | None = 0.1, **more: Any) -> Json:
    """Advised `tool`, predicted 1.25 times as fast, 1.05 times for the step."""
    answer = samples.region(name, tool, 1000.0, share)
    answer |= {"key": f"{name}-key", "source": {"module": "Net/Block_0", "line": "models/net.py:42 forward", "ops": []}}
    return {**answer, **more}


def trace(*regions: Json, step_us: float = 10_000.0, spread: float = 0.01, **more: Any) -> Subject:
    """A trace of ten steps on an H200, their times within ± spread."""
    low_us, high_us = step_us * (1 - spread), step_us * (1 + spread)
    times = {"count": 10, "left_out": 0, "median_us": step_us, "low_us": low_us, "high_us": high_us,
             "shortest_us": low_us, "longest_us": high_us}  # fmt: skip
    parts = {"wall_us": step_us, "idle_share": 0.2}
    body = samples.trace(list(regions), step_time_us=step_us, step_times=times, step_parts=parts)
    return Subject(str(more.pop("name", "step.json")), "trace", {**body, **more})


def action(name: str = "compile-model", saves_us: float | None = 2_000.0, **more: Any) -> Json:
    """Something to do about a step of 10 ms, as a trace's list has it: saves from half of it to half as much again."""
    saves = None if saves_us is None else {"low": saves_us / 2, "mid": saves_us, "high": saves_us * 1.5}
    step = None if saves is None else {end: 10_000.0 - saves[other] for end, other in ENDS}
    where = {"module": "Net", "file": "models/net.py", "line": 42}
    return {
        "id": name, "scope": "step", "region": None, "tool": "compile", "mode": "", "title": f"Do {name}",
        "call": "model = torch.compile(model)", "where": where, "saves_us": saves, "step_time_us": step,
        "adds_us": saves_us, "evidence": {"kind": "predicted", "text": "from this trace"},
        "because": "launches become fewer", "numerics": "", "regions": [], "parts_us": [], "instead_of": "", **more,
    }  # fmt: skip


ENDS = (("low", "high"), ("mid", "mid"), ("high", "low"))


def timed(**times_us: float) -> Json:
    """A validation that measured these candidates; `_` in a name stands for a colon."""
    candidates = [samples.candidate("eager", "eager", 100.0, 100.0)]
    for name, time_us in times_us.items():
        candidates.append(samples.candidate(name.replace("_", ":", 1), name.split("_")[0], time_us, 100.0))
    return samples.validation(candidates=candidates, outcome="confirmed")


def with_validation(found: Json, validation: Json) -> Json:
    return {**found, "advice": {**found["advice"], "validation": validation}}
