"""The report as a comment on a pull request: GitHub's Markdown, which plain CommonMark reads too.

The first line is a hidden marker: who posts the comment looks for it and replaces the comment that has it. Nothing from
outside stands free in the text: names are in code spans and fences, in which neither markup, mentions (@), references
(#1) nor links are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.check.formats.words import (
    CONTRACTS,
    FIGURES,
    HEADINGS,
    OUTCOMES,
    TOOLS,
    actions,
    contract_figures,
    contract_versions,
    contracts,
    milliseconds,
    options,
    share,
    speedup,
)
from app.check.safe import visible, visible_block
from app.objects.check import AssertionRow, CheckFinding, ContractRow, Report, Subject, Unmeasured

SIGNS = {"passed": "✅", "failed": "❌", "unmeasured": "❔"}
MAX_ROWS = 50
"""GitHub takes 65,536 characters of a comment."""
MAX_CHARS = 60_000


def marker(name: str) -> str:
    """The hidden first line of the comment of the check of that name (lower-case letters, digits, hyphens)."""
    return f"<!-- tritonworthy-check:{re.sub('[^a-z0-9]+', '-', name).strip('-')} -->"


def to_markdown(report: Report) -> str:
    """The comment; details are left out where it would be longer than a comment may be."""
    comment = _render(report, calls=True)
    return comment if len(comment) <= MAX_CHARS else _render(report, calls=False)


def _render(report: Report, calls: bool) -> str:
    parts = [
        marker(report["name"]),
        f"### {SIGNS[report['outcome']]} Tritonworthy: {HEADINGS[report['outcome']]}",
        f"{report['because']}.",
        *_against(report),
        *(part for s in report["subjects"] for part in _actions(s, calls)),
        *_findings("Errors", report["errors"], calls),
        *_findings("Warnings", report["warnings"], calls),
        *_unmeasured_lines(report["unmeasured"]),
        *_contracts(contracts(report), calls),
        *_assertions(report["assertions"]),
    ]
    return "\n\n".join(parts) + "\n"


def _against(report: Report) -> list[str]:
    subjects = [
        f"- {code(s['name'], 80)}: " + ("could not be read" if s["error"] else _subject(s))
        for s in report["subjects"][:MAX_ROWS]
    ]
    baseline = report["baseline"]
    if baseline:
        verdict = code(baseline["verdict"]) if baseline["verdict"] else "not compared"
        subjects.append(f"- against {code(baseline['name'], 80)}: {verdict}")
    return ["\n".join(subjects)]


def _subject(subject: Subject) -> str:
    count = subject["regions"]
    parts = [f"{count} region{'s' * (count != 1)}"]
    parts += [f"step {milliseconds(subject['step_time_us'])}"] if subject["step_time_us"] else []
    parts += [code(subject["device"], 60)] if subject["device"] else []
    return ", ".join(parts)


def _actions(subject: Subject, calls: bool) -> list[str]:
    """What to do about a step, in the order of what it saves."""
    shown = actions(subject)
    if not shown:
        return []
    lines = [
        f"{rank}. {code(action['title'], 160)}: {saves}" + (f", at {code(where, 120)}" if where else "")
        for rank, (action, saves, where) in enumerate(shown, 1)
    ]
    parts = [f"#### What to do about {code(subject['name'], 80)}", "\n".join(lines)]
    written = [part for a, _, _ in shown if a["call"] for part in (code(a["title"], 160), fence(a["call"]))]
    return [*parts, "<details><summary>What to write</summary>", *written, "</details>"] if calls and written else parts


def _findings(title: str, findings: Sequence[CheckFinding], calls: bool) -> list[str]:
    if not findings:
        return []
    rows = [
        "| assertion | where | what | share of the step | region | evidence |",
        "|:-|:-|:-|-:|-:|:-|",
        *(_row(f) for f in findings[:MAX_ROWS]),
    ]
    parts = [f"#### {title}", "\n".join(rows)]
    if len(findings) > MAX_ROWS:
        parts.append(f"and {len(findings) - MAX_ROWS} more; the JSON report has all.")
    shown = [f for f in findings[:MAX_ROWS] if f["call"]] if calls else []
    if shown:
        blocks = [part for f in shown for part in (code(f["region"], 80), fence(f["call"]))]
        parts += ["<details><summary>What to write</summary>", *blocks, "</details>"]
    return parts


def _row(finding: CheckFinding) -> str:
    where = [code(finding["region"] or finding["subject"], 80)]
    where += [code(finding["source"], 120)] if finding["source"] else []
    where += ["**new**"] if finding["new"] else []
    what = code(finding["message"], 240)
    if finding["tool"]:
        mode = "" if finding["mode"] in ("", "default") else f" {code(finding['mode'], 80)}"
        what = f"{TOOLS.get(finding['tool'], '')}{mode}: {what}"
    cells = (
        code(finding["assertion"], 80), " ".join(where), what, share(finding["share_of_step"]),
        speedup(finding["region_speedup"]), finding["evidence"] or "",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _unmeasured_lines(unknown: Sequence[Unmeasured]) -> list[str]:
    if not unknown:
        return []
    lines = []
    for item in unknown[:MAX_ROWS]:
        at = " ".join(code(part, 80) for part in (item["assertion"], item["subject"], item["region"]) if part)
        lines.append(f"- {at}: {code(item['reason'])}")
    return ["#### Not measured", "\n".join(lines)]


MAX_DIFF_CHARS = 12_000
"""Of one contract's generated sources; the JSON report has all."""


def _contracts(rows: Sequence[ContractRow], diffs: bool) -> list[str]:
    """What torch.compile makes of each, and the generated sources where they are others than those accepted."""
    if not rows:
        return []
    heads = ("contract", "about", "outcome", *(heading for _, heading in FIGURES), "asked")
    lines = [f"| {' | '.join(heads)} |", f"|:-|:-|:-|{'-:|' * len(FIGURES)}:-|"]
    for row in rows[:MAX_ROWS]:
        asked = code(", ".join(part for part in (row["device"], contract_versions(row)) if part), 160)
        cells = (code(row["name"], 80), code(row["of"], 80), CONTRACTS[row["outcome"]], *contract_figures(row), asked)
        lines.append(f"| {' | '.join(cells)} |")
    parts = ["#### Contracts", "\n".join(lines)]
    if diffs:
        for row in rows[:MAX_ROWS]:
            if row["diff"]:
                summary = "Generated sources, as accepted and now"
                shown = [code(row["of"], 80), fence(row["diff"], "diff", MAX_DIFF_CHARS)]
                parts += [f"<details><summary>{summary}</summary>", *shown, "</details>"]
    return parts


def _assertions(assertions: Sequence[AssertionRow]) -> list[str]:
    if not assertions:
        return []
    lines = [
        f"- {code(a['name'], 80)} ({a['level']}): {OUTCOMES[a['outcome']]}"
        + (f", {code(options(a), 200)}" if a["options"] else "")
        for a in assertions[:MAX_ROWS]
    ]
    return ["<details><summary>Assertions</summary>", "\n".join(lines), "</details>"]


def code(text: object, most: int = 300) -> str:
    """A code span, also within a table's cell."""
    shown = visible(text, most) or " "
    ticks = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    # A table's row is cut at pipes before code spans are read; a broken bar reads alike and cuts nothing.
    return f"{ticks}{pad}{shown.replace('|', '¦')}{pad}{ticks}"


def fence(text: str, language: str = "python", most: int = 4000) -> str:
    """A fenced block of code."""
    shown = visible_block(text, most)
    ticks = "`" * max(3, max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    return f"{ticks}{language}\n{shown}\n{ticks}"
