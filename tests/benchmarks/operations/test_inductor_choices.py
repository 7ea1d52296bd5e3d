"""What the page on the oracle says of Inductor's choices is what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.operations.inductor_choices import FIRST, chosen_programs, table

ROOT = Path(__file__).resolve().parents[3]
HOSTS: list[dict[str, Any]] = json.loads((ROOT / "tests" / "records" / "inductor-choices-h200.json").read_text())[
    "hosts"
]


def test_the_page_has_the_recorded_table() -> None:
    page = (ROOT / "docs" / "oracle.md").read_text()
    assert "\n".join(table(HOSTS)) in page
    first, second = (len(told["programs"]) for told in HOSTS)
    assert f"Of {first} and {second}" in page
    assert all(told["torch"] in page for told in HOSTS)


def test_the_host_timed_what_it_chose_between() -> None:
    """The page's claim: configurations were timed at the host's pace, far above what the program then took, unless no
    kernel writes over its input."""
    chosen = set()
    for told in HOSTS:
        answer = next(a for a in told["programs"] if a["program"] == FIRST[0])
        runs = [r for r in answer["runs"] if r["mode"] == "default"]
        with_it, without = ([r for r in runs if r["inplace_buffers"] == kept] for kept in (True, False))
        assert all(min(c["timed_us"].values()) > 1.4 * r["cold_us"] for r in with_it for c in r["choices"])
        assert all(c["written_over"] == 0 for r in without for c in r["choices"])
        assert all(abs(min(c["timed_us"].values()) / r["cold_us"] - 1) < 0.1 for r in without for c in r["choices"])
        assert max(r["cold_us"] for r in without) < 0.8 * min(r["cold_us"] for r in with_it)
        chosen |= {c["chosen"].split(",")[0] for r in with_it for c in r["choices"]}
    assert len(chosen) > 1


def test_no_program_of_the_blind_third_is_among_them() -> None:
    programs = chosen_programs()
    assert {p.third for p in programs} == {"fit", "development"}
    assert {p.name for p in programs[:2]} == set(FIRST)
    assert {a["program"] for told in HOSTS for a in told["programs"]} <= {p.name for p in programs}
