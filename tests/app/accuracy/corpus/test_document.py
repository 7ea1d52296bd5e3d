"""Sections of the thirds: the newest look first, targets against it, and nothing claimed where nobody looked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.accuracy.corpus import document, looks, tables, targets
from app.accuracy.figures import load_committed
from app.accuracy.page import page
from app.objects.corpus import Look, ThirdFigures
from tests.app.accuracy.corpus.made import H100, blind_figures, device, group, times

COMMITS = ("a" * 40, "b" * 40)


@pytest.fixture
def two(tmp_path: Path) -> list[Look]:
    first = blind_figures(device(all=group(regret=1.07)), device(name=H100))
    second = blind_figures(device(all=group(regret=1.03)), device(name=H100))
    for figures, day, commit in ((first, "2026-11-25", COMMITS[0]), (second, "2026-11-26", COMMITS[1])):
        looks.append_look([figures], day, commit, commit == COMMITS[0], tmp_path / "looks.json")
    return looks.load_looks(tmp_path / "looks.json")


def test_the_newest_look_stands_first_and_none_lacks(two: list[Look]) -> None:
    rows = tables.looks(two, tables.OF_ADVICE)[1:]
    assert [(r[0], r[1], r[4]) for r in rows] == [
        ("2026-11-26, bbbbbbbbbb", "NVIDIA H200", "1.030"), ("2026-11-26, bbbbbbbbbb", H100, "1.020"),
        ("2026-11-25, aaaaaaaaaa with changes", "NVIDIA H200", "1.070"),
        ("2026-11-25, aaaaaaaaaa with changes", H100, "1.020"),
    ]  # fmt: skip
    titles = [s.title for s in document.blind(two)]
    assert [t[:18] for t in titles[1:]] == ["Look of 2026-11-26"] * 2 + ["Look of 2026-11-25"] * 2


def test_blind_figures_lead_and_the_archive_is_called_in_sample(two: list[Look]) -> None:
    development: ThirdFigures = {"date": "2026-11-25", "commit": COMMITS[0], "changed": False, "figures": []}
    development["figures"] = [blind_figures() | {"third": "development"}]  # type: ignore[list-item]
    text = page(load_committed(), two, development)
    titles = ("The blind third", "The development third", "Other people's measurements", "In-sample: the Archive")
    order = [text.index(f"\n## {t}\n") for t in titles]
    assert order == sorted(order)
    assert text.count("\n## ") == len(titles)
    assert document.NO_LOOK not in text


def test_before_any_look_the_page_says_so_and_has_no_blind_figure() -> None:
    text = page(load_committed(), [], None)
    blind = text[text.index("## The blind third") : text.index("## Other people's measurements")]
    assert document.NO_LOOK in blind and document.COMMAND in blind
    assert "|" not in blind and "1.0" not in blind
    assert "The development third" not in text


@pytest.mark.parametrize(
    ("change", "name", "met"),
    [
        ({"all": group(regret=1.04)}, "regret, geometric mean", "yes"),
        ({"all": group(regret=1.05)}, "regret, geometric mean", "no"),
        ({"all": group(regret=1.11)}, "regret over that of always max-autotune", "no"),
        ({"all": group(worst=1.61)}, "regret, worst", "no"),
        ({"all": group(right=0.89)}, "right", "no"),
        ({"all": {**group(), "within": 0.74}}, "speed-up within 20 %", "no"),
        ({"all": {**group(), "eager": times(within=0.79)}}, "eager's time within 20 %", "no"),
        ({"all": {**group(), "eager": times(inside=0.86)}}, "eager's time inside its 80 % interval", "no"),
        ({"all": {**group(), "compiled": times(inside=0.74)}}, "torch.compile's time inside its 80 % interval", "no"),
        ({"families": {"scan": group(right=0.75)}}, "right, of the family or mode with the least", "no"),
        ({"all": {**group(), "within": None}}, "speed-up within 20 %", "no figure"),
    ],
)
def test_a_target_is_met_or_missed_by_the_figure_it_names(change: dict[str, Any], name: str, met: str) -> None:
    usual = {row[0]: row for row in targets.rows([device()])}
    assert {row[3] for row in list(usual.values())[1:]} == {"yes"}
    changed = {row[0]: row for row in targets.rows([device(**change)])}
    assert changed[name][3] == met


def test_a_table_has_a_column_for_each_device() -> None:
    rows = targets.rows([device(), device(name=H100)])
    assert {len(row) for row in rows} == {6} and rows[0][2::2] == ["NVIDIA H200", H100]


def test_sentences_say_whose_atlas_and_what_the_oracle_did_not_answer() -> None:
    figures = device(atlas="NVIDIA H200", own=False, unanswered=2, name=H100)
    said = " ".join(document.sentences(blind_figures(figures), figures))
    assert "10 of the third's 12 programs were measured" in said
    assert "atlas of the NVIDIA H200, scaled" in said and "no answer for 2" in said and "3 of 10 are decided" in said
    own = device()
    assert "scaled" not in " ".join(document.sentences(blind_figures(own), own))
