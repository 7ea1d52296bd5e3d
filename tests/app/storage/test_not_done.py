"""What is not done yet is answered with the fields of what is: none is missing until then, and none is another's."""

from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints

from app.objects.check import Found
from app.objects.trace import TraceFigures
from app.storage import checks, landscapes, rows
from kernels.measure.landscape.model import Landscape
from kernels.measure.model import Validation


def names(kind: type) -> set[str]:
    return {f.name for f in fields(kind)}


def test_a_validation_that_is_not_done_has_all_that_one_measures() -> None:
    assert set(rows.VALIDATION) == names(Validation) - {"region"}  # known from the start


def test_a_landscape_that_is_not_done_has_all_that_one_measures() -> None:
    assert set(landscapes.NOT_DONE) == names(Landscape) - {"candidate", "region", "binding"}


def test_a_check_that_is_not_done_has_all_that_one_finds() -> None:
    assert set(get_type_hints(Found)) <= set(checks.NOT_DONE)


def test_a_trace_that_is_being_read_has_fields_of_a_trace_alone() -> None:
    assert set(rows.TRACE) <= set(get_type_hints(TraceFigures))
