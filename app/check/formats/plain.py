"""The report as JSON, and as lines for a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

from app.check.formats.words import actions, contract_of, contracts
from app.check.safe import visible, visible_block
from app.objects.check import CheckFinding, ContractRow, Report
from app.objects.trace import Action

MAX_DIFF_LINES = 80
MAX_DIFF_CHARS = 40_000


def to_json(report: Report) -> str:
    """The report itself. ASCII: what other programs make of bidi marks and lone surrogates is not left to them."""
    return json.dumps(report, indent=2, allow_nan=False) + "\n"


def to_text(report: Report) -> str:
    """One line a contract that is kept and one a finding, the verdict last."""
    lines = [
        line
        for subject in report["subjects"]
        for rank, (action, saves, where) in enumerate(actions(subject), 1)
        for line in _action(f"{subject['name']}: {rank}.", action, saves, where)
    ]
    lines += _kept(contracts(report))
    diffs: dict[str, None] = {}
    for word, findings in (("error", report["errors"]), ("warning", report["warnings"])):
        for f in findings:
            lines.append(f"{word}: {visible(f['assertion'])}: {visible(f['message'])}{_place(f)}")
            contract = contract_of(report, f)
            diffs |= {contract["diff"]: None} if contract else {}
    lines += [line for diff in diffs for line in _diff(diff)]
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


def _kept(rows: Sequence[ContractRow]) -> list[str]:
    """A line for each contract that holds for all that it is about: the most of each figure, and the torch asked."""
    lines = []
    for name, group in groupby(rows, key=lambda row: row["name"]):
        listed = list(group)
        if any(row["outcome"] != "kept" for row in listed):
            continue
        kernels = max((row["kernels"] for row in listed if row["kernels"] is not None), default=None)
        ratios = [row["bytes_over_minimum"] for row in listed]
        known = [ratio for ratio in ratios if ratio is not None]
        parts = [
            f"{len(listed)} regions, each at most" if listed[1:] else "",
            "" if kernels is None else f"{kernels} {'kernel' if kernels == 1 else 'kernels'},",
            f"{max(known):.2f} times the least bytes," if len(known) == len(ratios) else "bytes not counted,",
            f"torch {listed[0]['torch']}",
        ]
        lines.append(visible(f"kept: contract:{name}: {' '.join(part for part in parts if part)}"))
    return lines


def _diff(diff: str) -> list[str]:
    """The generated sources of a contract that is broken, as accepted and now: their first lines."""
    lines = visible_block(diff, MAX_DIFF_CHARS).splitlines()
    more = [f"({len(lines) - MAX_DIFF_LINES} lines more: --format json has all)"] if lines[MAX_DIFF_LINES:] else []
    return [*(f"   {line}" for line in lines[:MAX_DIFF_LINES]), *more]


def _place(finding: CheckFinding) -> str:
    return f" ({visible(finding['source'], 160)})" if finding["source"] else ""
