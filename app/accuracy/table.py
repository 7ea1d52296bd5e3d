"""The benchmark's tables as rows of text, for the shell, docs/accuracy.md and the page. Pure functions of figures."""

from __future__ import annotations

from collections.abc import Sequence

from app.accuracy.score import COLUMNS, NEXT, SHARE
from app.accuracy.totals import within
from app.objects.accuracy import AccuracyFigures, AdviceTotals, FitFigures, ScoreFigures, TotalsFigures

Row = Sequence[str]

NONE = "–"
GROUPS = {
    "all": "all regions",
    "fit": "half that may be tuned on",
    "test": "half kept for the test",
    "leave-one-out": "leave-one-out",
}
HEAD: Row = ("", "regions", "regret, geomean", "worst", "right", "speed-up within 20 %")


def number(value: float | None, places: int = 3) -> str:
    """A ratio."""
    return NONE if value is None else f"{value:.{places}f}"


def percent(value: float | None) -> str:
    """A share."""
    return NONE if value is None else f"{100 * value:.1f} %"


def _regrets(name: str, totals: TotalsFigures) -> Row:
    return (name, str(totals["cases"]), number(totals["regret_geomean"]), number(totals["regret_worst"]),
            percent(totals["right"]))  # fmt: skip


def _totals(name: str, totals: AdviceTotals) -> Row:
    predictions = totals["predictions"]
    inside = f"{percent(totals['within'])} of {predictions}" if predictions else NONE
    return (*_regrets(name, totals), inside)


def advice(figures: AccuracyFigures) -> list[Row]:
    """The advice on all regions, on both halves and left out one by one; then the columns of their own."""
    rows = [_totals(GROUPS[name], totals) for name, totals in figures["advice"].items()]
    for name, words in {
        NEXT: COLUMNS[NEXT],
        SHARE: COLUMNS[SHARE],
        "memory": "the same records with the objective memory, by peak bytes",
    }.items():
        rows.append(_totals(f"of them: {words}" if name == NEXT else f"apart: {words}", figures["columns"][name]))
    return [HEAD, *rows]


def policies(figures: AccuracyFigures) -> list[Row]:
    """The advice among the policies, on the same regions; those with a label on as many as have one."""
    head = (*HEAD[:5], "test half, geomean", "worst", "right")
    advice = figures["advice"]
    compared: list[tuple[str, TotalsFigures, TotalsFigures]] = [
        ("Tritonworthy's advice", advice["all"], advice["test"]),
        *((name, policy["all"], policy["test"]) for name, policy in figures["policies"].items()),
    ]
    rows = [
        (*_regrets(name, every), number(test["regret_geomean"]), number(test["regret_worst"]), percent(test["right"]))
        for name, every, test in compared
    ]
    labelled = _regrets("Tritonworthy's advice, where there is a label", figures["advice_where_labelled"])
    return [head, *rows, (*labelled, NONE, NONE, NONE)]


def call(candidate: str) -> str:
    """A candidate's name, shortened."""
    return candidate.replace("torch.nn.functional.", "F.").replace("torch.nn.attention.", "")


def regions(figures: AccuracyFigures) -> list[Row]:
    """A row for each record, the worst first."""
    head = ("region", "record", "half", "advised", "counted", "best measured", "the rule picks", "regret", "right",
            "predicted", "measured", "within 20 %")  # fmt: skip
    rows = []
    for s in sorted(figures["scores"], key=lambda s: (s["column"] == SHARE, -s["regret"], s["name"])):
        predicted, measured = s["predicted"], s["measured"]
        inside = NONE
        if predicted is not None and measured is not None:
            inside = "yes" if within(predicted, measured) else "no"
        right = "yes" if s["right"] else "tie" if s["outcome"] == "tie" else "no"
        counted = "" if s["counted"] == s["advised"] else call(s["counted"])
        if s["column"] == SHARE:
            counted = "left for its share"
        rows.append((s["name"], s["record"].rpartition("-")[2], s["half"], call(s["advised"]), counted or "as advised",
                     call(s["best"]), call(s["winner"]), number(s["regret"]), right,
                     number(predicted, 2), number(measured, 2), inside))  # fmt: skip
    return [head, *rows]


def claims(figures: AccuracyFigures) -> list[Row]:
    """What the sources say and what was measured."""
    rows = []
    for c in figures["claims"]:
        values = [f["value"] for f in c["figures"]]
        span = NONE if not values else f"{min(values):.3g} to {max(values):.3g}" if len(values) > 1 else "one figure"
        less = c["middle"] is not None and c["middle"] < c["low"]
        differs = "does not agree: less" if less else "does not agree: more"
        verdict = {True: "agrees", False: differs, None: "not measured"}[c["agrees"]]
        ours = NONE if c["middle"] is None else f"{c['middle']:.3g} {c['unit']}"
        rows.append((c["name"], c["source"], c["claim"], ours, span, str(len(values)), verdict))
    return [("claim", "source", "claimed", "measured here, median", "from, to", "figures", ""), *rows]


def left_over(fit: FitFigures) -> list[Row]:
    """What the fit of the rates leaves over, by family."""
    rows = []
    for name, left in fit["left_over"].items():
        rows.append((name, str(left["samples"]), percent(left["within"]), number(left["error_geomean"], 2),
                     f"{left['low']:.2f} to {left['high']:.2f}"))  # fmt: skip
    return [("family", "samples", "within 20 %", "error, geomean", "measured over predicted, 10 to 90 %"), *rows]


def wrong(figures: AccuracyFigures) -> list[ScoreFigures]:
    """Scores that were counted and not right, the worst regret first."""
    missed = [s for s in figures["scores"] if not s["right"] and s["column"] != SHARE]
    return sorted(missed, key=lambda s: -s["regret"])


def plain(rows: Sequence[Row]) -> str:
    """Columns of text."""
    widths = [max(len(r[n]) for r in rows) for n in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)


def markdown(rows: Sequence[Row]) -> str:
    """A table of Markdown."""
    head, *rest = rows
    lines = [head, ["-"] * len(head), *rest]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines)
