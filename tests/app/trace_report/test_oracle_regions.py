"""Which regions of a trace Inductor is asked about, and how far that is."""

from __future__ import annotations

import random

from app.objects.trace import AskedRegion
from app.trace_report.oracle_regions import asked_texts, oracle_progress


def region(text: str, time_us: float | None, *, advised: bool = True, unavailable: str | None = None) -> AskedRegion:
    return {"text": text, "time_us": time_us, "advised": advised, "unavailable": unavailable}


def test_the_heaviest_come_first_and_the_tail_is_not_asked_about() -> None:
    regions = [region("a", 60.0), region("b", 4.0), region("c", 35.0), region("d", 1.0)]
    assert [t.text for t in asked_texts(regions, 0.95)] == ["a", "c"]
    assert [t.text for t in asked_texts(regions, 0.96)] == ["a", "c", "b"]
    assert [t.text for t in asked_texts(regions, 1.0)] == ["a", "c", "b", "d"]
    assert asked_texts(regions, 0.0) == ()


def test_regions_of_one_text_are_one_question_that_weighs_what_all_take() -> None:
    regions = [region("a", 40.0), region("b", 30.0), region("b", 30.0)]
    assert [(t.text, t.positions, t.time_us) for t in asked_texts(regions, 1.0)] == [
        ("b", (1, 2), 60.0),
        ("a", (0,), 40.0),
    ]


def test_who_cannot_be_asked_about_takes_its_part_of_the_time() -> None:
    """Or a trace of compiled kernels would have its last microsecond asked about."""
    regions = [region("", 60.0), region("", 36.0), region("a", 3.0), region("b", 1.0, advised=False)]
    assert asked_texts(regions, 0.95) == ()
    assert [t.text for t in asked_texts(regions, 1.0)] == ["a"]
    progress = oracle_progress(regions, 1.0)
    assert (progress["asked"], progress["of_time"]) == (1, 0.03)


def test_regions_without_times_are_not_asked_about() -> None:
    assert asked_texts([region("a", None), region("b", None)]) == ()
    assert oracle_progress([]) == {"asked": 0, "answered": 0, "failed": 0, "of_time": 0.0, "done": True}


def test_progress_counts_texts_and_ends_with_the_last_answer() -> None:
    def progress(first: str | None, second: str | None, third: str | None) -> tuple[int, int, bool]:
        made = oracle_progress(
            [
                region("a", 5.0, unavailable=first),
                region("a", 4.0, unavailable=second),
                region("b", 3.0, unavailable=third),
            ]
        )
        assert made["asked"] == 2
        return made["answered"], made["failed"], made["done"]

    assert progress(None, None, None) == (0, 0, False)
    assert progress("", None, None) == (0, 0, False), "the second region of the text has no advice by it yet"
    assert progress("", "", None) == (1, 0, False)
    assert progress("", "late", None) == (0, 1, False)
    assert progress("", "", "") == (2, 0, True)
    assert progress("late", "late", "") == (1, 1, True)


def test_the_asked_hold_the_share_and_without_the_lightest_would_not() -> None:
    draw = random.Random(7)
    for _ in range(200):
        regions = [region(draw.choice("abcdefgh"), draw.expovariate(0.1)) for _ in range(draw.randrange(1, 30))]
        share = draw.random()
        total = sum(r["time_us"] or 0.0 for r in regions)
        asked = asked_texts(regions, share)
        times = [sum(r["time_us"] or 0.0 for r in regions if r["text"] == t.text) for t in asked]
        assert sum(times) >= share * total * (1 - 1e-9)
        assert sum(times[:-1]) < share * total
        assert times == sorted(times, reverse=True)
