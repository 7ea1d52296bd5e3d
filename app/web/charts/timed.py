"""What charts and their tables show of times: predicted ones of an advice's options, measured ones of candidates."""

from __future__ import annotations

from dataclasses import dataclass

from app.objects.advice import Advice, Alternative
from app.objects.common import Interval, Range
from app.objects.evidence import Candidate, Figures
from app.units import duration, factor
from kernels.measure import outcome


@dataclass(frozen=True, slots=True)
class TimedOption:
    """An option of an advice that has a predicted time. tool: the advice's word for it, of eager too.

    candidate: its fixed name, "" where it is none that could be launched. lines: to maintain. admitted: by the rule.
    """

    candidate: str
    tool: str
    time_us: Range
    lines: int
    admitted: bool

    @property
    def mid_us(self) -> float:
        return self.time_us["mid"]

    @property
    def name(self) -> str:
        """What a table calls it."""
        return self.candidate or self.tool

    @property
    def look(self) -> str:
        """The tool whose colour it has: eager has its own."""
        return "eager" if self.candidate == "eager" else self.tool


def timed_options(advice: Advice | None) -> list[TimedOption]:
    """The options that have a predicted time, in the advice's order."""
    options = advice.get("alternatives") or () if advice else ()
    return [
        TimedOption(o.get("candidate") or "", o["tool"], time_us, o.get("effort_lines") or 0, o.get("admitted", True))
        for o in options
        if (time_us := o.get("time_us"))
    ]


def advised_candidate(advice: Advice) -> str:
    """The name of the candidate that is advised; "" where it is none of the alternatives."""
    if advice["tool"] == "skip":
        return "eager"
    of_tool = [a for a in advice.get("alternatives") or () if a["tool"] == advice["tool"]]
    in_mode = [a for a in of_tool if a.get("mode") == advice.get("mode")]
    offered = [a for a in in_mode if a.get("admitted", True)] or in_mode or of_tool
    return min(offered, key=_time_us)["candidate"] if offered else ""


def _time_us(option: Alternative) -> float:
    time = option.get("time_us")
    return time["mid"] if time else float("inf")


class CandidateRow(Candidate):
    """A candidate that was timed. decided_us: the time that decides; speedup: over eager; label: both in words."""

    decided_us: Interval
    speedup: float | None
    label: str


def decided_by_wall(validation: Figures) -> bool:
    """Whether wall time decides: the region is launch-bound."""
    conditions = validation.get("conditions")
    return outcome.by_wall(str(conditions.get("decided_by", "") if conditions else ""))


def decided_us(candidate: Candidate, validation: Figures) -> Interval | None:
    """The time that decides: the device's, or where wall time does the host's of one call; None where that was not
    taken. The interval of a wall time is its ratio's to eager, in eager's wall time.
    """
    if not decided_by_wall(validation):
        return candidate["time_us"]
    wall_us, against = candidate.get("wall_us"), candidate.get("ratio_to_eager")
    if wall_us is None:
        return None
    if not against:
        return {"median": wall_us, "low": wall_us, "high": wall_us}
    middle = against["median"]
    return {"median": wall_us, "low": wall_us * (against["low"] / middle), "high": wall_us * (against["high"] / middle)}


def candidate_rows(validation: Figures | None) -> list[CandidateRow]:
    """Candidates that were timed, fastest first by what decides; [] without a validation."""
    rows: list[CandidateRow] = []
    for candidate in validation.get("candidates") or () if validation else ():
        if candidate.get("status") != "ok" or not candidate.get("time_us"):
            continue
        time_us = decided_us(candidate, validation) if validation else None
        if time_us is None:
            continue
        against = candidate.get("ratio_to_eager")
        speedup = 1 / against["median"] if against and against["median"] else None
        label = duration(time_us["median"])
        if speedup is not None and candidate["name"] != "eager":
            label += f" · {factor(speedup)}"
        rows.append({**candidate, "decided_us": time_us, "speedup": speedup, "label": label})
    return sorted(rows, key=lambda row: row["decided_us"]["median"])
