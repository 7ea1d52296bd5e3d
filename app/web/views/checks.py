"""What the pages of checks show of the API's check: rows of tables, words, the form. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from app.check.formats import FORMATS
from app.check.formats.words import HEADINGS, OUTCOMES, options
from app.units import count
from app.web.views.region import when

Json = dict[str, Any]

REPORTS: Mapping[str, str] = {
    "markdown": "Markdown comment",
    "sarif": "SARIF",
    "junit": "JUnit",
    "csv": "CSV",
    "html": "HTML file",
}
"""What the buttons say; JSON is the page's twin."""

STATES = {"queued": "waiting", "running": "running", "failed": "failed", "cancelled": "cancelled"}
LEVELS = {"passed": "good", "failed": "bad", "unmeasured": "unknown"}
SHOWN = 200
"""Findings of one kind that a page shows; the reports have all."""

CONFIG = """\
[check]
name = "step"

# Everything that the advice would do about 1 % of the step or more is a warning.
[assertions]
library = { level = "warn", min_share = 0.01 }
compile = { level = "warn", min_share = 0.01 }
triton = { level = "warn", min_share = 0.01 }
cuda = { level = "warn", min_share = 0.01 }

# With a baseline: a new fusible chain of 6 % of the step is an error, a slower step too.
# compile-fuses = { level = "error", min_share = 0.06, new_only = true }
# regression = { level = "error", max_increase = 0.05 }
"""
"""What the form begins with: the same as no configuration at all, and two lines to take."""


def check_page(check: Json) -> Json:
    """Context of check.html and its fragment. A page shows SHOWN findings of a kind."""
    done = check["outcome"] is not None and check["state"] == "done"
    return {
        "check": check,
        "running": check["state"] in ("queued", "running"),
        "done": done,
        "heading": HEADINGS[check["outcome"]] if check["outcome"] else "",
        "findings": [(title, check[key][:SHOWN], len(check[key])) for title, key in _KINDS if check[key]],
        "unmeasured": check["unmeasured"][:SHOWN],
        "assertions": [{**a, "said": OUTCOMES[a["outcome"]], "options": options(a)} for a in check["assertions"]],
        "reports": [(FORMATS[name].suffix, words) for name, words in REPORTS.items()] if done else [],
        "when": when(check["created_at"]),
        "charts": False,
    }


_KINDS = (("Errors", "errors"), ("Warnings", "warnings"))


def check_rows(items: Iterable[Json]) -> list[Json]:
    """Rows of the list of checks."""
    return [
        {
            **item,
            "said": OUTCOMES[item["outcome"]] if item["state"] == "done" else STATES[item["state"]],
            "level": LEVELS.get(item["outcome"] or "", ""),
            "when": when(item["created_at"]),
        }
        for item in items
    ]


def form(traces: Iterable[Json], given: Mapping[str, str]) -> Json:
    """The form: traces to choose from, and what stands in its fields (`trace`, `baseline`, `config`)."""
    ready = [
        {"id": t["id"], "label": f"{t['name']} · {t['device'] or 'no GPU named'} · {when(t['created_at'])}"}
        for t in traces
        if t["status"] == "ready"
    ]
    return {
        "choices": ready,
        "trace": given.get("trace", ""),
        "baseline": given.get("baseline", ""),
        "config": given.get("config") or CONFIG,
    }


def older(following: str | None) -> str:
    """The address of the next page of the list; "" on the last one."""
    return "/checks?" + urlencode({"after": following}) if following else ""


def summary(check: Json) -> list[tuple[str, str, str]]:
    """The numbers at a glance: (what, how many, what it means)."""
    counts = check["counts"]
    return [
        ("Exit code", str(check["exit_code"]), "what CI gets"),
        ("Errors", str(counts["errors"]), "assertions of level error that do not hold" if counts["errors"] else ""),
        ("Warnings", str(counts["warnings"]), ""),
        ("Not measured", str(counts["unmeasured"]), "never a failure" if counts["unmeasured"] else ""),
        ("Assertions", str(len(check["assertions"])), ""),
        ("Checked", count(len(check["subjects"]), "subject"), _against(check)),
    ]


def _against(check: Json) -> str:
    return f"against {check['baseline']['name']}" if check["baseline"] else "without a baseline"
