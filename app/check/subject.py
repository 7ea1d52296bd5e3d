"""What is checked: a trace's step or a region by itself, as little of the API's objects as assertions need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.check.config import Evidence

Json = dict[str, Any]

OF_TRACE = (
    "id", "name", "device", "step_time_us", "step_times", "step_parts", "rests", "compile_obstacles", "regions",
)  # fmt: skip
OF_REGION = (
    "id", "name", "key", "text", "source", "shapes", "share_of_step", "time_us_per_step", "calls_per_step",
    "compile_obstacles", "advice",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subject:
    """One trace, or one region by itself. error: why it could not be read; then body is empty.

    body: the API's trace, or {"regions": [region]}. unmeasured: the region's place -> why it could not be measured.
    """

    name: str
    kind: str  # "trace", "region"
    body: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    unmeasured: Mapping[int, str] = field(default_factory=dict)

    @property
    def regions(self) -> list[Json]:
        return list(self.body.get("regions") or ())


def slim(trace: Mapping[str, Any]) -> Json:
    """A trace without what no assertion looks at: costs, kernels' names, the oracle's source."""
    found = {key: trace[key] for key in OF_TRACE if key in trace}
    return {**found, "regions": [slim_region(r) for r in trace.get("regions") or ()]}


def slim_region(region: Mapping[str, Any]) -> Json:
    """A region without the same."""
    return {key: region[key] for key in OF_REGION if key in region}


def evidence_of(region: Mapping[str, Any]) -> Evidence:
    """How well a region's advice is founded."""
    validation = (region.get("advice") or {}).get("validation")
    if not validation or validation.get("outcome") in (None, "unmeasured"):
        return "predicted"
    return "recorded" if validation.get("archived") else "measured"
