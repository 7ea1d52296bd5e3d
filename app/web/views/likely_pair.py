"""Which trace is most likely to be compared with another: the same model's, on the same GPU, of the same time.

Pure functions of API JSON. A name says the model and how it ran: `llama_prefill_bf16_eager` and
`llama_prefill_bf16_compiled` are one model twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.objects.trace import TraceSummary
from app.trace_report.comparison.serving import same_kind
from profiler.hardware import find_device

MODES = frozenset(
    "eager compiled compile inductor cudagraph cudagraphs graph graphs graphed reduce overhead max autotune default "
    "before after old new base baseline fast slow stack stacks noshapes shapes opt optimized v0 v1 v2 v3 v4 "
    "run1 run2".split()
)
"""Words of a file's name that say how a model ran and not which."""
WORK = frozenset("train training prefill decode inference infer eval generate".split())
"""Words of a file's name that say what a step does."""
SUFFIXES = frozenset({"json", "gz", "pt", "trace", "zip"})
ALIKE = 0.5
"""Of both names' other words that are the same, from which on it is taken for one model."""
NO_OTHER = "no other trace does the same work"
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class LikelyPair:
    """a, b: ids, the one that was uploaded first as A; because: why these, in words. "" for none."""

    a: str = ""
    b: str = ""
    because: str = ""


def likely_pair(traces: Sequence[TraceSummary], a: str = "", b: str = "") -> LikelyPair:
    """The pair that is offered. a, b: what was asked for; the newest trace where neither was.

    traces: newest first. Those that are not read are passed over.
    """
    ready = [t for t in traces if t["status"] == "ready"]
    known = {t["id"]: t for t in ready}
    given = known.get(a) or known.get(b) or (ready[0] if ready else None)
    others = [t for t in ready if given is not None and t["id"] != given["id"]]
    if given is None or not others:
        return LikelyPair(a=given["id"] if given else "")
    if a in known and b in known:
        return LikelyPair(a, b)
    same = [t for t in others if _same_work(given, t)]
    best = max(same or others, key=lambda t: _rank(given, t))
    because = _because(given, best) if same else NO_OTHER
    if given["id"] == a:
        return LikelyPair(a, best["id"], because)
    if given["id"] == b:
        return LikelyPair(best["id"], b, because)
    first, second = sorted((given, best), key=lambda t: t["created_at"])
    return LikelyPair(first["id"], second["id"], because)


def _same_work(one: TraceSummary, other: TraceSummary) -> bool:
    """Whether both have a backward pass or neither has, and both prefill or both decode by their shapes. Where shapes
    do not tell, names do (train, prefill, decode)."""
    trains = [None if (us := t.get("backward_time_us")) is None else us > 0.0 for t in (one, other)]
    alike = None in trains or trains[0] is trains[1]
    if (served_alike := same_kind(one.get("serving"), other.get("serving"))) is not None:
        return alike and served_alike
    said = [_words(t) & WORK for t in (one, other)]
    return alike and (not all(said) or bool(said[0] & said[1]))


def _rank(given: TraceSummary, other: TraceSummary) -> tuple[float, bool, float]:
    return round(_name_similarity(given, other), 2), _same_device(given, other), -_seconds_between(given, other)


def _words(trace: TraceSummary) -> frozenset[str]:
    return frozenset(_WORD.findall(trace["name"].lower())) - SUFFIXES


def _name_similarity(one: TraceSummary, other: TraceSummary) -> float:
    """Of the words of both names that say which model it is, those that they share; below ALIKE nothing is read in."""
    left, right = _words(one) - MODES, _words(other) - MODES
    similarity = len(left & right) / len(left | right) if left | right else 0.0
    return similarity if similarity >= ALIKE else 0.0


def _same_device(one: TraceSummary, other: TraceSummary) -> bool:
    ours, theirs = one["device"], other["device"]
    if not ours or not theirs:
        return False
    return ours == theirs or (find_device(ours) is not None and find_device(ours) == find_device(theirs))


def _seconds_between(one: TraceSummary, other: TraceSummary) -> float:
    try:
        times = [datetime.fromisoformat(t["created_at"]) for t in (one, other)]
        return abs((times[0] - times[1]).total_seconds())
    except (ValueError, TypeError):
        return float("inf")


def _because(given: TraceSummary, best: TraceSummary) -> str:
    similarity = _name_similarity(given, best)
    modes = " and ".join(sorted((_words(given) ^ _words(best)) & MODES))
    parts = ["the same model by its name" if similarity == 1.0 else "a like name" if similarity else ""]
    parts[0] += f" (but for {modes})" if parts[0] and modes else ""
    parts.append("the same GPU" if _same_device(given, best) else "")
    parts.append("" if similarity else "uploaded nearest to it")
    return ", ".join(p for p in parts if p)
