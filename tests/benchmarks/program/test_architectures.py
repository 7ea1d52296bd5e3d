"""What would break: failures in the record that run into what to do about them, and rows that name no limit."""

from __future__ import annotations

import json

from benchmarks.program.architectures import RECORD, failure_of
from profiler.program.model import ProgramError


def test_a_failure_is_sentences() -> None:
    assert failure_of(ProgramError("the step ends", "Record less.")) == "the step ends. Record less."
    assert failure_of(ProgramError("the step ends")) == "the step ends"


def test_the_records_failures_are_sentences() -> None:
    failures = [row["failure"] for row in json.loads(RECORD.read_text(encoding="utf-8"))["rows"] if row["failure"]]
    assert failures
    assert all(". Record a shorter step." in failure for failure in failures)
