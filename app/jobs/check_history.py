"""What a check that is done adds to the history."""

from __future__ import annotations

from typing import cast

from app.history.from_report import RunContext, entries_from
from app.history.to_json import entry_json
from app.objects.check import Report
from app.objects.history import HistoryEntry
from app.objects.job import ClaimedJob
from app.objects.task import CheckTask


def runs_of(job: ClaimedJob, report: Report) -> list[HistoryEntry]:
    """The runs of a check that names its commit; none for one that does not, or that measured nothing.

    They are of the time when it was asked for: a job that is tried again has the same runs.
    """
    history = cast("CheckTask", job["request"]).get("history")
    if history is None:
        return []
    context = RunContext(
        at=job["created_at"], commit=history["commit"], branch=history["branch"],
        software={**report["software"], **history["software"]}, method=history["method"],
    )  # fmt: skip
    return [entry_json(entry) for entry in entries_from(report, context)]
