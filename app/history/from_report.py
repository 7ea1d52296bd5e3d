"""A run of a history from the report of a check."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app.history.model import Entry, Environment, Measure
from app.history.to_json import entry_id, utc
from app.objects.check import Report


@dataclass(frozen=True, slots=True)
class RunContext:
    """Of what a check was made, which its report does not say. base: the branch that this one is to be merged into.

    software: versions with which the traces were recorded. commits: git's, oldest first, where they are known.
    """

    at: str
    commit: str = ""
    branch: str = ""
    base: str = ""
    software: Mapping[str, str] = field(default_factory=dict)
    method: str = ""
    parents: tuple[str, ...] = ()
    dirty: bool = False
    commits: tuple[str, ...] = ()


def entry_from(report: Report, run: RunContext) -> Entry:
    """The run, with what its subjects measured and what its contracts counted. ValueError for a time that is none."""
    subjects = [subject for subject in report["subjects"] if subject.get("measures")]
    measures = [
        Measure(m["subject"], m["metric"], m["unit"], m["value"], m["samples"], m["spread"])
        for subject in subjects for m in subject.get("measures", ())
    ]  # fmt: skip
    methods: dict[str, None] = dict.fromkeys(method for subject in subjects if (method := subject.get("method")))
    devices = dict.fromkeys(device for subject in subjects if (device := subject["device"]))
    return entry_made(report["name"], [*measures, *contract_measures(report)], list(devices), list(methods), run)


def entry_made(
    check: str, measures: list[Measure], devices: list[str], methods: list[str], run: RunContext
) -> Entry:  # fmt: skip
    """The run of these measures. A method that was named stands before what the traces tell."""
    method = "; ".join(dict.fromkeys([run.method, *methods] if run.method else methods))
    environment = Environment(" + ".join(devices), dict(run.software), method)
    entry = Entry(
        check, utc(run.at), run.commit, run.branch, environment, tuple(measures), "", run.parents, run.dirty
    )  # fmt: skip
    return replace(entry, id=entry_id(entry))


CONTRACT_METRICS = (("kernels", "kernels", "kernels"), ("bytes_over_minimum", "bytes over the minimum", "bytes/byte"))
"""(key of a contract's row, metric, unit)."""


def contract_measures(report: Report) -> list[Measure]:
    """What the contracts' rows counted, each by its contract and what it is about: a pattern is about several."""
    made: dict[tuple[str, str], Measure] = {}
    for row in report.get("contracts") or ():
        subject = f"contract {row['name']}: {row['of']}"
        for key, metric, unit in CONTRACT_METRICS:
            value = row.get(key)
            if isinstance(value, int | float) and math.isfinite(value) and value > 0:
                made.setdefault((subject, metric), Measure(subject, metric, unit, float(value)))
    return list(made.values())
