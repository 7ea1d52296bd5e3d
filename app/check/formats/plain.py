"""The report as JSON, and as lines for a terminal."""

from __future__ import annotations

import json
from typing import Any

from app.check.safe import visible

Json = dict[str, Any]


def to_json(report: Json) -> str:
    """The report itself. ASCII: what other programs make of bidi marks and lone surrogates is not left to them."""
    return json.dumps(report, indent=2, allow_nan=False) + "\n"


def to_text(report: Json) -> str:
    """One line a finding, the verdict last."""
    lines = [
        f"{word}: {visible(f['assertion'])}: {visible(f['message'])}{_place(f)}"
        for word, key in (("error", "errors"), ("warning", "warnings"))
        for f in report[key]
    ]
    for u in report["unmeasured"]:
        at = " ".join(visible(u[k], 80) for k in ("subject", "region") if u[k])
        name = f"{visible(u['assertion'])}: " if u["assertion"] else ""
        lines.append(f"not measured: {name}{at}: {visible(u['reason'])}")
    if report["baseline"] and report["baseline"]["verdict"]:
        lines.append(f"against {visible(report['baseline']['name'], 80)}: {visible(report['baseline']['verdict'])}")
    return "\n".join([*lines, f"{report['outcome']}: {report['because']}."])


def _place(finding: Json) -> str:
    return f" ({visible(finding['source'], 160)})" if finding["source"] else ""
