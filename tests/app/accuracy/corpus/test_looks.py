"""The record of looks at the blind third: only ever added to, whole, and what docs show is what it holds."""

from __future__ import annotations

import json
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from app.accuracy import page
from app.accuracy.corpus import looks
from app.accuracy.corpus.programs import BLIND, load_programs
from app.accuracy.figures import load_committed
from app.objects.corpus import Look
from tests.app.accuracy.corpus.made import blind_figures, device, group, times
from tests.conftest import ROOT

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def record(tmp_path: Path, *dates: str) -> tuple[Path, list[Look]]:
    file = tmp_path / "looks.json"
    for date in dates:
        looks.append_look([blind_figures()], date, COMMIT, False, file)
    return file, looks.load_looks(file)


def test_the_committed_record_is_whole() -> None:
    held = looks.load_looks()
    assert looks.faults(held) == []
    assert all(f["programs"] <= len(load_programs(BLIND)) for look in held for f in look["figures"])


def test_no_look_that_was_ever_committed_is_gone_or_changed() -> None:
    """Every committed version of the record is the beginning of today's."""
    path = looks.LOOKS.relative_to(ROOT).as_posix()
    today = looks.load_looks()
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "log", "--format=%H", "--diff-filter=AM", "--", path], capture_output=True, text=True
    )
    for commit in listed.stdout.split():
        text = subprocess.run(["git", "-C", str(ROOT), "show", f"{commit}:{path}"], capture_output=True, text=True)
        before = json.loads(text.stdout)
        assert today[: len(before)] == before, commit


def test_the_page_in_docs_holds_exactly_what_the_records_hold() -> None:
    texts = page.files(load_committed(), looks.load_looks(), looks.load_development())
    assert (ROOT / "docs" / "accuracy.md").read_text() == texts["accuracy.md"]


def test_a_look_is_added_behind_those_that_are_there(tmp_path: Path) -> None:
    file, held = record(tmp_path, "2026-11-25")
    _, more = record(tmp_path, "2026-11-25", "2026-11-27")
    assert [look["date"] for look in more] == ["2026-11-25", "2026-11-25", "2026-11-27"]
    assert more[0] == held[0]
    assert [look["previous"] for look in more] == ["", looks.digest(more[0]), looks.digest(more[1])]
    assert looks.faults(looks.load_looks(file)) == []


def test_an_earlier_day_than_the_last_is_refused_and_nothing_written(tmp_path: Path) -> None:
    file, _ = record(tmp_path, "2026-11-25")
    before = file.read_bytes()
    with pytest.raises(ValueError, match="before the one that it follows"):
        record(tmp_path, "2026-11-24")
    assert file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["looks.json"]


@pytest.mark.parametrize("gone", [0, 1])
def test_a_look_that_is_taken_out_shows(tmp_path: Path, gone: int) -> None:
    _, held = record(tmp_path, "2026-11-25", "2026-11-26", "2026-11-27")
    assert looks.faults(held[:gone] + held[gone + 1 :])


def test_a_figure_that_is_changed_afterwards_shows(tmp_path: Path) -> None:
    _, held = record(tmp_path, "2026-11-25", "2026-11-26")
    changed: Any = deepcopy(held)
    changed[0]["figures"][0]["devices"][0]["all"]["right"] = 0.99
    assert looks.faults(changed) == ["look 2 does not follow the look that stands before it"]


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (blind_figures(device(all=group(right=1.2))), "right is no share"),
        (blind_figures(device(all=group(regret=0.9))), "regret is below 1"),
        (blind_figures(device(all=group(regret=1.5, worst=1.4))), "its mean above the worst"),
        (blind_figures(device(all={**group(), "eager": times(inside=-0.1)})), "eager inside is no share"),
        (blind_figures(device(left_out=[])), "does not tell of every program"),
        (blind_figures(device(families={"norm": group(3)})), "do not add up"),
        (blind_figures(device(programs=12, measured=13)), "more programs were measured than there are"),
        (blind_figures() | {"devices": []}, "has no figures"),
        (blind_figures() | {"third": "development"}, "is of the development third"),
    ],
)
def test_figures_that_cannot_be_are_not_recorded(tmp_path: Path, figures: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        looks.append_look([figures], "2026-11-25", COMMIT, False, tmp_path / "looks.json")
    assert not list(tmp_path.iterdir())


def test_a_look_names_its_commit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names no commit"):
        looks.append_look([blind_figures()], "2026-11-25", "main", True, tmp_path / "looks.json")


def test_without_a_file_nobody_looked(tmp_path: Path) -> None:
    assert looks.load_looks(tmp_path / "looks.json") == []
    assert looks.load_development(tmp_path / "development.json") is None
