"""The report as one HTML file: no script, nothing to load, readable in print and in the dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from app import __version__
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

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; padding-bottom: .3rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid #8886; }
.scroll { overflow-x: auto; }
td.wide { min-width: 12rem; }
.number { text-align: right; } td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
code, pre { font: .9em/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }
pre { padding: .8rem; border: 1px solid #8886; overflow-x: auto; white-space: pre-wrap; }
.outcome { padding: .6rem 1rem; border-left: .4rem solid #0072b2; background: #8881; }
.failed { border-color: #d55e00; } .unmeasured { border-color: #e69f00; } .passed { border-color: #009e73; }
@media print { details > * { display: block; } body { margin: 0; } }
"""


def to_html(report: Report) -> str:
    """The page."""
    outcome = report["outcome"]
    title = f"Tritonworthy: {HEADINGS[outcome]}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="outcome {outcome}"><strong>{escape(outcome)}</strong>: {escape(report["because"])}.</p>',
        *_subjects(report),
        *(line for s in report["subjects"] for line in _actions(s)),
        *_findings("Errors", report["errors"]),
        *_findings("Warnings", report["warnings"]),
        *_unmeasured_lines(report["unmeasured"]),
        *_contracts(contracts(report)),
        *_assertions(report["assertions"]),
        f"<footer><p>Tritonworthy {escape(__version__)}, check <code>{_text(report['name'])}</code></p></footer>",
    ]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
    ]
    lines = ["<!DOCTYPE html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", "<main>", *body]
    return "\n".join([*lines, "</main>", "</body>", "</html>", ""])


def _subjects(report: Report) -> list[str]:
    rows = [
        (
            _code(s["name"]), escape(s["kind"]), _code(s["device"] or ""), milliseconds(s["step_time_us"]),
            str(s["regions"]), _text(s["error"]),
        )
        for s in report["subjects"]
    ]  # fmt: skip
    heads = ("name", "kind", "device", "step", "regions", "error")
    lines = ["<h2>What was checked</h2>", *_table(heads, rows, {3, 4})]
    baseline = report["baseline"]
    if baseline:
        verdict = _text(baseline["verdict"] or "not compared")
        lines.append(f"<p>Against {_code(baseline['name'])}: {verdict}</p>")
    return lines


def _actions(subject: Subject) -> list[str]:
    shown = actions(subject)
    if not shown:
        return []
    rows = [
        (
            str(rank),
            f"<strong>{_text(a['title'])}</strong><br>{_text(a['because'])}{_call(a['call'])}",
            escape(saves),
            _code(where),
        )
        for rank, (a, saves, where) in enumerate(shown, 1)
    ]
    return [f"<h2>What to do about {_code(subject['name'])}</h2>", *_table(("", "what", "saves", "where"), rows, {0})]


def _findings(title: str, findings: Sequence[CheckFinding]) -> list[str]:
    if not findings:
        return []
    heads = ("assertion", "where", "what", "share of the step", "time of a step", "region faster", "evidence")
    rows = [
        (
            _code(f["assertion"]), _where(f), _what(f), share(f["share_of_step"]), milliseconds(f["time_us_per_step"]),
            speedup(f["region_speedup"]), escape(f["evidence"] or ""),
        )
        for f in findings
    ]  # fmt: skip
    return [f"<h2>{escape(title)}</h2>", *_table(heads, rows, {3, 4, 5})]


def _where(finding: CheckFinding) -> str:
    parts = [_code(finding["region"] or finding["subject"])]
    parts += [_code(place) for place in (finding["source"], finding["module"]) if place]
    return "<br>".join(parts) + (" <strong>new</strong>" if finding["new"] else "")


def _what(finding: CheckFinding) -> str:
    tool = f"<strong>{escape(TOOLS.get(finding['tool'], ''))}</strong>: " if finding["tool"] else ""
    what = f"{tool}{_text(finding['message'])}"
    what += f"<br>{_text(finding['action'])}" if finding["action"] else ""
    return what + _call(finding["call"])


def _call(call: str) -> str:
    if not call:
        return ""
    return f"<details><summary>What to write</summary><pre><code>{escape(visible_block(call))}</code></pre></details>"


def _unmeasured_lines(unknown: Sequence[Unmeasured]) -> list[str]:
    if not unknown:
        return []
    rows = [[_text(text) for text in (u["assertion"], u["subject"], u["region"], u["reason"])] for u in unknown]
    return ["<h2>Not measured</h2>", *_table(("assertion", "subject", "region", "why"), rows, set())]


MAX_DIFF_CHARS = 40_000


def _contracts(rows: Sequence[ContractRow]) -> list[str]:
    """What torch.compile makes of each, and the generated sources where they are others than those accepted."""
    if not rows:
        return []
    heads = ("contract", "about", "outcome", *(heading for _, heading in FIGURES), "asked")
    cells = [
        (
            _code(row["name"]), _code(row["of"]), escape(CONTRACTS[row["outcome"]]),
            *(escape(figure) for figure in contract_figures(row)),
            _text(", ".join(part for part in (row["device"], row["mode"], contract_versions(row)) if part)),
        )
        for row in rows
    ]  # fmt: skip
    numbers = set(range(3, 3 + len(FIGURES)))
    lines = ["<h2>Contracts</h2>", *_table(heads, cells, numbers)]
    for row in rows:
        if row["diff"]:
            shown = escape(visible_block(row["diff"], MAX_DIFF_CHARS))
            summary = f"Generated sources of {_code(row['of'])}, as accepted and now"
            lines.append(f"<details><summary>{summary}</summary><pre><code>{shown}</code></pre></details>")
    return lines


def _assertions(assertions: Sequence[AssertionRow]) -> list[str]:
    rows = [
        (_code(a["name"]), escape(a["level"]), escape(OUTCOMES[a["outcome"]]), str(a["findings"]), _text(options(a)))
        for a in assertions
    ]
    heads = ("assertion", "level", "outcome", "findings", "options")
    return ["<h2>Assertions</h2>", *_table(heads, rows, {3})]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: set[int]) -> list[str]:
    """A table that scrolls by itself where it is wider than the window; cells are HTML already."""
    kinds = ["number" if i in numbers else "wide" if head in WIDE else "" for i, head in enumerate(heads)]
    head = "".join(f'<th scope="col"{_class(k)}>{escape(h)}</th>' for h, k in zip(heads, kinds, strict=True))
    lines = ['<div class="scroll">', "<table>", f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for row in rows:
        cells = (f"<td{_class(k)}>{c}</td>" for c, k in zip(row, kinds, strict=True))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return [*lines, "</tbody>", "</table>", "</div>"]


WIDE = frozenset({"where", "what", "why", "asked"})


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _code(text: object) -> str:
    shown = _text(text)
    return f"<code>{shown}</code>" if shown else ""


def _text(text: object) -> str:
    return escape(visible(text))
