"""What the pages of the history of checks show: its series in words, what changed and why. Pure functions."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict
from urllib.parse import urlencode

from markupsafe import Markup

from app.objects.history import (
    HistoryCause,
    HistoryChange,
    HistoryDetail,
    HistoryEnvironment,
    HistoryPoint,
    HistoryRun,
    HistorySummary,
)
from app.storage.check_history import Narrowed
from app.units import MISSING, amount, count, digits, duration, factor, plain
from app.web.charts.figure import Chart
from app.web.charts.history import Axis, Boundary, series_chart
from app.web.charts.sparkline import sparkline
from app.web.labels import format_time
from app.web.server.csv_response import Cell

CHART_RUNS = 200
"""The newest runs that the chart shows."""

TABLE_RUNS = 50
"""The newest runs that the table has; the CSV and the API have all."""

COMMIT_CHARS, GLANCE_CHARS = 10, 8
"""Of a commit, in a sentence and at a glance, where it is large."""

TIME_UNITS = ("µs", "us")

CAUSES: Mapping[HistoryCause, tuple[str, str]] = {
    "regression": ("the commit", "bad"),
    "improvement": ("the commit", "good"),
    "hardware": ("another device", ""),
    "software": ("other software", ""),
    "method": ("another way to measure", ""),
    "noise": ("noise", ""),
}
"""Cause -> what changed it, and the class of its colour."""

CSV_HEADER = (
    "run", "at", "commit", "dirty", "device", "software", "method", "value", "unit", "samples", "spread", "segment",
    "outlier", "level", "low", "high", "change", "cause", "check",
)  # fmt: skip


class SeriesRow(TypedDict):
    """A series in the list. verdict: its last change in words; came_with: the commit or environment it came with."""

    id: str
    subject: str
    metric: str
    check: str
    branch: str
    device: str
    trend: Markup
    newest: str
    verdict: str
    came_with: str
    level: str
    runs: int
    when: str


class ChangeRow(TypedDict):
    """A change in the table. amount: "+5.1 %"; interval: of it; cause: what changed it; commits: which may have."""

    when: str
    amount: str
    interval: str
    cause: str
    level: str
    before: str
    after: str
    commits: list[str]
    because: str
    command: str
    confidence: str


class RunRow(TypedDict):
    """A run in the table. expected: the band of noise; marks: what is special about it; check: its page's address."""

    when: str
    commit: str
    value: str
    expected: str
    device: str
    software: str
    marks: str
    check: str


class SeriesPage(TypedDict):
    """Context of check_history/series.html. headline, answer: whether it got slower, when, since what and why.

    earlier: a regression before the newest change.
    """

    series: HistoryDetail
    headline: str
    answer: str
    level: str
    glances: list[tuple[str, str, str]]
    chart: Chart | None
    boundaries: list[Boundary]
    changes: list[ChangeRow]
    rows: list[RunRow]
    left_out: int
    earlier: str
    command: str
    device: str


def quantity(value: float, unit: str) -> str:
    """A value in its unit, as people read it."""
    if unit in TIME_UNITS:
        return duration(value)
    if unit == "bytes":
        return amount(value)
    if unit == "bytes/byte":
        return factor(value)
    shown = plain(value) if float(value).is_integer() else digits(value, 4)
    return f"{shown} {unit}".rstrip()


def series_rows(items: Iterable[HistorySummary]) -> list[SeriesRow]:
    """Rows of the list: what a commit made worse comes first."""
    return sorted((_series_row(item) for item in items), key=lambda row: row["level"] != "bad")


def _series_row(item: HistorySummary) -> SeriesRow:
    change, key, unit = item["change"], item["key"], item["unit"]
    newest, oldest = quantity(item["recent"][-1], unit), quantity(item["recent"][0], unit)
    label = f"{count(len(item['recent']), 'run')}, from {oldest} to {newest}"
    return {
        "id": item["id"],
        "subject": key["subject"],
        "metric": key["metric"],
        "check": key["check"],
        "branch": key["branch"],
        "device": item["newest"]["environment"]["device"] or MISSING,
        "trend": sparkline(item["recent"], label),
        "newest": newest,
        "verdict": _amount_in_words(change, unit) if change else "No change",
        "came_with": f"{_came_with(change)}, {change['after']['at'][:10]}" if change else "",
        "level": CAUSES[change["cause"]][1] if change else "",
        "runs": item["runs"],
        "when": format_time(item["newest"]["at"]),
    }


def write_query(wanted: Narrowed, after: str = "") -> str:
    """The address's query, only with what is chosen; "" for everything."""
    fields = {"check": wanted.check, "branch": wanted.branch, "device": wanted.device, "after": after}
    query = urlencode({name: value for name, value in fields.items() if value})
    return f"?{query}" if query else ""


def series_page(series: HistoryDetail, device: str = "") -> SeriesPage:
    """The page of one series. device: that its runs are narrowed to, "" for all."""
    unit, changes = series["unit"], [c for c in series["changes"] if c["cause"] != "noise"]
    points = series["points"][-CHART_RUNS:]
    boundaries = environment_changes(points)
    newest = changes[-1] if changes else None
    headline, answer = _headline(series, newest)
    return {
        "series": series,
        "headline": headline,
        "answer": answer,
        "level": CAUSES[newest["cause"]][1] if newest else "",
        "glances": _glances(series, newest),
        "chart": series_chart(
            points, changes, boundaries, [_point_label(p, unit) for p in points], _axis(points, series)
        ),
        "boundaries": boundaries,
        "changes": [_change_row(change) for change in reversed(series["changes"])],
        "rows": [_run_row(point, series) for point in reversed(series["points"][-TABLE_RUNS:])],
        "left_out": max(0, series["runs"] - TABLE_RUNS),
        "earlier": _earlier_regression(changes, unit),
        "command": newest["how_to_separate"] if newest else "",
        "device": device,
    }


def environment_changes(points: Sequence[HistoryPoint]) -> list[Boundary]:
    """Where each new environment begins, with what is other than before."""
    boundaries: list[Boundary] = []
    for place, (before, after) in enumerate(itertools.pairwise(points), 1):
        if before["segment"] != after["segment"]:
            words = describe_environment_change(before["run"]["environment"], after["run"]["environment"])
            boundaries.append(Boundary(place, after["run"]["at"], letter(len(boundaries)), words))
    return boundaries


def letter(number: int) -> str:
    """A to Z, then AA, AB, ..."""
    rest, at = divmod(number, len(string.ascii_uppercase))
    return (letter(rest - 1) if rest else "") + string.ascii_uppercase[at]


def describe_environment_change(before: HistoryEnvironment, after: HistoryEnvironment) -> str:
    """What is other, as "torch 2.13.0 to 2.14.0; H100 to H200"."""
    parts = []
    if before["device"] != after["device"]:
        parts.append(f"{before['device'] or 'no device'} to {after['device'] or 'no device'}")
    names = sorted({*before["software"], *after["software"]})
    for name in names:
        old, new = before["software"].get(name), after["software"].get(name)
        if old != new:
            parts.append(f"{name} {old or 'unknown'} to {new or 'unknown'}")
    if before["method"] != after["method"]:
        parts.append(f"method {before['method'] or 'unknown'} to {after['method'] or 'unknown'}")
    return "; ".join(parts) or "the environment of an earlier run"


def short_commit(run: HistoryRun) -> str:
    """The first characters of a commit; a working tree with other changes has a plus."""
    commit = run["commit"] or "no commit"
    return (commit[:COMMIT_CHARS] if run["commit"] else commit) + ("+" if run["dirty"] else "")


def _percent(ratio: float) -> str:
    change = (ratio - 1) * 100
    return f"{'+' if change > 0 else '−' if change < 0 else ''}{abs(change):.1f} %"


def _confidence(change: HistoryChange) -> str:
    return "over 99.99 %" if change["confidence"] > 0.9999 else f"{change['confidence'] * 100:.4g} %"


def _direction(change: HistoryChange, unit: str) -> str:
    more = change["ratio"]["mid"] > 1
    if unit in TIME_UNITS:
        return "slower" if more else "faster"
    return "more" if more else "less"


def _amount_in_words(change: HistoryChange, unit: str) -> str:
    return f"{abs(change['ratio']['mid'] - 1) * 100:.1f} % {_direction(change, unit)}"


def _came_with(change: HistoryChange) -> str:
    """What a change came with."""
    if change["cause"] in ("regression", "improvement"):
        return f"since {short_commit(change['after'])}"
    return f"with {CAUSES[change['cause']][0]}"


def _headline(series: HistoryDetail, newest: HistoryChange | None) -> tuple[str, str]:
    if not series["points"]:
        return "No run on this device", ""
    if newest is None:
        runs = count(len(series["points"]), "run")
        if not any(point["level"] is not None for point in series["points"]):
            return f"Too few runs to tell: {runs}", "With a few more the noise between runs is known."
        if series["points"][-1]["level"] is None:
            last = series["points"][-1]["segment"]
            here = count(sum(point["segment"] == last for point in series["points"]), "run")
            return f"Too few runs in this environment to tell: {here}", "Before it was new nothing had changed."
        return f"No change in {runs}", "Every run is within the noise between runs, or stands alone."
    words = _amount_in_words(newest, series["unit"])
    when = newest["after"]["at"][:10]
    if newest["cause"] in ("regression", "improvement"):
        return f"{words.capitalize()} since {short_commit(newest['after'])}, {when}", newest["because"]
    blame = "perhaps also the commit" if newest["how_to_separate"] else "not the commit"
    cause = CAUSES[newest["cause"]][0]
    return f"{words.capitalize()} with {cause} since {when}, {blame}", newest["because"]


def _earlier_regression(changes: Sequence[HistoryChange], unit: str) -> str:
    """The last regression, where something else has changed since: it may still be there; "" without one."""
    last = next((change for change in reversed(changes) if change["cause"] == "regression"), None)
    if last is None or last is changes[-1]:
        return ""
    return f"Before that: {_amount_in_words(last, unit)} {_came_with(last)}, {last['after']['at'][:10]}"


def _glances(series: HistoryDetail, newest: HistoryChange | None) -> list[tuple[str, str, str]]:
    if not series["points"]:
        return []
    last, unit = series["points"][-1], series["unit"]
    expected = f"expected {_expected(last, unit)}" if last["level"] is not None else ""
    glances = [("Newest run", quantity(last["value"], unit), expected)]
    if newest:
        ratio = newest["ratio"]
        ids = [point["run"]["id"] for point in series["points"]]
        after = len(ids) - ids.index(newest["after"]["id"])
        commits = newest["commits_between"]
        one_of = f"one of {len(commits)}" if len(commits) > 1 else ""
        glances += [
            ("Last change", _percent(ratio["mid"]), f"{_percent(ratio['low'])} to {_percent(ratio['high'])}"),
            ("When", newest["after"]["at"][:10], f"{count(after, 'run')} since"),
            ("Since commit", newest["after"]["commit"][:GLANCE_CHARS] or MISSING, one_of),
            ("Cause", CAUSES[newest["cause"]][0], f"confidence {_confidence(newest)}"),
        ]
    device = last["run"]["environment"]["device"] or MISSING
    return [*glances, ("Runs", plain(series["runs"]), f"the newest on {device}")]


def _expected(point: HistoryPoint, unit: str) -> str:
    if point["low"] is None or point["high"] is None:
        return MISSING
    return f"{quantity(point['low'], unit)} to {quantity(point['high'], unit)}"


def _point_label(point: HistoryPoint, unit: str) -> str:
    run = point["run"]
    device = run["environment"]["device"]
    return f"{quantity(point['value'], unit)}, commit {short_commit(run)}, {format_time(run['at'])}, {device}"


def _axis(points: Sequence[HistoryPoint], series: HistoryDetail) -> Axis:
    unit = series["unit"]
    if unit not in TIME_UNITS:
        return Axis(f"{series['key']['metric']}{f', {unit}' if unit else ''}", 1.0)
    most = max((point["value"] for point in points), default=1.0)
    name, scale = next(
        ((name, scale) for name, scale in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)) if most >= scale), ("ns", 1e-3)
    )
    return Axis(f"{series['key']['metric']}, {name}", scale)


def _change_row(change: HistoryChange) -> ChangeRow:
    ratio = change["ratio"]
    cause, level = CAUSES[change["cause"]]
    also = [CAUSES[one][0] for one in change["also"]] + (["perhaps the commit"] if change["how_to_separate"] else [])
    return {
        "when": change["after"]["at"][:10],
        "amount": _percent(ratio["mid"]),
        "interval": f"{_percent(ratio['low'])} to {_percent(ratio['high'])}",
        "cause": " and ".join(dict.fromkeys([cause, *also])),
        "level": level,
        "before": short_commit(change["before"]),
        "after": short_commit(change["after"]),
        "commits": [commit[:COMMIT_CHARS] for commit in change["commits_between"]],
        "because": change["because"],
        "command": change["how_to_separate"],
        "confidence": _confidence(change),
    }


def _run_row(point: HistoryPoint, series: HistoryDetail) -> RunRow:
    run, unit = point["run"], series["unit"]
    changed = next((c for c in series["changes"] if c["after"]["id"] == run["id"] and c["cause"] != "noise"), None)
    marks = [f"{_percent(changed['ratio']['mid'])}, {CAUSES[changed['cause']][0]}"] if changed else []
    check = series["checks"].get(run["id"])
    return {
        "when": format_time(run["at"]),
        "commit": short_commit(run),
        "value": quantity(point["value"], unit),
        "expected": _expected(point, unit),
        "device": run["environment"]["device"] or MISSING,
        "software": ", ".join(f"{name} {version}" for name, version in sorted(run["environment"]["software"].items())),
        "marks": "; ".join([*marks, *(["stands alone"] if point["outlier"] else [])]),
        "check": f"/checks/{check}" if check else "",
    }


def csv_rows(series: HistoryDetail) -> Iterable[tuple[Cell, ...]]:
    """Every run as CSV_HEADER has it."""
    changes = {c["after"]["id"]: c for c in series["changes"]}
    for point in series["points"]:
        run = point["run"]
        environment, change = run["environment"], changes.get(run["id"])
        software = " ".join(f"{name}={version}" for name, version in sorted(environment["software"].items()))
        yield (
            *(run["id"], run["at"], run["commit"], run["dirty"], environment["device"], software),
            *(environment["method"], point["value"], series["unit"], point["samples"], point["spread"]),
            *(point["segment"], point["outlier"], point["level"], point["low"], point["high"]),
            change["ratio"]["mid"] if change else None,
            change["cause"] if change else None,
            series["checks"].get(run["id"]),
        )
