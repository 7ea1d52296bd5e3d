"""What a check that is done adds to the history."""

from __future__ import annotations

from typing import cast

from app.history.from_report import RunContext, entry_from
from app.history.to_json import entry_json
from app.objects.check import Report
from app.objects.history import HistoryEntry
from app.objects.job import ClaimedJob
from app.objects.task import CheckTask


def run_of(job: ClaimedJob, report: Report) -> HistoryEntry | None:
    """The run of a check that names its commit; None for one that does not, or that measured nothing.

    It is of the time when it was asked for: a job that is tried again is the same run.
    """
    history = cast("CheckTask", job["request"]).get("history")
    if history is None:
        return None
    context = RunContext(
        at=job["created_at"], commit=history["commit"], branch=history["branch"],
        software={**report["software"], **history["software"]}, method=history["method"],
    )  # fmt: skip
    entry = entry_from(report, context)
    return entry_json(entry) if entry.measures else None
