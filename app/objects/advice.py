"""Advice: the tool, why, what else, and what it is worth."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.objects.basis import PredictionSource
from app.objects.common import Range
from app.objects.evidence import Evidence

Tool = Literal["skip", "library", "compile", "triton", "cuda"]


class Criterion(TypedDict):
    """One condition of the rule; holds is null where it could not be judged."""

    name: str
    holds: bool | None
    value: float | str | None
    threshold: float | str | None
    because: str
    source: str


class Alternative(TypedDict):
    """One way to run the region. admitted: the rule lets it compete; excluded_by: else why not."""

    tool: Tool
    candidate: str
    time_us: Range | None
    effort_lines: int
    note: str
    admitted: bool
    call: str
    mode: str
    excluded_by: NotRequired[str]


class Change(TypedDict):
    """From `at` on, seen from `now`, another tool is advised. of: which number moves, by name."""

    criterion: str
    of: str
    now: float | None
    at: float
    tool: Tool
    because: str


class WorthInstalling(TypedDict):
    """A library call that is predicted to win over what is advised, of a package that is not installed here.

    install: the command that gets it. speedup: predicted time as advised over its own.
    """

    candidate: str
    package: str
    install: str
    call: str
    time_us: Range
    speedup: Range | None


class Advice(TypedDict):
    """What to do about a region, and why. validation: the measurement that it was issued again with.

    prediction: whose kernels torch.compile's predicted time is of: "oracle", Inductor's own list; "rules", our fusion
    rules. Null where no time is predicted for want of sizes.
    """

    tool: Tool
    mode: str
    headline: str
    action: str
    call: str
    criteria: list[Criterion]
    alternatives: list[Alternative]
    region_speedup: Range | None
    step_speedup: Range | None
    floor_us: float | None
    device: str
    validation: Evidence | None
    notes: list[str]
    would_change: NotRequired[list[Change]]
    worth_installing: NotRequired[list[WorthInstalling]]
    prediction: NotRequired[PredictionSource | None]


class DeviceAdvice(TypedDict):
    """Advice on a region for one device of the table; `because` says how its times are known.

    now_us, time_us: of one call, as it runs now and as advised; null without sizes. measured: by a validation. fitted:
    it is priced by an atlas that was measured on such a device.
    """

    device: str
    arch: str
    here: bool
    tool: Tool
    mode: str
    headline: str
    now_us: Range | None
    time_us: Range | None
    region_speedup: Range | None
    step_speedup: Range | None
    floor_us: float | None
    measured: bool
    fitted: bool
    because: str


class RegionDevices(TypedDict):
    """A region's advice on every device of the table."""

    items: list[DeviceAdvice]
