"""Whether a child's answer can be what it says: checked before it is stored, by shape and by sense."""

from __future__ import annotations

import math
from typing import Any

from app import exit_status
from kernels.measure.landscape import model as landscape_model
from kernels.measure.landscape.model import landscape_from_json
from kernels.measure.model import INTERVALS, OUTCOMES, STATUSES, Interval, Validation, validation_from_json


def check_validation(answer: Any) -> str:
    """What is wrong with a validation, or ""."""
    if not isinstance(answer, dict):
        return "not an object"
    try:
        validation = validation_from_json(answer)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        return f"not a validation: {type(error).__name__}"
    if validation.outcome not in OUTCOMES:
        return "unknown outcome"
    return _check_candidates(validation)


def _check_candidates(validation: Validation) -> str:
    for candidate in validation.candidates:
        if candidate.status not in STATUSES:
            return "unknown status"
        for figures in (candidate, *candidate.shapes):
            for name in INTERVALS:
                if not _sensible(getattr(figures, name)):
                    return f"{name} is no positive time or ratio"
    return ""


def _sensible(interval: Interval | None) -> bool:
    if interval is None:
        return True
    values = (interval.low, interval.median, interval.high)
    if not all(isinstance(v, int | float) and math.isfinite(v) and v > 0 for v in values):
        return False
    return values[0] <= values[1] <= values[2]


def check_landscape(answer: Any) -> str:
    """What is wrong with a landscape, or ""."""
    if not isinstance(answer, dict):
        return "not an object"
    try:
        landscape = landscape_from_json(answer)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        return f"not a landscape: {type(error).__name__}"
    if landscape.outcome not in landscape_model.OUTCOMES:
        return "unknown outcome"
    keys = {p.key for p in landscape.points}
    if not {landscape.chosen, landscape.best} - {None} <= keys:
        return "the chosen or the best point is none of the points"
    if any(p.status not in landscape_model.STATUSES for p in landscape.points):
        return "unknown status"
    if not all(_sensible(p.time_us) for p in landscape.points):
        return "time_us is no positive time"
    return ""


def check_report(answer: Any) -> str:
    """What is wrong with a check's report, or ""."""
    if not isinstance(answer, dict):
        return "not an object"
    if exit_status.BY_OUTCOME.get(answer.get("outcome", "")) != answer.get("exit_code") or "exit_code" not in answer:
        return "an outcome without its exit code"
    lists = ("errors", "warnings", "unmeasured", "assertions", "subjects")
    if not all(isinstance(answer.get(name), list) for name in lists):
        return "findings that are no list"
    if answer["errors"] and answer["outcome"] != "failed":
        return "errors that do not fail"
    return ""


def check_trace(answer: Any) -> str:
    """What is wrong with a trace and its regions, or ""."""
    if not isinstance(answer, dict):
        return "not an object"
    for name in ("events", "kernels", "profiler_steps", "steps"):
        if not isinstance(answer.get(name), int) or isinstance(answer[name], bool) or answer[name] < 0:
            return f"{name} is no count"
    if not isinstance(answer.get("notes"), list) or not isinstance(answer.get("regions"), list):
        return "notes or regions are no list"
    inputs = answer.get("advice_inputs")
    if inputs is not None and (not isinstance(inputs, list) or len(inputs) != len(answer["regions"])):
        return "not one advice_inputs for each region"
    for region in answer["regions"]:
        if not isinstance(region, dict) or not isinstance(region.get("name"), str):
            return "a region without a name"
        if not isinstance(region.get("text"), str | None):  # None: the trace lacks what it would take, such as shapes
            return "a region whose text is no text"
        if not isinstance(region.get("advice"), dict | None):
            return "a region whose advice is no object"
    return ""
