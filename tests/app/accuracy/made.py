"""Records and advice made by hand, with numbers whose arithmetic can be done on paper."""

from __future__ import annotations

from typing import Any

from app.accuracy.case import Case, case_of
from app.accuracy.labels import Label
from app.advice.model import Advice, Alternative, Tool
from app.estimate.range import Range

TEXT = "x: f32[1000, 70]\ny = gelu(x) * 3\nreturn y\n"


def candidate(
    name: str, time_us: float | None, eager_us: float = 100.0, best_other: float | None = None, **more: Any
) -> dict[str, Any]:
    """A candidate of a record; best_other: the time its ratio is held against."""
    tool = name.partition(":")[0].partition("-")[0]
    fields: dict[str, Any] = {"name": name, "tool": tool, "status": "ok" if time_us else "not_installed"}
    if time_us:
        fields["time_us"] = span(time_us)
        fields["ratio_to_eager"] = span(time_us / eager_us)
        fields["ratio_to_best_other"] = span(time_us / best_other) if best_other else None
    return fields | more


def span(value: float) -> dict[str, float]:
    return {"median": value, "low": value * 0.999, "high": value * 1.001}


def record(*candidates: dict[str, Any], text: str = TEXT, **more: Any) -> dict[str, Any]:
    return {
        "id": "made-1", "name": "made", "outcome": "confirmed", "reason": "", "region": text, "device": "NVIDIA H200",
        "date": "2026-01-01", "software": {"torch": "2.11.0"}, "conditions": {"decided_by": "device time"},
        "candidates": list(candidates),
    } | more  # fmt: skip


def case(*candidates: dict[str, Any], label: Label | None = None, **more: Any) -> Case:
    found = case_of(record(*candidates, **more))
    assert found is not None
    if label is None:
        return found
    from dataclasses import replace

    return replace(found, label=label)


def option(tool: Tool, name: str, mid: float | None, mode: str = "default", admitted: bool = True) -> Alternative:
    time = None if mid is None else Range(mid * 0.8, mid, mid * 1.2)
    return Alternative(tool, name, time, 1, "", admitted, "", mode)


def advice(tool: Tool, mode: str, *options: Alternative) -> Advice:
    return Advice(tool, mode, "", "", "", (), (option("skip", "eager", 100.0), *options))
