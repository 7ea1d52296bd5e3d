"""What is checked: a trace's step or a region by itself, as little of the API's objects as assertions need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from app.objects.check import CheckEvidence as Evidence
from app.objects.region import AnyRegion, SlimRegion
from app.objects.trace import AnyTrace, SlimTrace


@dataclass(frozen=True, slots=True)
class Subject:
    """One trace, one region by itself, one kernel of the repository, or one contract. error: why it could not be read;
    then body is empty.

    body: the trace, or the one region with its device. unmeasured: the region's place -> why it could not be measured.
    """

    name: str
    kind: Literal["trace", "region", "kernel", "contract"]
    body: SlimTrace = field(default_factory=SlimTrace)
    error: str = ""
    unmeasured: Mapping[int, str] = field(default_factory=dict)

    @property
    def regions(self) -> list[SlimRegion]:
        return list(self.body.get("regions") or ())


def slim(trace: AnyTrace) -> SlimTrace:
    """A trace without what no assertion looks at: costs, kernels' names, the oracle's source."""
    kept = {key: value for key, value in trace.items() if key in SlimTrace.__annotations__}
    return cast("SlimTrace", {**kept, "regions": [slim_region(r) for r in trace.get("regions") or ()]})


def slim_region(region: AnyRegion) -> SlimRegion:
    """A region without the same."""
    return cast("SlimRegion", {key: value for key, value in region.items() if key in SlimRegion.__annotations__})


def evidence_of(region: AnyRegion) -> Evidence:
    """How well a region's advice is founded."""
    advice = region.get("advice")
    validation = advice["validation"] if advice else None
    if not validation or validation["outcome"] in (None, "unmeasured"):
        return "predicted"
    return "recorded" if validation.get("archived") else "measured"
