"""What /accuracy shows of the corpus: the newest look, each device for itself, next to always max-autotune."""

from __future__ import annotations

from pathlib import Path

from app.accuracy.corpus import looks
from app.accuracy.figures import load_committed
from app.web.views.corpus_accuracy import accuracy_answer, corpus_page
from tests.app.accuracy.corpus.made import H100, H200, blind_figures, device, group


def test_the_newest_look_is_at_a_glance_and_the_answer_has_it_first(tmp_path: Path) -> None:
    file = tmp_path / "looks.json"
    for day, regret in (("2026-11-25", 1.09), ("2026-11-26", 1.03)):
        figures = blind_figures(device(all=group(regret=regret)), device(name=H100))
        looks.append_look([figures], day, "c" * 40, False, file)
    held = looks.load_looks(file)
    page = corpus_page(held, None)
    assert [g["device"] for g in page["glances"]] == [H200, H100]
    shown = {name: value for name, value, _ in page["glances"][0]["items"]}
    assert (shown["Following the advice"], shown["Always max-autotune"]) == ("1.030", "1.100")
    assert page["developed_sections"] == []
    answer = accuracy_answer(load_committed(), held, None)
    assert [look["date"] for look in answer["blind"]] == ["2026-11-26", "2026-11-25"]
    assert answer["scores"] == load_committed()["scores"] and answer["development"] is None


def test_before_a_look_there_is_nothing_at_a_glance() -> None:
    page = corpus_page([], looks.load_development())
    assert page["glances"] == [] and len(page["blind_sections"]) == 1 and page["developed_sections"]
