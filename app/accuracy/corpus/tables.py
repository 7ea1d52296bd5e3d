"""Tables of a third's figures as rows of text, for the shell, docs/accuracy.md and the page. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from app.accuracy.table import NONE, Row, call, number, percent
from app.objects.corpus import (
    CorpusFigures,
    CorpusRun,
    DeviceFigures,
    GroupFigures,
    LeftOut,
    Look,
    PredictedTime,
    ProgramFigures,
    TimeFigures,
)

ADVICE = "Tritonworthy's advice"
COMMIT_DIGITS = 10
"""Of a commit that is shown: git finds it by them."""

FIGURES: Row = (
    "counted", "regret, geomean", "worst", "right", "speed-up within 20 %", "eager's time within 20 %",
    "torch.compile's within 20 %", "eager inside 80 % interval", "torch.compile inside",
)  # fmt: skip


def _share(share: float | None, count: int) -> str:
    return NONE if share is None else f"{percent(share)} of {count}"


def _time(figures: TimeFigures) -> str:
    return _share(figures["within"], figures["predictions"])


def _group(group: GroupFigures) -> Row:
    eager, compiled = group["eager"], group["compiled"]
    return (
        str(group["cases"]), number(group["regret_geomean"]), number(group["regret_worst"]), percent(group["right"]),
        _share(group["within"], group["speedups"]), _time(eager), _time(compiled), percent(eager["inside"]),
        percent(compiled["inside"]),
    )  # fmt: skip


def overview(figures: Sequence[CorpusFigures]) -> list[Row]:
    """A row for each way of predicting and device."""
    rows = [(device["device"], of["prediction"], *_group(device["all"])) for of in figures for device in of["devices"]]
    return [("device", "predicted by", *FIGURES), *rows]


def looks(record: Sequence[Look]) -> list[Row]:
    """Every look, the newest first."""
    rows = [(name(look), *row) for look in reversed(record) for row in overview(look["figures"])[1:]]
    return [("look", "device", "predicted by", *FIGURES), *rows]


def name(look: Look) -> str:
    """Its day, the commit that predicted, and whether files differed from that."""
    return f"{look['date']}, {look['commit'][:COMMIT_DIGITS]}" + (" with changes" if look["changed"] else "")


def groups(device: DeviceFigures) -> list[Row]:
    """All programs of a device, then by family and by mode."""
    parts = {"all": device["all"], **device["families"], **device["modes"]}
    return [("", *FIGURES), *((name, *_group(group)) for name, group in parts.items())]


def policies(device: DeviceFigures) -> list[Row]:
    """The advice among the policies, on the same programs."""
    compared = {ADVICE: device["all"], **device["policies"]}
    rows = [
        (name, str(p["cases"]), number(p["regret_geomean"]), number(p["regret_worst"]), percent(p["right"]))
        for name, p in compared.items()
    ]
    return [("", "programs", "regret, geomean", "worst", "right"), *rows]


def left_out(device: DeviceFigures) -> list[Row]:
    """Why a figure does not count a program, with how many."""
    rows: list[LeftOut] = device["left_out"]
    return [
        ("figure", "left out, because", "programs"),
        *((r["figure"], r["reason"], str(r["programs"])) for r in rows),
    ]


def programs(run: CorpusRun) -> list[Row]:
    """A row for each program that was measured, the worst regret first."""
    head = ("program", "family", "mode", "advised", "counted", "best measured", "the rule picks", "regret", "right",
            "by", "eager, predicted over measured", "torch.compile")  # fmt: skip
    rows: list[Row] = []
    for outcome in sorted(run["outcomes"], key=_worst_first):
        times = (_ratio(outcome["eager"]), _ratio(outcome["compiled"]))
        named = (outcome["program"], outcome["family"], outcome["mode"])
        s = outcome["score"]
        if s is None:
            rows.append((*named, *7 * (NONE,), *times))
            continue
        right = "yes" if s["right"] else "tie" if s["outcome"] == "tie" else "no"
        counted = "as advised" if s["counted"] == s["advised"] else call(s["counted"])
        choice = (call(s["advised"]), counted, call(s["best"]), call(s["winner"]))
        rows.append((*named, *choice, number(s["regret"]), right, s["by"], *times))
    return [head, *rows]


def _worst_first(outcome: ProgramFigures) -> tuple[float, str]:
    score = outcome["score"]
    return (0.0 if score is None else -score["regret"], outcome["program"])


def _ratio(time: PredictedTime | None) -> str:
    return NONE if time is None else number(time["mid"] / time["measured"], 2)
