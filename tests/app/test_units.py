"""Numbers as shown: a wrong unit or a lost digit misleads."""

from __future__ import annotations

import pytest

from app import units


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.0, "0 µs"), (0.25, "250 ns"), (3.14159, "3.14 µs"), (999.0, "999 µs"), (1820.4, "1.82 ms")],
)
def test_duration(value: float | None, shown: str) -> None:
    assert units.duration(value) == shown


def test_seconds_and_minutes_stay_seconds() -> None:
    assert units.duration(2.5e6) == "2.50 s"
    assert units.duration(125e6) == "125 s"


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0, "B", "0 B"), (999, "B", "999 B"), (268435456, "B", "268 MB"), (790e12, "FLOP/s", "790 TFLOP/s")],
)
def test_amount(value: float, unit: str, shown: str) -> None:
    assert units.amount(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.0, "0 %"), (0.0004, "< 0.1 %"), (0.258, "25.8 %"), (1.0, "100 %"), (0.5, "50 %")],
)
def test_share(value: float | None, shown: str) -> None:
    assert units.share(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(0.0, "0 %"), (0.256, "26 %"), (-0.1, "-10 %"), (1.0, "100 %")])
def test_whole_percents_have_their_space(value: float, shown: str) -> None:
    assert units.percent(value) == shown


def test_span_says_one_number_where_both_ends_read_the_same() -> None:
    assert units.span({"low": 1.1, "high": 1.3}) == "1.10× to 1.30×"
    assert units.span({"low": 1.101, "high": 1.102}) == "1.10×"
    assert units.span(None) == "–"


def test_criteria_values_of_every_type() -> None:
    assert [units.plain(v) for v in (None, True, 0.31, 1170.2, 4, "none")] == [
        "–",
        "yes",
        "0.310",
        "1,170",
        "4",
        "none",
    ]


def test_sentences_are_whole() -> None:
    assert units.sentence("nothing was timed") == "Nothing was timed."
    assert units.sentence("Done.") == "Done."
    assert units.sentence("torch.compile fuses it") == "torch.compile fuses it."
    assert units.sentence(None) == ""


def test_count_has_its_plural() -> None:
    assert (units.count(1, "step"), units.count(3, "step")) == ("1 step", "3 steps")
