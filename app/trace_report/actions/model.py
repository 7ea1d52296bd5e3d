"""One thing to do about a step before it is priced: what it is, what to type, and what it changes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from typing_extensions import TypedDict

from app.objects.trace import ActionEvidence, ActionTool, ActionWhere
from app.trace_report.step_model import AnyRegion, Change, Left

HOST_OF_LAUNCHES = 1.12
"""Of the host's time is left, over what is left of the launches: two models recorded with and without torch.compile
kept 0.42 and 0.74 of it for 0.47 and 0.53 of them (docs/traces.md); between the two."""


class Blocker(TypedDict):
    """What the actions read of something in torch.compile's way."""

    kind: str
    effect: Literal["break", "recompile", "opaque", "wait"]
    op: str
    modules: list[str]
    sources: list[str]
    remedy: str


@dataclass(frozen=True, slots=True)
class Option:
    """An action and its effect. regions: places of those that it is about; one for a region's own advice.

    counted: whether it is among what is followed together; where not, instead_of is the option that is, or "" where
    what it saves is only bounded. change: None where no time can be predicted. first: it comes before all
    others whatever they save.
    """

    id: str
    tool: ActionTool
    mode: str
    title: str
    call: str
    because: str
    evidence: ActionEvidence
    change: Change | None
    regions: tuple[int, ...]
    scope_is_step: bool = True
    where: ActionWhere | None = None
    numerics: str = ""
    counted: bool = True
    instead_of: str = ""
    first: bool = False


def alternative_left(region: AnyRegion, candidate: str) -> Left | None:
    """What running the region by a candidate leaves of its time now; None where no time is predicted, or not admitted.

    Eager's time now is the trace's own where kernels were observed: the candidate's range is the ratio's.
    """
    advice = region.get("advice")
    if not advice:
        return None
    times = {a["candidate"]: a for a in advice["alternatives"]}
    now, other = times.get("eager"), times.get(candidate)
    if now is None or other is None or not now["time_us"] or not other["time_us"] or not other["admitted"]:
        return None
    base = float(now["time_us"]["mid"])
    if base <= 0.0:
        return None
    time = other["time_us"]
    return Left(float(time["high"]) / base, float(time["mid"]) / base, float(time["low"]) / base)


def advised_left(region: AnyRegion) -> Left | None:
    """What following the region's own advice leaves of its time; None where no speed-up is predicted or measured."""
    advice = region.get("advice")
    faster = advice["region_speedup"] if advice and advice["tool"] != "skip" else None
    if faster is None or not all(faster[end] for end in ("low", "mid", "high")):
        return None
    return Left(1 / faster["low"], 1 / faster["mid"], 1 / faster["high"])


def launches_left(region: AnyRegion, tool: str) -> Left:
    """Of the host's time for the region's launches the share that a tool leaves. The cautious end lets all stay."""
    share = float((region.get("launches_left") or {}).get(tool, 1.0))
    return Left(1.0, min(1.0, HOST_OF_LAUNCHES * share), share)


def where_of(region: AnyRegion) -> ActionWhere | None:
    """The region's module, file and line as the trace's stacks tell them; None where they tell nothing."""
    source = region.get("source")
    return where_at(source["module"], source["line"]) if source else None


def where_at(module: str, frame: str) -> ActionWhere | None:
    """A module and a frame as stacks tell it, `FILE:LINE FUNCTION`; None where both are ""."""
    if not (module or frame):
        return None
    place, _, _function = frame.partition(" ")
    file, colon, line = place.rpartition(":")
    known = bool(colon) and line.isdigit()
    return {"module": module, "file": file if known else place, "line": int(line) if known else None}


NUMBERED = re.compile(r"_\d+$")
"""What tells operations of one name apart in a graph: mm, mm_1."""


@dataclass(frozen=True, slots=True)
class EagerPart:
    """One operation of a region as eager runs it, in one call: its name without a number, its time, and what it moves
    and computes."""

    name: str
    time_us: float
    bytes_moved: float
    flops: float


def eager_parts(region: AnyRegion) -> list[EagerPart]:
    """What eager's predicted time is made of, the longest first; [] where nothing is priced."""
    rests = region.get("rests_on")
    parts = [p for p in rests["parts"] if p["way"] == "eager"] if rests else []
    return [
        EagerPart(NUMBERED.sub("", p["name"]), p["time_us"], p["bytes_moved"] or 0.0, p["flops"] or 0.0) for p in parts
    ]
