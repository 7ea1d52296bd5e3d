"""A validation as an agent reads it: the outcome, the verdict on a kernel of its own, and what was measured."""

from __future__ import annotations

from app.agents.brief.fit import NAME, REASON, TITLE, fit_validation, one_line
from app.agents.brief.numbers import rounded, rounded_interval
from app.agents.brief.tokens import MAX_TOKENS
from app.objects.brief import BriefCandidate, BriefValidation, BriefVerdict
from app.objects.evidence import Candidate
from app.objects.kernel_verdict import KernelVerdict
from app.objects.record import NamedValidation

UNMEASURED = "nothing was timed: this host has no GPU, or was told not to use it; only correctness was checked"


def validation_brief(
    validation: NamedValidation, verdict: KernelVerdict | None = None, *, most: int = MAX_TOKENS
) -> BriefValidation:
    """verdict: on the kernel that was measured with it."""
    own = verdict["candidate"] if verdict else None
    ranked = sorted(validation["candidates"], key=lambda c: (c["name"] != own, c["time_us"] is None, _median(c)))
    warnings = validation["conditions"].get("warnings") or []
    advice = validation["advice_after"] or validation["advice_before"]
    told = [UNMEASURED] if validation["device"] is None else []
    return fit_validation(
        {
            "of": "validation",
            "name": one_line(validation["name"], NAME),
            "device": validation["device"],
            "outcome": validation["outcome"],
            "because": one_line(validation["reason"], REASON),
            "best": validation["best"],
            "floor_us": rounded(validation["floor_us"]),
            "kernel": _verdict(verdict) if verdict else None,
            "candidates": [_candidate(c) for c in ranked],
            "advice": one_line(advice["headline"], REASON) if advice else "",
            "warnings": [*told, *(one_line(text, REASON) for text in warnings[:4])],
            "left_out": 0,
        },
        most,
    )


def _median(candidate: Candidate) -> float:
    return candidate["time_us"]["median"] if candidate["time_us"] else 0.0


def _verdict(verdict: KernelVerdict) -> BriefVerdict:
    return {
        "verdict": verdict["verdict"],
        "because": one_line(verdict["because"], 2 * REASON),
        "against": verdict["against"],
        "speedup": rounded_interval(verdict["speedup"]),
    }


def _candidate(candidate: Candidate) -> BriefCandidate:
    return {
        "name": one_line(candidate["name"], NAME),
        "status": candidate["status"],
        "time_us": rounded_interval(candidate["time_us"]),
        "ratio_to_eager": rounded_interval(candidate["ratio_to_eager"]),
        "error_vs_eager": rounded(candidate["error_vs_eager"]),
        "message": one_line(candidate["message"], TITLE),
    }
