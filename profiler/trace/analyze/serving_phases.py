"""Prefill and decode of a serving step, by the annotations of vLLM and SGLang. Torch-free.

vLLM: `execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)`, or with a number of tokens in
the brackets: requests in prefill (context) and in decode (generation), sq tokens that are computed, sk tokens that they
look at. SGLang: `step[EXTEND bs=15 toks=15360]`, `step[DECODE bs=8 toks=8]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from profiler.trace.model import Step, Trace

PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"

MAX_NAME = 400
"""Characters of an annotation that are read; a serving step's has about a hundred. Anybody can write a trace."""
_VLLM = re.compile(r"execute_(?:(?:new|cached)?\d*_)*context_(\d+)\(([^)]*)\)_generation_(\d+)\(([^)]*)\)")
_SGLANG = re.compile(r"step\[(\w+) bs=(\d+)(?: toks=(\d+))?")
_QUERIES, _KEYS = re.compile(r"(?:^|(?<![a-z]))sq(\d+)|^(\d+)$"), re.compile(r"(?<=\d)sk(\d+)")
_OF_SGLANG = {"EXTEND": PREFILL, "PREFILL": PREFILL, "DECODE": DECODE, "MIXED": MIXED}


@dataclass(frozen=True, slots=True)
class Phase:
    """What an annotation says of a step: requests and tokens of each kind. keys: tokens that they look at, or 0."""

    kind: str
    prefill_requests: int = 0
    prefill_tokens: int = 0
    decode_requests: int = 0
    decode_tokens: int = 0
    keys: int = 0

    def __str__(self) -> str:
        looked = f", which look at {self.keys:,}" if self.keys else ""
        both = (
            (PREFILL, self.prefill_requests, self.prefill_tokens),
            (DECODE, self.decode_requests, self.decode_tokens),
        )
        parts = [
            f"{kind} of {requests:,} request{'' if requests == 1 else 's'} ({tokens:,} tokens{looked})"
            for kind, requests, tokens in both
            if requests
        ]
        return " and ".join(parts)


def phase_of(annotation: str) -> Phase | None:
    """What the name of an annotation says; None where it is no serving step's."""
    annotation = annotation[:MAX_NAME]
    if "execute_" not in annotation and "step[" not in annotation:
        return None
    if told := _VLLM.search(annotation):
        prefill, decode = int(told[1]), int(told[3])
        if not prefill and not decode:
            return None
        kind = MIXED if prefill and decode else PREFILL if prefill else DECODE
        keys = 0 if kind == MIXED else _number(_KEYS, told[2] if prefill else told[4])
        return Phase(kind, prefill, _number(_QUERIES, told[2]), decode, _number(_QUERIES, told[4]), keys)
    if told := _SGLANG.search(annotation):
        mode, requests, tokens = _OF_SGLANG.get(told[1].upper()), int(told[2]), int(told[3] or 0)
        if mode == DECODE:
            return Phase(DECODE, decode_requests=requests, decode_tokens=tokens or requests)
        return Phase(mode, prefill_requests=requests, prefill_tokens=tokens) if mode else None
    return None


def _number(pattern: re.Pattern[str], text: str) -> int:
    told = pattern.search(text)
    return int(next(g for g in told.groups() if g)) if told else 0


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """A phase with the kernel time that was launched in annotations of its kind, and how many there are."""

    phase: Phase
    kernel_us: float
    steps: int


def phases(trace: Trace) -> list[PhaseTime]:
    """Each kind of serving step that the trace annotates, what takes most kernel time first, with its largest step's
    sizes. Of annotations inside each other the outermost counts."""
    launch = np.where(np.isnan(trace.kernels.launch_us), trace.kernels.start_us, trace.kernels.launch_us)
    made: dict[str, PhaseTime] = {}
    until = -np.inf
    for start, end, phase in sorted(_windows(trace), key=lambda w: (w[0], -w[1])):
        if end <= until:
            continue
        until = end
        inside = (launch >= start) & (launch < end)
        kernel_us = float(trace.kernels.duration_us[inside].sum())
        known = made.get(phase.kind, PhaseTime(phase, 0.0, 0))
        larger = phase if _tokens(phase) > _tokens(known.phase) else known.phase
        made[phase.kind] = PhaseTime(larger, known.kernel_us + kernel_us, known.steps + 1)
    return sorted(made.values(), key=lambda p: -p.kernel_us)


ALMOST_ALL = 0.9
"""Of a step's kernel time in serving steps of one kind, from which the step is of that kind."""


def kind_of_step(trace: Trace, step: Step) -> str:
    """Prefill, decode or mixed; "" where no annotation of a serving engine says it."""
    if (told := phase_of(step.name)) is not None:
        return told.kind
    inside = [w for w in _windows(trace) if w[0] < step.end_us and w[1] > step.start_us]
    if not inside:
        return ""
    at = np.where(np.isnan(trace.kernels.launch_us), trace.kernels.start_us, trace.kernels.launch_us)[step.kernels]
    duration = trace.kernels.duration_us[step.kernels]
    times = {
        kind: sum(float(duration[(at >= a) & (at < b)].sum()) for a, b, phase in inside if phase.kind == kind)
        for kind in (PREFILL, DECODE, MIXED)
    }
    most = max(times, key=lambda kind: times[kind])
    return most if times[most] >= ALMOST_ALL * sum(times.values()) else MIXED


def of_one_kind(trace: Trace, steps: Sequence[Step]) -> tuple[str, list[Step]]:
    """The steps of the kind that takes most kernel time, with its name; all of them, and "", where no annotation tells
    kinds apart. What a prefill takes says nothing of a decode, and their mean is neither's time."""
    kinds = [kind_of_step(trace, step) for step in steps] if any(map(phase_of, trace.names)) else []
    if not any(kinds):
        return "", list(steps)
    times: dict[str, float] = {}
    for step, kind in zip(steps, kinds, strict=True):
        if kind:
            times[kind] = times.get(kind, 0.0) + float(trace.kernels.duration_us[step.kernels].sum())
    most = max(times, key=lambda kind: times[kind])
    return most, [step for step, kind in zip(steps, kinds, strict=True) if kind == most]


def _tokens(phase: Phase) -> int:
    return phase.prefill_tokens + phase.decode_tokens


def _windows(trace: Trace) -> Iterator[tuple[float, float, Phase]]:
    known = {i: phase for i, name in enumerate(trace.names) if (phase := phase_of(name)) is not None}
    annotations = trace.annotations
    for row in np.flatnonzero(np.isin(annotations.name, list(known))).tolist():
        yield float(annotations.start_us[row]), float(annotations.end_us[row]), known[int(annotations.name[row])]
