"""Prefill or decode: what a serving engine's step does, by its annotations, else by the shapes of attention's calls.

A step without either sign has no phase: an encoder reads whole sequences as a prefill does, and is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from app.objects.region import AnyRegion
from app.objects.trace import Phase, PhaseKind, Serving
from app.trace_report.comparison.serving import MOST, tokens_at_a_time
from profiler.trace.analyze.serving_phases import DECODE, MIXED, PREFILL, kind_of_step
from profiler.trace.model import Step, Trace

ALMOST_ALL = 0.95
"""Of the calls that tell, those of one kind from which a step is of that kind."""
WORDS = {
    DECODE: "In decode each weight is read for a few rows: what moves fewer bytes or launches less helps, faster "
    "arithmetic does not",
    PREFILL: "In prefill many rows share each weight: arithmetic sets the pace",
    MIXED: "Its step has prefill and decode in one: now and predicted are of both together; to advise each, record "
    "each by itself",
}


def phase_of(trace: Trace, mined: Sequence[Step], shown: Serving | None) -> Phase | None:
    """The phase of the steps that all figures are of; None for what is no serving step. shown: by its shapes."""
    kinds = {kind_of_step(trace, step) for step in mined} - {""}
    if kinds:
        kind = kinds.pop() if len(kinds) == 1 else MIXED
        return {"kind": cast("PhaseKind", kind), "told_by": "annotations", "decode_share": None}
    share = shown["single_share"] if shown is not None else 0.0
    if share <= MOST:  # a single query among many calls may be what pools an encoder's tokens
        return None
    return {
        "kind": "decode" if share >= ALMOST_ALL else "mixed", "told_by": "shapes", "decode_share": share,
    }  # fmt: skip


def phase_of_region(region: AnyRegion, phase: Phase | None) -> PhaseKind | None:
    """The region's phase: the step's, or of a mixed one that of all its calls, where their shapes tell."""
    if phase is None or phase["kind"] != MIXED:
        return phase["kind"] if phase else None
    told = tokens_at_a_time(region)
    single = sum(calls for tokens, calls in told if tokens == 1)
    every = sum(calls for _, calls in told)
    if not every or 0.0 < single < every:
        return "mixed"
    return "decode" if single else "prefill"


def words_of(phase: PhaseKind | None) -> str:
    """What the phase means for an action; "" for none."""
    return WORDS.get(phase or "", "")
