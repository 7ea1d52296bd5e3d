"""The report as SARIF 2.1.0, for code scanning: one rule an assertion, one result a finding.

A result keeps its fingerprint while the assertion and the part of the model stay the same, whatever its times, its
line or the trace's name: so it is one alert over many runs. What could not be measured is a notification, no result.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from app import __version__
from app.check.config import CRITERIA, TOOLS
from app.check.formats.places import place_of, relative
from app.check.formats.words import contract_of
from app.check.safe import visible, visible_block
from app.objects.check import AssertionRow, CheckFinding, Report, Unmeasured

Sarif: TypeAlias = dict[str, object]
"""An object of the format."""

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"warn": "warning", "error": "error", "off": "none"}
MAX_DIFF_CHARS = 40_000
MAX_RESULTS = 5000
"""GitHub keeps so many of one file."""

ABOUT: dict[str, tuple[str, str]] = {
    "library": ("A library call does this", "Replace the operations by the library's call."),
    "compile": ("torch.compile fuses this", "Wrap the enclosing function in torch.compile."),
    "triton": ("A Triton kernel is worth writing", "Take the kernel that the advice names, or write it."),
    "cuda": ("A CUDA kernel is worth writing", "Take the library that has it, or write CUDA."),
    "beats": ("A kernel no longer beats the others", "Tune it again, or take what is faster now."),
    "regression": ("The step got slower", "Compare the two traces region by region."),
    "region-regression": ("A region got slower", "Compare the two traces."),
    "step-time": ("The step takes too long", "Follow the advice on its largest regions."),
    "gpu-idle": ("The GPU waits", "Look at launches, data loading and synchronising calls."),
    "contract": ("A fusion contract is broken", "Compare the two generated sources: docs/ci.md."),
    "kernel": ("A kernel of this repository no longer pays", "Delete it, or mend it: docs/own-kernel.md."),
    "step-option": ("The step could be run otherwise", "Follow the option where it pays."),
    "obstacle": ("Something stops torch.compile", "Remove it from the compiled function."),
}
"""Kind of assertion -> (what a finding of it means, what to do in general)."""


def to_sarif(report: Report) -> str:
    """The log. ASCII, so that no reader can be misled by characters that do not show."""
    rules = {a["check"]: a for a in reversed(report["assertions"])}
    names = sorted(rules)
    findings = [*report["errors"], *report["warnings"]][:MAX_RESULTS]
    ordinals = _ordinals(findings)
    run = {
        "tool": {
            "driver": {
                "name": "Tritonworthy",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rules[name]) for name in names],
            }
        },
        "automationDetails": {"id": f"tritonworthy/{report['name']}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": report["outcome"] != "unmeasured",
                "exitCode": report["exit_code"],
                "toolExecutionNotifications": [_notification(u) for u in report["unmeasured"]],
            }
        ],
        "results": [_result(report, f, names.index(f["check"]), n) for f, n in zip(findings, ordinals, strict=True)],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, allow_nan=False) + "\n"


def _ordinals(findings: Sequence[CheckFinding]) -> list[int]:
    """The number of each among the findings of its place, from 1: in the order of their lines, then of their content.

    Never in the order of the report, which is that of times: two that swap would swap their alerts.
    """

    def standing(number: int) -> tuple[tuple[str, int], str, str]:
        finding = findings[number]
        place = place_of(finding["source"])
        return (place.uri, place.line) if place else ("", 0), finding["fingerprints"]["region"], finding["subject"]

    ordinals = [0] * len(findings)
    seen: Counter[str] = Counter()
    for number in sorted(range(len(findings)), key=standing):
        place = findings[number]["fingerprints"]["place"]
        seen[place] += 1
        ordinals[number] = seen[place]
    return ordinals


def _rule(assertion: AssertionRow) -> Sarif:
    check = assertion["check"]
    about, help_text = ABOUT.get(check) or (f"The rule's criterion {check}", "docs/rule.md says what it means.")
    return {
        "id": check,
        "name": "".join(part.capitalize() for part in check.split("-")),
        "shortDescription": {"text": about},
        "fullDescription": {"text": f"{about}."},
        "help": {"text": help_text},
        "defaultConfiguration": {"level": LEVELS[assertion["level"]]},
        "properties": {"tags": ["performance", _family(check)]},
    }


def _family(check: str) -> str:
    if check in ("kernel", "contract"):
        return check
    return "tool" if check in TOOLS else "criterion" if check in CRITERIA else "step"


def _result(report: Report, finding: CheckFinding, rule: int, ordinal: int) -> Sarif:
    place = finding["fingerprints"]["place"]
    result: Sarif = {
        "ruleId": finding["check"],
        "ruleIndex": rule,
        "level": LEVELS[finding["level"]],
        "message": {"text": _message(finding)},
        "locations": [_location(report, finding)],
        "partialFingerprints": {
            "primaryLocationLineHash": f"{place[:16]}:{ordinal}",
            "tritonworthyPlace/v1": f"{place}:{ordinal}",
            "tritonworthyRegion/v1": finding["fingerprints"]["region"],
        },
        "properties": {
            "assertion": visible(finding["assertion"]),
            "subject": visible(finding["subject"]),
            **{key: figure for key, figure in _figures(finding).items() if figure is not None},
            **_contract(report, finding),
        },
    }
    if finding["new"] is not None:
        result["baselineState"] = "new" if finding["new"] else "unchanged"
    return result


def _figures(finding: CheckFinding) -> Sarif:
    return {
        "share_of_step": finding["share_of_step"],
        "time_us_per_step": finding["time_us_per_step"],
        "region_speedup": finding["region_speedup"],
        "step_speedup": finding["step_speedup"],
        "evidence": finding["evidence"],
    }


def _contract(report: Report, finding: CheckFinding) -> Sarif:
    """A contract's figures, as accepted and now, and the generated sources as a diff."""
    row = contract_of(report, finding)
    if row is None:
        return {}
    now = {key: row[key] for key in row if key not in ("name", "of", "outcome", "was", "diff")}  # type: ignore[literal-required]
    return {"contract": {"now": now, "was": row["was"], "diff": visible_block(row["diff"], MAX_DIFF_CHARS)}}


def _message(finding: CheckFinding) -> str:
    text = visible(finding["message"])
    action = visible(finding["action"])
    return escape(f"{text}. {action}" if action else text)


def escape(text: str) -> str:
    """Braces would be placeholders and brackets links (SARIF 2.1.0, 3.11.5 and 3.11.6)."""
    for character in "\\[]":
        text = text.replace(character, f"\\{character}")
    return text.replace("{", "{{").replace("}", "}}")


def _location(report: Report, finding: CheckFinding) -> Sarif:
    """The line that the trace's stacks tell; without stacks the trace itself, for code scanning wants a place."""
    place = place_of(finding["source"], report["source_root"])
    uri = place.uri if place else relative(finding["subject"]) or "trace"
    location: Sarif = {
        "physicalLocation": {
            "artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": place.line if place else 1},
        }
    }
    named = [
        {"fullyQualifiedName": visible(name), "kind": kind}
        for name, kind in ((finding["module"], "module"), (place.function if place else "", "function"))
        if name
    ]
    return {**location, "logicalLocations": named} if named else location


def _notification(unknown: Unmeasured) -> Sarif:
    parts = (unknown["assertion"], unknown["subject"], unknown["region"])
    at = ", ".join(visible(part, 120) for part in parts if part)
    text = escape(f"not measured: {at}: {visible(unknown['reason'])}")
    return {"level": "warning", "message": {"text": text}}
