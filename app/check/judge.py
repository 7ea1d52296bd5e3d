"""Subjects and assertions -> the report: what failed, what is worth a warning, what could not be measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from app import __version__, exit_status
from app.check import history, regions, steps
from app.check.config import Assertion, Config, KernelCheck
from app.check.contracts.judge import CHECK as CONTRACT
from app.check.contracts.judge import JudgedContract, contract_rows
from app.check.contracts.model import Contract
from app.check.finding import Finding, Unmeasured, finding_json, unmeasured_json
from app.check.history import Past
from app.check.kernels import JudgedKernel, findings
from app.check.measures import measures_of, method_of
from app.check.subject import Subject
from app.objects import check as objects
from app.trace_report.comparison.compare import compare_traces

Asserted: TypeAlias = Assertion | KernelCheck | Contract
"""What a configuration asserts."""

SCHEMA: Literal[1] = 1
MAX_LISTED = 1000
"""Findings that a report lists of each kind; GitHub shows 5,000 of a SARIF file's."""


def judge(
    config: Config, subjects: Sequence[Subject], baseline: Subject | None = None, kernels: Sequence[JudgedKernel] = (),
    contracts: Sequence[JudgedContract] = (), past: Past | None = None,
) -> objects.Report:  # fmt: skip
    """The report of a check. kernels, contracts: those of the configuration that were looked at; past: the runs before
    this one.

    outcome: "failed" where an assertion of level error does not hold; else "unmeasured" where one could not be judged,
    or a subject could not be read; else "passed". A lack of measurements is never a failure.
    """
    rows: list[tuple[Asserted, list[Finding], list[Unmeasured]]] = []
    for assertion in config.assertions:
        judged = (
            list(_judge(assertion, subjects, baseline, config.name, contracts, past))
            if assertion.level != "off"
            else []
        )
        fired = [j for j in judged if isinstance(j, Finding)]
        rows.append((assertion, fired, [j for j in judged if isinstance(j, Unmeasured)]))
    of_kernels = {j.named.check.name: j for j in kernels if j.verdict is not None}
    for check in config.kernels:
        judged_kernel = of_kernels.get(check.name)
        rows.append((check, *findings(judged_kernel)) if judged_kernel else (replace(check, level="off"), [], []))
    of_contracts = {j.contract.name: j for j in contracts}
    for contract in config.contracts:
        judged_contract = of_contracts.get(contract.name)
        if judged_contract is None:
            rows.append((replace(contract, level="off"), [], []))
        else:
            rows.append((contract, list(judged_contract.findings), list(judged_contract.unmeasured)))
    unread = [
        Unmeasured("", "error", s.name, "", f"cannot be read: {s.error}")
        for s in (*subjects, *((baseline,) if baseline else ()))
        if s.error
    ]
    every = [f for _, fired, _ in rows for f in fired]
    errors, warnings = ([f for f in every if f.level == level] for level in ("error", "warn"))
    unknown = [*unread, *(u for _, _, unmeasured in rows for u in unmeasured)]
    outcome: objects.CheckOutcome
    outcome = "failed" if errors else "unmeasured" if any(u.level == "error" for u in unknown) else "passed"
    return {
        "schema": SCHEMA,
        "name": config.name,
        "outcome": outcome,
        "passed": outcome == "passed",
        "exit_code": exit_status.BY_OUTCOME[outcome],
        "because": _because(errors, warnings, unknown),
        "counts": {"errors": len(errors), "warnings": len(warnings), "unmeasured": len(unknown)},
        "errors": [finding_json(f) for f in errors[:MAX_LISTED]],
        "warnings": [finding_json(f) for f in warnings[:MAX_LISTED]],
        "unmeasured": [unmeasured_json(u) for u in unknown[:MAX_LISTED]],
        "assertions": [_row(*row) for row in rows],
        "subjects": [
            _subject(s) for s in (*subjects, *(j.subject for j in of_kernels.values()), *(j.subject for j in contracts))
        ],
        "contracts": contract_rows(contracts),
        "baseline": _baseline(subjects, baseline),
        "source_root": config.source_root,
        "software": {"tritonworthy": __version__},
    }


def _judge(
    assertion: Assertion, subjects: Sequence[Subject], baseline: Subject | None, check: str,
    contracts: Sequence[JudgedContract], past: Past | None,
) -> list[Finding | Unmeasured]:  # fmt: skip
    readable = [s for s in subjects if not s.error]
    if assertion.check == history.CHECK:
        return list(history.judge_history(assertion, check, readable, contracts, past))
    if assertion.check in regions.KINDS:
        usable = baseline if baseline is not None and not baseline.error else None
        return [j for s in readable for j in regions.on_regions(assertion, s, usable)]
    traces = [s for s in readable if s.kind == "trace"]
    return [j for s in traces for j in steps.KINDS[assertion.check](assertion, s, baseline)]


def _row(assertion: Asserted, fired: list[Finding], unmeasured: list[Unmeasured]) -> objects.AssertionRow:
    outcome: objects.AssertionOutcome
    if assertion.level == "off":
        outcome = "off"
    elif fired:
        outcome = "failed" if any(finding.level == "error" for finding in fired) else "warned"
    else:
        outcome = "unmeasured" if unmeasured else "passed"
    return {
        "name": assertion.name if isinstance(assertion, Assertion) else assertion.assertion,
        "check": _check_of(assertion),
        "level": assertion.level,
        "options": assertion.options,
        "outcome": outcome,
        "findings": len(fired),
        "unmeasured": len(unmeasured),
    }


def _check_of(assertion: Asserted) -> str:
    match assertion:
        case Assertion():
            return assertion.check
        case KernelCheck():
            return "kernel"
        case Contract():
            return CONTRACT


def _subject(subject: Subject) -> objects.Subject:
    body = subject.body
    return {
        "name": subject.name,
        "kind": subject.kind,
        "id": body.get("id") if subject.kind == "trace" else next((r.get("id") for r in subject.regions), None),
        "device": body.get("device"),
        "step_time_us": body.get("step_time_us"),
        "regions": len(subject.regions),
        "actions": list(body.get("actions") or ()),
        "error": subject.error,
        "measures": measures_of(subject),
        "method": method_of(subject),
    }


def _baseline(subjects: Sequence[Subject], baseline: Subject | None) -> objects.Baseline | None:
    if baseline is None:
        return None
    trace = next((s for s in subjects if s.kind == "trace" and not s.error), None)
    compared = None if trace is None or baseline.error else compare_traces(baseline.body, trace.body, steps.SIDES)
    return {**_subject(baseline), "step": compared and compared["step"], "verdict": compared and compared["verdict"]}


def _because(errors: Sequence[Finding], warnings: Sequence[Finding], unknown: Sequence[Unmeasured]) -> str:
    counted = (
        (len(errors), "finding is an error", "findings are errors"),
        (len(warnings), "is a warning", "are warnings"),
        (len(unknown), "could not be measured", "could not be measured"),
    )
    parts = [f"{n} {one if n == 1 else many}" for n, one, many in counted if n]
    return ", ".join(parts) if parts else "Every assertion holds"
