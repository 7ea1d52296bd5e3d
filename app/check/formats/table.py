"""The report as CSV: one row a finding, a row for what could not be measured, and one for each assertion that holds."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import TypeAlias

from app.check.safe import visible
from app.objects.check import CheckFinding, Report

Row: TypeAlias = dict[str, object]
"""By column."""

COLUMNS = (
    "outcome", "assertion", "subject", "region", "module", "source", "tool", "mode", "share_of_step",
    "time_us_per_step", "region_speedup_low", "region_speedup_mid", "region_speedup_high", "step_speedup_mid",
    "evidence", "new", "message", "action", "fingerprint",
)  # fmt: skip

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "|", "%")
"""What spreadsheets take for the beginning of a formula, also full width, and of a DDE call."""


def to_csv(report: Report) -> str:
    """RFC 4180. A text that a spreadsheet would run begins with an apostrophe instead."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL)
    writer.writeheader()
    for word, findings in (("error", report["errors"]), ("warning", report["warnings"])):
        for finding in findings:
            writer.writerow(_cells({"outcome": word, **_figures(finding)}))
    for unknown in report["unmeasured"]:
        writer.writerow(_cells({"outcome": "unmeasured", **_select_keys(unknown), "message": unknown["reason"]}))
    for assertion in report["assertions"]:
        if assertion["outcome"] in ("passed", "off"):
            writer.writerow(_cells({"outcome": assertion["outcome"], "assertion": assertion["name"]}))
    return out.getvalue()


def _figures(finding: CheckFinding) -> Row:
    region, step = finding["region_speedup"], finding["step_speedup"]
    return {
        **_select_keys(finding),
        "region_speedup_low": region["low"] if region else None,
        "region_speedup_mid": region["mid"] if region else None,
        "region_speedup_high": region["high"] if region else None,
        "step_speedup_mid": step["mid"] if step else None,
        "fingerprint": finding["fingerprints"]["place"],
    }


def _select_keys(row: Mapping[str, object]) -> Row:
    return {key: row[key] for key in COLUMNS if key in row}


def _cells(row: Row) -> Row:
    return {key: _cell(value) for key, value in row.items()}


def _cell(value: object) -> str | float:
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, int | float):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(FORMULA) else text
