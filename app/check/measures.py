"""What a history keeps of a subject: the times that were measured in it, and how. Pure functions."""

from __future__ import annotations

from app.check.subject import Subject
from app.history.from_report import STEP_TIME
from app.objects.history import HistoryMeasure
from app.objects.trace import StepTimes

REGION_TIME = "region time"
QUARTILES_TO_SD = 1.349
"""Width of the middle half of a normal distribution in standard deviations."""


def measures_of(subject: Subject) -> list[HistoryMeasure]:
    """The step's time and its regions'. What was predicted from a module or a text is no measurement."""
    if subject.kind != "trace" or subject.error or subject.body.get("origin"):
        return []
    times = subject.body.get("step_times")
    steps = times["count"] if times else 1
    measures = []
    if step_us := subject.body.get("step_time_us"):
        measures.append(_measure(subject.name, STEP_TIME, step_us, steps, _spread(times)))
    taken: set[str] = set()
    for region in subject.regions:
        time_us, name = region.get("time_us_per_step"), region.get("name") or ""
        source = region.get("source")
        if name in taken and source:
            name = f"{name} in {source['module']}"
        if time_us and name and name not in taken:
            measures.append(_measure(f"{subject.name}: {name}", REGION_TIME, time_us, steps, None))
        taken.add(name)
    return measures


def method_of(subject: Subject) -> str:
    """What changes the times of a trace apart from the program, as far as the trace tells."""
    times = subject.body.get("step_times")
    if subject.kind != "trace" or subject.error or not times:
        return ""
    recorded = times["count"] + times.get("left_out", 0)
    which = times.get("of", "median")
    stacks = any(region.get("source") and region["source"]["line"] for region in subject.regions)  # type: ignore[index]
    return f"{which} of {recorded} recorded {'step' if recorded == 1 else 'steps'}{', with stacks' if stacks else ''}"


def _measure(subject: str, metric: str, time_us: float, samples: int, spread: float | None) -> HistoryMeasure:
    return {
        "subject": subject, "metric": metric, "unit": "µs", "value": time_us, "samples": max(1, samples),
        "spread": spread,
    }  # fmt: skip


def _spread(times: StepTimes | None) -> float | None:
    """Relative standard deviation of single steps, by their middle half; None for fewer than three."""
    if times is None or times["count"] < 3 or not times["median_us"]:
        return None
    return max(0.0, times["high_us"] - times["low_us"]) / QUARTILES_TO_SD / times["median_us"]
