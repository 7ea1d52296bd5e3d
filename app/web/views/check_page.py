"""What the pages of checks show of the API's check: rows of tables, words, the form. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypedDict
from urllib.parse import urlencode

from app.check.formats import FORMATS
from app.check.formats.words import (
    CONTRACTS,
    FIGURES,
    HEADINGS,
    OUTCOMES,
    actions,
    contract_figures,
    contract_versions,
    options,
)
from app.objects.check import AssertionRow, Check, CheckFinding, CheckSummary, ContractRow, Subject, Unmeasured
from app.objects.trace import Action, TraceSummary
from app.units import count
from app.web.labels import Choice, format_time, trace_choices

REPORTS: Mapping[str, str] = {
    "markdown": "Markdown comment",
    "sarif": "SARIF",
    "junit": "JUnit",
    "csv": "CSV",
    "html": "HTML file",
}
"""What the buttons say; the page's address with .json is the JSON."""

STATES = {"queued": "waiting", "running": "running", "failed": "failed", "cancelled": "cancelled"}
LEVELS = {"passed": "good", "failed": "bad", "unmeasured": "unknown"}
MOST_FINDINGS = 200
"""Findings of one kind that a page shows; the reports have all."""

CONFIG = """\
[check]
name = "step"

# Everything that the advice would do about 1 % of the step or more is a warning.
[assertions]
step-option = { level = "warn", min_saving = 0.01 }
library = { level = "warn", min_share = 0.01 }
compile = { level = "warn", min_share = 0.01 }
triton = { level = "warn", min_share = 0.01 }
cuda = { level = "warn", min_share = 0.01 }

# With a baseline: a new fusible chain of 6 % of the step is an error, a slower step too.
# compile-fuses = { level = "error", min_share = 0.06, new_only = true }
# regression = { level = "error", max_increase = 0.05 }
"""
"""What the form begins with: the same as no configuration at all, and two lines to take."""


class JudgedAssertion(AssertionRow):
    """An assertion with its outcome in words, and the options that it was given."""

    words: str
    options_text: str


class ShownContract(ContractRow):
    """A contract with its outcome, figures and versions in words."""

    words: str
    figures: list[str]
    versions: str


class CheckPage(TypedDict):
    """Context of check.html and its fragment. findings: (heading, those that the page shows, how many there are).

    to_do: traces with what to do about their steps.

    reports: (suffix, words) of each format.
    """

    check: Check
    running: bool
    done: bool
    heading: str
    to_do: list[tuple[Subject, list[tuple[Action, str, str]]]]
    findings: list[tuple[str, list[CheckFinding], int]]
    unmeasured: list[Unmeasured]
    contracts: list[ShownContract]
    contract_headings: list[str]
    assertions: list[JudgedAssertion]
    reports: list[tuple[str, str]]
    when: str


class CheckRow(CheckSummary):
    """A check in the list. words: its outcome or state; level: the class of its colour."""

    words: str
    level: str
    when: str


class Form(TypedDict):
    """The form: traces to choose from, and what stands in its fields."""

    choices: list[Choice]
    trace: str
    baseline: str
    config: str
    commit: str
    branch: str


def check_page(check: Check) -> CheckPage:
    """A check's page, with at most MOST_FINDINGS findings of a kind."""
    done = check["outcome"] is not None and check["state"] == "done"
    return {
        "check": check,
        "running": check["state"] in ("queued", "running"),
        "done": done,
        "heading": HEADINGS[check["outcome"]] if check["outcome"] else "",
        "to_do": [(s, shown) for s in check["subjects"] if (shown := actions(s))],
        "findings": [(title, check[key][:MOST_FINDINGS], len(check[key])) for title, key in _KINDS if check[key]],
        "unmeasured": check["unmeasured"][:MOST_FINDINGS],
        "contracts": [_contract(row) for row in check["contracts"]],
        "contract_headings": [heading.capitalize() for _, heading in FIGURES],
        "assertions": [{**a, "words": OUTCOMES[a["outcome"]], "options_text": options(a)} for a in check["assertions"]],
        "reports": [(FORMATS[name].suffix, words) for name, words in REPORTS.items()] if done else [],
        "when": format_time(check["created_at"]),
    }


def _contract(row: ContractRow) -> ShownContract:
    return {
        **row,
        "words": CONTRACTS[row["outcome"]],
        "figures": contract_figures(row),
        "versions": contract_versions(row),
    }


_KINDS: tuple[tuple[str, Literal["errors", "warnings"]], ...] = (("Errors", "errors"), ("Warnings", "warnings"))


def check_rows(items: Iterable[CheckSummary]) -> list[CheckRow]:
    """Rows of the list of checks."""
    return [
        {
            **item,
            "words": OUTCOMES[item["outcome"] or ""] if item["state"] == "done" else STATES[item["state"]],
            "level": LEVELS.get(item["outcome"] or "", ""),
            "when": format_time(item["created_at"]),
        }
        for item in items
    ]


def make_form(traces: Iterable[TraceSummary], fields: Mapping[str, str]) -> Form:
    """fields: what stands in them (`trace`, `baseline`, `config`, `commit`, `branch`)."""
    return {
        "choices": trace_choices(traces),
        "trace": fields.get("trace", ""),
        "baseline": fields.get("baseline", ""),
        "config": fields.get("config") or CONFIG,
        "commit": fields.get("commit", ""),
        "branch": fields.get("branch", ""),
    }


def older_address(following: str | None) -> str:
    """The address of the next page of the list; "" on the last one."""
    return "/checks?" + urlencode({"after": following}) if following else ""


def summarize(check: Check) -> list[tuple[str, str, str]]:
    """The numbers at a glance: (what, how many, what it means)."""
    counts = check["counts"]
    return [
        ("Exit code", str(check["exit_code"]), "what CI gets"),
        ("Errors", str(counts["errors"]), "assertions of level error that do not hold" if counts["errors"] else ""),
        ("Warnings", str(counts["warnings"]), ""),
        ("Not measured", str(counts["unmeasured"]), "never a failure" if counts["unmeasured"] else ""),
        ("Assertions", str(len(check["assertions"])), ""),
        ("Checked", count(len(check["subjects"]), "subject"), _describe_baseline(check)),
    ]


def _describe_baseline(check: Check) -> str:
    return f"against {check['baseline']['name']}" if check["baseline"] else "without a baseline"
