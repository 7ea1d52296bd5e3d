"""What was measured of the corpus: programs of it, in the form that the accuracy reads, and the same bytes again."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.accuracy.case import case_of, cases
from app.accuracy.corpus.measured import FILE, load_measured, read_measured, trim_record, write_measured
from app.accuracy.corpus.programs import BLIND, DEVELOPMENT, load_corpus
from app.archive import record_store


def test_each_is_a_validation_of_a_program_of_the_corpus() -> None:
    texts = {p.name: p.text for p in load_corpus().programs}
    records = read_measured()
    assert len(records) >= 25
    assert [r["name"] for r in records if texts[r["name"]] != r["region"]] == []
    assert {r["device"] for r in records} <= {"NVIDIA H200", "NVIDIA H100 80GB HBM3"}
    assert all({"torch", "triton"} <= set(r["software"]) and r["date"] for r in records)


def test_a_third_has_its_own_programs_alone() -> None:
    thirds = {p.name: p.third for p in load_corpus().programs}
    records = load_measured(DEVELOPMENT)
    assert records
    assert {thirds[r["name"]] for r in records} == {DEVELOPMENT}
    assert len(records) + sum(len(load_measured(t)) for t in ("fit", BLIND)) == len(read_measured())
    with pytest.raises(ValueError, match="thirds of the corpus are"):
        load_measured("test")


def test_a_trimmed_record_is_the_same_question_with_the_same_answer() -> None:
    """Every record of the Archive, trimmed: contenders, winner and what decides are those of the whole record."""
    for record in record_store.records(record_store.FOLDER):
        whole, trimmed = case_of(record), case_of(trim_record(record, "p"))
        assert (whole is None) == (trimmed is None)
        if whole is None or trimmed is None:
            continue
        assert trimmed.by == whole.by
        assert [c.name for c in trimmed.contenders] == [c.name for c in whole.contenders]
        for one, other in zip(trimmed.contenders, whole.contenders, strict=True):
            assert one.time_us == pytest.approx(other.time_us, rel=1e-4)


def test_the_same_records_are_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    records = read_measured()
    write_measured(tmp_path / "a", records)
    write_measured(tmp_path / "b", [*reversed(records), records[0]])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == FILE.read_bytes()


def test_most_have_two_candidates_or_more_to_choose_between() -> None:
    records = read_measured()
    assert len(cases(records)) > 0.9 * len(records)
