"""The report as JSON, and as lines for a terminal."""

from __future__ import annotations

import json

from app.check.formats.words import actions
from app.check.safe import visible
from app.objects.check import CheckFinding, Report
from app.objects.trace import Action


def to_json(report: Report) -> str:
    """The report itself. ASCII: what other programs make of bidi marks and lone surrogates is not left to them."""
    return json.dumps(report, indent=2, allow_nan=False) + "\n"


def to_text(report: Report) -> str:
    """One line a finding, the verdict last."""
    lines = [
        line
        for subject in report["subjects"]
        for rank, (action, saves, where) in enumerate(actions(subject), 1)
        for line in _action(f"{subject['name']}: {rank}.", action, saves, where)
    ]
    lines += [
        f"{word}: {visible(f['assertion'])}: {visible(f['message'])}{_place(f)}"
        for word, findings in (("error", report["errors"]), ("warning", report["warnings"]))
        for f in findings
    ]
    for u in report["unmeasured"]:
        at = " ".join(visible(part, 80) for part in (u["subject"], u["region"]) if part)
        name = f"{visible(u['assertion'])}: " if u["assertion"] else ""
        lines.append(f"not measured: {name}{at}: {visible(u['reason'])}")
    if report["baseline"] and report["baseline"]["verdict"]:
        lines.append(f"against {visible(report['baseline']['name'], 80)}: {visible(report['baseline']['verdict'])}")
    return "\n".join([*lines, f"{report['outcome']}: {report['because']}."])


def _action(rank: str, action: Action, saves: str, where: str) -> list[str]:
    more = [*action["call"].splitlines(), f"at {where}" if where else ""]
    return [visible(f"{rank} {action['title']}: {saves}"), *(f"   {visible(text)}" for text in more if text)]


def _place(finding: CheckFinding) -> str:
    return f" ({visible(finding['source'], 160)})" if finding["source"] else ""
