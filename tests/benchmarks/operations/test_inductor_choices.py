"""What the page on the oracle says of Inductor's choices is what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.operations.inductor_choices import FIRST, chosen_programs, table

ROOT = Path(__file__).resolve().parents[3]
RECORD: dict[str, Any] = json.loads((ROOT / "tests" / "records" / "inductor-choices-h200.json").read_text())


def test_the_page_has_the_recorded_table() -> None:
    page = (ROOT / "docs" / "oracle.md").read_text()
    assert "\n".join(table(RECORD)) in page
    assert f"Of {len(RECORD['programs'])} programs" in page
    assert RECORD["torch"] in page


def test_the_host_timed_what_it_chose_between() -> None:
    """The page's claim: configurations were timed at the host's pace, far above what the program then took."""
    answer = next(a for a in RECORD["programs"] if a["program"] == FIRST[0])
    with_it = [r for r in answer["runs"] if r["inplace_buffers"] and r["mode"] == "default"]
    without = [r for r in answer["runs"] if not r["inplace_buffers"] and r["mode"] == "default"]
    assert all(min(c["timed_us"].values()) > 1.4 * r["cold_us"] for r in with_it for c in r["choices"])
    assert all(c["written_over"] == 0 for r in without for c in r["choices"])
    assert all(abs(min(c["timed_us"].values()) / r["cold_us"] - 1) < 0.1 for r in without for c in r["choices"])
    assert max(r["cold_us"] for r in without) < 0.5 * min(r["cold_us"] for r in with_it)


def test_no_program_of_the_blind_third_is_among_them() -> None:
    programs = chosen_programs()
    assert {p.third for p in programs} == {"fit", "development"}
    assert {p.name for p in programs[:2]} == set(FIRST)
    assert {a["program"] for a in RECORD["programs"]} <= {p.name for p in programs}
