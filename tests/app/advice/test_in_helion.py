"""Helion is named where its source is a third of Triton's lines, and after a measurement only at equal speed."""

from __future__ import annotations

import pytest

from app.advice.in_helion import HELION, TRITON, measured_note, predicted_note
from app.analysis.service import advise_region
from kernels.measure.model import CandidateResult
from kernels.measure.stats import Interval


def timed(name: str, time_us: float) -> CandidateResult:
    return CandidateResult(name=name, tool="triton", status="ok", time_us=Interval(time_us, time_us, time_us))


@pytest.mark.parametrize(
    ("helion_us", "lines", "named"),
    [(100.0, (11, 46), True), (102.0, (11, 46), True), (90.0, (11, 46), True), (120.0, (11, 46), False),
     (100.0, (20, 46), False), (100.0, (0, 46), False)],
)  # fmt: skip
def test_a_measured_tie_in_a_third_of_the_lines_is_named(
    helion_us: float, lines: tuple[int, int], named: bool
) -> None:  # fmt: skip
    note = measured_note([timed(HELION, helion_us), timed(TRITON, 100.0)], *lines, tie_margin=0.03)
    assert bool(note) is named
    assert not named or f"{helion_us / 100:.2f} times" in note


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert measured_note([timed(TRITON, 100.0)], 11, 46, tie_margin=0.03) == ""


def test_where_it_is_not_installed_it_is_worth_installing_to_try() -> None:
    assert "worth installing to try" in predicted_note(11, 46, installed=False)
    assert "measure helion:generated" in predicted_note(11, 46, installed=True)
    assert predicted_note(16, 46, installed=False) == predicted_note(0, 46, installed=True) == ""


def test_the_generated_kernels_option_says_so() -> None:
    body = advise_region("x: bf16[8192, 4096]\nb: bf16[4096]\nm: bf16[8192, 4096]\nreturn gelu(x + b) * m\n")
    (option,) = (a for a in body["advice"]["alternatives"] if a["candidate"] == TRITON)
    assert "in Helion" in option["note"] and "pip install helion==1.5.0" in option["note"]


def test_a_product_whose_factor_is_computed_is_advised_without_it() -> None:
    body = advise_region("x: bf16[4096, 1024]\nw: i8[1024, 1024]\ns: bf16[1024]\nreturn (x @ w.to(bf16)) * s\n")
    assert body["advice"]["tool"]
    assert not any("in Helion" in a["note"] for a in body["advice"]["alternatives"])
