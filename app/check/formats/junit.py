"""The report as JUnit XML: a suite for each trace or region, a case for each assertion; a suite for each kernel
and each contract.

A failed error-level assertion is a failure; a warning is the case's output; what could not be measured is skipped, for
a missing GPU must not turn a build red.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from app.check.formats.words import contract_of
from app.check.safe import visible, visible_block
from app.objects.check import AssertionRow, CheckFinding, Report, Subject, Unmeasured

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ALONE = ("kernel", "contract")
"""Kinds of subjects, and of assertions, that concern each other alone."""
MAX_DIFF_CHARS = 12_000
MAX_TOLD = 20
"""Findings that one case repeats."""


def to_junit(report: Report) -> str:
    """JUnit XML, as Jenkins' schema has it."""
    suites = [_suite(report, subject) for subject in report["subjects"]]
    totals = {key: str(sum(int(s.get(key, "0")) for s in suites)) for key in ("tests", "failures", "errors")}
    root = ET.Element("testsuites", {"name": _text(report["name"]), **totals})
    root.extend(suites)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(report: Report, subject: Subject) -> ET.Element:
    name = subject["name"]
    cases = [_case(report, a, name) for a in report["assertions"] if a["level"] != "off" and _concerns(a, subject)]
    if subject["error"] or not cases:
        reason = subject["error"] or "no assertion"
        cases.append(_element("testcase", {"name": "read", "classname": _class(report)}, _skipped_element(reason)))
    counts = {
        "tests": len(cases),
        "failures": sum(c.find("failure") is not None for c in cases),
        "errors": 0,
        "skipped": sum(c.find("skipped") is not None for c in cases),
    }
    suite = ET.Element("testsuite", {"name": _text(name), **{k: str(v) for k, v in counts.items()}})
    suite.extend(cases)
    return suite


def _concerns(assertion: AssertionRow, subject: Subject) -> bool:
    """Assertions are on traces and regions, the row of a kernel or a contract is on that alone."""
    if subject["kind"] in ALONE:
        return assertion["name"] == f"{subject['kind']}:{subject['name']}"
    return assertion["check"] not in ALONE


def _case(report: Report, assertion: AssertionRow, subject: str) -> ET.Element:
    def is_of(item: CheckFinding | Unmeasured) -> bool:
        return item["assertion"] == assertion["name"] and item["subject"] == subject

    errors, warnings = ([f for f in findings if is_of(f)] for findings in (report["errors"], report["warnings"]))
    unknown = [u for u in report["unmeasured"] if is_of(u)]
    parts = []
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        head = {"type": _text(assertion["check"]), "message": _text(errors[0]["message"]) + more}
        parts.append(_element("failure", head, text=_findings_text(report, errors)))
    elif unknown:
        parts.append(_skipped_element("; ".join(u["reason"] for u in unknown[:MAX_TOLD])))
    if warnings:
        parts.append(_element("system-out", {}, text=_findings_text(report, warnings)))
    return _element("testcase", {"name": _text(assertion["name"]), "classname": _class(report)}, *parts)


def _class(report: Report) -> str:
    return f"tritonworthy.{_text(report['name'])}"


def _skipped_element(reason: str) -> ET.Element:
    return ET.Element("skipped", {"message": _text(reason)})


def _findings_text(report: Report, findings: Sequence[CheckFinding]) -> str:
    lines = []
    for finding in findings[:MAX_TOLD]:
        place = ", ".join(_text(part) for part in (finding["source"], finding["module"]) if part)
        lines.append(_text(finding["message"]) + (f" ({place})" if place else ""))
        lines += [f"  {_text(finding['action'])}"] if finding["action"] else []
    diffs = {row["diff"] for f in findings if (row := contract_of(report, f)) is not None and row["diff"]}
    return "\n".join([*lines, *(_NOT_XML.sub("\ufffd", visible_block(diff, MAX_DIFF_CHARS)) for diff in sorted(diffs))])


def _element(name: str, attributes: dict[str, str], *children: ET.Element, text: str = "") -> ET.Element:
    element = ET.Element(name, attributes)
    element.extend(children)
    element.text = text or None
    return element


def _text(value: object) -> str:
    return _NOT_XML.sub("\ufffd", visible(value))
