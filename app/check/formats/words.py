"""What the formats say alike, in the report's figures."""

from __future__ import annotations

from collections.abc import Mapping

from app.objects.check import AssertionRow, CheckFinding, ContractFigures, ContractRow, Report, Subject
from app.objects.common import Range
from app.objects.trace import Action
from app.trace_report.actions.listed import place, saving_words, with_alternatives

TOOLS: Mapping[str, str] = {
    "skip": "leave it",
    "library": "call a library",
    "compile": "torch.compile",
    "triton": "write Triton",
    "cuda": "write CUDA",
}
OUTCOMES: Mapping[str, str] = {
    "passed": "passed",
    "failed": "failed",
    "warned": "warnings",
    "unmeasured": "could not be measured",
    "off": "off",
}
HEADINGS: Mapping[str, str] = {
    "passed": "Every error-level assertion holds",
    "failed": "An assertion does not hold",
    "unmeasured": "Could not be measured",
}


def share(value: float | None) -> str:
    """6.1 %"""
    return "" if value is None else f"{100 * value:.1f} %"


def speedup(value: Range | None) -> str:
    """1.79 × (1.35 to 2.18)"""
    return "" if not value else f"{value['mid']:.3g} × ({value['low']:.3g} to {value['high']:.3g})"


def milliseconds(time_us: float | None) -> str:
    """1.56 ms"""
    return "" if time_us is None else f"{time_us / 1e3:.4g} ms"


MOST_ACTIONS = 5
"""That a report shows of a step; the JSON report has all. A check that was kept by a version before them has none."""


def actions(subject: Subject) -> list[tuple[Action, str, str]]:
    """What to do about a trace's step, the first few in the API's order: (action, what it saves, where in the code)."""
    first = [action for action, _ in with_alternatives(subject.get("actions") or ())]
    return [(action, saving_words(action), place(action)) for action in first[:MOST_ACTIONS]]


CONTRACTS: Mapping[str, str] = {"kept": "kept", "broken": "broken", "unmeasured": "could not be measured"}
FIGURES: tuple[tuple[str, str], ...] = (
    ("kernels", "kernels"),
    ("bytes_over_minimum", "bytes over the least"),
    ("externs", "library calls"),
    ("graph_breaks", "graph breaks"),
    ("recompiles", "recompiles"),
)
"""What reports show of a contract: (key of the figures, heading)."""


def contracts(report: Report) -> list[ContractRow]:
    """Of a report; one that was kept by a version before them has none."""
    return report.get("contracts") or []


def contract_of(report: Report, finding: CheckFinding) -> ContractRow | None:
    """The contract that a finding is about; None for any other assertion's."""
    of_it = (row for row in contracts(report) if f"contract:{row['name']}" == finding["assertion"])
    return next((row for row in of_it if row["of"] == finding["region"]), None)


def contract_figures(row: ContractRow) -> list[str]:
    """A contract's figures in the order of FIGURES: "1 → 2" where they were others when they were accepted."""
    was = row["was"]
    return [_figure(key, row, was) for key, _ in FIGURES]


def _figure(key: str, row: ContractRow, was: ContractFigures | None) -> str:
    now = _plain(row, key)
    before = _plain(was, key) if was else ""
    return f"{before} → {now}" if before and now and before != now else now


def _plain(figures: ContractFigures, key: str) -> str:
    value = {**figures}[key]
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def contract_versions(row: ContractRow) -> str:
    """torch 2.13.0+cpu, Triton 3.7.1; what was accepted before it, where it was another."""
    now = f"torch {row['torch']}, Triton {row['triton']}"
    was = row["was"]
    if was is None or (was["torch"], was["triton"]) == (row["torch"], row["triton"]):
        return now
    return f"torch {was['torch']}, Triton {was['triton']} → {now}"


def options(assertion: AssertionRow) -> str:
    """min_share = 0.05, new_only = True"""
    return ", ".join(f"{key} = {value}" for key, value in assertion["options"].items())
