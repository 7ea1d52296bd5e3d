"""The report as CSV: one row a finding, a row for what could not be measured, and one for each assertion that holds."""

from __future__ import annotations

import csv
import io
from typing import Any

from app.check.safe import visible

Json = dict[str, Any]

COLUMNS = (
    "outcome", "assertion", "subject", "region", "module", "source", "tool", "mode", "share_of_step",
    "time_us_per_step", "region_speedup_low", "region_speedup_mid", "region_speedup_high", "step_speedup_mid",
    "evidence", "new", "message", "action", "fingerprint",
)  # fmt: skip

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "|", "%")
"""What spreadsheets take for the beginning of a formula, also full width, and of a DDE call."""


def to_csv(report: Json) -> str:
    """RFC 4180. A text that a spreadsheet would run begins with an apostrophe instead."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL)
    writer.writeheader()
    for word, key in (("error", "errors"), ("warning", "warnings")):
        for finding in report[key]:
            writer.writerow(_cells({"outcome": word, **_figures(finding)}))
    for unknown in report["unmeasured"]:
        writer.writerow(_cells({"outcome": "unmeasured", **_select_keys(unknown), "message": unknown["reason"]}))
    for assertion in report["assertions"]:
        if assertion["outcome"] in ("passed", "off"):
            writer.writerow(_cells({"outcome": assertion["outcome"], "assertion": assertion["name"]}))
    return out.getvalue()


def _figures(finding: Json) -> Json:
    region, step = finding["region_speedup"] or {}, finding["step_speedup"] or {}
    spans = {f"region_speedup_{end}": region.get(end) for end in ("low", "mid", "high")}
    return (
        _select_keys(finding)
        | spans
        | {"step_speedup_mid": step.get("mid"), "fingerprint": finding["fingerprints"]["place"]}
    )


def _select_keys(row: Json) -> Json:
    return {key: row[key] for key in COLUMNS if key in row}


def _cells(row: Json) -> Json:
    return {key: _cell(value) for key, value in row.items()}


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, int | float):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(FORMULA) else text
