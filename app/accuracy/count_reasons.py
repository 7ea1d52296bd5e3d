"""Why a figure of the benchmark counts fewer records than there are, a row for each. Pure functions of the figures."""

from __future__ import annotations

from app.accuracy.score import SHARE
from app.accuracy.table import Row
from app.objects.accuracy import AccuracyFigures

LABELS = "published label"
"""How the names of policies begin that follow a label."""

HEAD: Row = ("figure", "counts", "left out")


def rows(figures: AccuracyFigures) -> list[Row]:
    """Each figure that counts other records than the one above it, how many, and what became of the others."""
    records, advice = figures["records"], figures["advice"]
    counted = [s for s in figures["scores"] if s["column"] != SHARE]
    for_share = len(figures["scores"]) - len(counted)
    every = len(counted)
    said = [
        HEAD,
        _row(
            "The advice", every, records,
            (len(figures["alone"]), "fewer than two candidates could be timed"),
            (len(figures["unscored"]), "nothing that the advice names was measured"),
            (for_share, "left alone for its share of the step: a row of its own"),
        ),
        _row(
            "Its speed-ups", advice["all"]["predictions"], every,
            (sum(s["counted_tool"] == "eager" for s in counted), "eager is advised: nothing to predict"),
            (
                sum(s["predicted"] is None and s["counted_tool"] != "eager" for s in counted),
                "no speed-up over eager was predicted and measured",
            ),
        ),
    ]  # fmt: skip
    left = every - advice["leave-one-out"]["cases"]
    why = "refitted without it, what is advised was not measured, or it is left for its share of the step"
    said.append(_row("Leave-one-out", every - left, every, (left, why)))
    for name, policy in figures["policies"].items():
        cases = policy["all"]["cases"]
        why = "no published label" if name.startswith(LABELS) else "none of the policy's candidates was measured"
        said.append(_row(name[:1].upper() + name[1:], cases, every, (every - cases, why)))
    memory = figures["columns"]["memory"]["cases"]
    why = "peak bytes were not kept, nothing that the advice names was measured, or left for its share of the step"
    said.append(_row("The objective memory", memory, records, (records - memory, why)))
    return said


def _row(name: str, cases: int, of: int, *reasons: tuple[int, str]) -> Row:
    told = "; ".join(f"{number}: {why}" for number, why in reasons if number)
    return (name, f"{cases} of {of}", told or "none")
