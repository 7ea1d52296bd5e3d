"""Tables of a third's figures as rows of text, for the shell, docs/accuracy.md and the page. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.accuracy.corpus.outcome import FIGURES
from app.accuracy.table import NONE, Row, call, number, percent
from app.objects.corpus import (
    CorpusFigures,
    CorpusRun,
    DeviceFigures,
    GroupFigures,
    Look,
    PredictedTime,
    ProgramFigures,
    TimeFigures,
)

ADVICE = "Tritonworthy's advice"
COMMIT_DIGITS = 10
"""Of a commit that is shown: git finds it by them."""

ADVISED: Row = ("counted", "regret, geomean", "worst", "right", "speed-up within 20 %")
TIMES: Row = tuple(f"{of} {what}" for of in ("eager", "torch.compile") for what in ("within 20 %", "inside", "off by"))
"""Of device times. inside: their 80 % intervals; off by: the geometric mean of the larger over the smaller."""


def _share(share: float | None, count: int) -> str:
    return NONE if share is None else f"{percent(share)} of {count}"


def _advised(group: GroupFigures) -> Row:
    return (
        str(group["cases"]), number(group["regret_geomean"]), number(group["regret_worst"]), percent(group["right"]),
        _share(group["within"], group["speedups"]),
    )  # fmt: skip


def _times(group: GroupFigures) -> Row:
    return (*_time(group["eager"]), *_time(group["compiled"]))


def _time(figures: TimeFigures) -> Row:
    within = _share(figures["within"], figures["predictions"])
    return (within, percent(figures["inside"]), number(figures["error_geomean"], 2))


Columns = tuple[Row, Callable[[GroupFigures], Row]]
"""A head, and a group's figures below it."""
OF_ADVICE: Columns = (ADVISED, _advised)
OF_TIMES: Columns = (TIMES, _times)


def overview(figures: Sequence[CorpusFigures], columns: Columns) -> list[Row]:
    """A row for each way of predicting and device."""
    head, of_group = columns
    rows = [
        (device["device"], of["prediction"], *of_group(device["all"])) for of in figures for device in of["devices"]
    ]
    return [("device", "predicted by", *head), *rows]


def looks(record: Sequence[Look], columns: Columns) -> list[Row]:
    """Every look, the newest first."""
    rows = [(name(look), *row) for look in reversed(record) for row in overview(look["figures"], columns)[1:]]
    return [("look", "device", "predicted by", *columns[0]), *rows]


def name(look: Look) -> str:
    """Its day, the commit that predicted, and whether files differed from that."""
    return f"{look['date']}, {look['commit'][:COMMIT_DIGITS]}" + (" with changes" if look["changed"] else "")


def groups(device: DeviceFigures, columns: Columns) -> list[Row]:
    """All programs of a device, then by family and by mode."""
    head, of_group = columns
    parts = {"all": device["all"], **device["families"], **device["modes"]}
    return [("", *head), *((name, *of_group(group)) for name, group in parts.items())]


def policies(device: DeviceFigures) -> list[Row]:
    """The advice among the policies, on the same programs."""
    compared = {ADVICE: device["all"], **device["policies"]}
    rows = [
        (name, str(p["cases"]), number(p["regret_geomean"]), number(p["regret_worst"]), percent(p["right"]))
        for name, p in compared.items()
    ]
    return [("", "programs", "regret, geomean", "worst", "right"), *rows]


def left_out(device: DeviceFigures) -> list[Row]:
    """Why programs are left out, and of which figure how many."""
    counts = {(row["reason"], row["figure"]): row["programs"] for row in device["left_out"]}
    reasons = dict.fromkeys(row["reason"] for row in device["left_out"])
    rows = [(reason, *(str(counts.get((reason, figure), 0)) for figure in FIGURES)) for reason in reasons]
    return [("left out, because", *FIGURES), *rows]


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
