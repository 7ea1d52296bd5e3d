"""What /accuracy shows of the corpus: the newest look at the blind third at a glance, all looks, the development third.

Pure functions of the committed figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from app.accuracy.corpus import document
from app.accuracy.corpus.targets import MAX_AUTOTUNE
from app.accuracy.table import number, percent
from app.objects.accuracy import AccuracyFigures
from app.objects.corpus import AccuracyAnswer, Look, ThirdFigures


class Glance(TypedDict):
    """One device of the newest look: (name, value, what it is) in order."""

    device: str
    items: list[tuple[str, str, str]]


class CorpusPage(TypedDict):
    """What the template needs."""

    glances: list[Glance]
    blind_sections: list[document.Section]
    developed_sections: list[document.Section]


def corpus_page(looks: Sequence[Look], development: ThirdFigures | None) -> CorpusPage:
    """looks: the first one first."""
    return {
        "glances": _glances(looks[-1]) if looks else [],
        "blind_sections": document.blind(looks),
        "developed_sections": document.developed(development),
    }


def _glances(look: Look) -> list[Glance]:
    glances: list[Glance] = []
    for device in look["figures"][0]["devices"]:
        every, tuned = device["all"], device["policies"][MAX_AUTOTUNE]
        times = every["eager"]
        glances.append(
            {
                "device": device["device"],
                "items": [
                    ("Programs", str(every["cases"]), f"of {device['measured']} that were measured"),
                    ("Following the advice", number(every["regret_geomean"]), "over the best measured, geometric mean"),
                    ("Always max-autotune", number(tuned["regret_geomean"]), "on the same programs"),
                    ("Worst", number(every["regret_worst"]), "over the best measured"),
                    ("Right tool", percent(every["right"]), "as the decision rule picks from the measured figures"),
                    ("Within 20 %", percent(every["within"]), f"of {every['speedups']} speed-ups of what was advised"),
                    ("Eager's time", percent(times["within"]), f"of {times['predictions']} within 20 %"),
                ],
            }
        )
    return glances


def accuracy_answer(
    figures: AccuracyFigures, looks: Sequence[Look], development: ThirdFigures | None
) -> AccuracyAnswer:
    """What /accuracy.json answers; looks the newest first."""
    return {**figures, "blind": list(reversed(looks)), "development": development}
