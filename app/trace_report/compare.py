"""Two traces side by side: what got faster, slower, is new or gone, and when nothing may be said. Pure functions.

Regions are the same by their key (their text), then by name and module; those of one name that are left are taken
together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from app.objects.region import AnyRegion
from app.objects.trace import AnyTrace, ComparedPart, ComparedStep, Comparison, StepTimes, Verdict
from app.trace_report.compared_attention import masked_in_one
from app.units import duration
from profiler.hardware import find_device

LEAST_CHANGE = 0.05
"""Below this a change of one region is none, however steady the steps are: clocks and caches move that much."""
FASTER: Verdict = "faster"
SLOWER: Verdict = "slower"
SAME: Verdict = "no difference"
NEW: Verdict = "new"
GONE: Verdict = "gone"
UNSURE: Verdict = "no verdict"


@dataclass(frozen=True, slots=True)
class Part:
    """A region or a rest of one step. key: of a region; count: how many parts of the name are taken together."""

    name: str
    kind: Literal["region", "rest"]
    time_us: float
    tool: str
    key: str | None = None
    id: str | None = None
    module: str = ""
    count: int = 1


Parts = list[Part]
Pair = tuple[Part | None, Part | None]
Same = Callable[[Part], Hashable]
"""The name by which a part is known again; None for none."""


def compare_traces(left: AnyTrace, right: AnyTrace, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Both steps, part by part, with the verdict in words.

    Refused where the devices differ or are not known, or one trace has a single step: then nothing is called faster.
    names: what the words call the two.
    """
    reasons = _reasons(left, right, names)
    margin = max(LEAST_CHANGE, *(_spread(t) for t in (left, right)))
    rows = [_row(a, b, margin, not reasons) for a, b in _pairs(left, right)]
    rows.sort(key=lambda row: -abs(row["change_us"]))
    step = _step(left, right, not reasons)
    verdict = _words(rows, step, reasons)
    masked = "" if reasons else masked_in_one(regions_of(left), regions_of(right), names)
    return {"rows": rows, "step": step, "refused": bool(reasons), "because": ", and ".join(reasons), "margin": margin,
            "verdict": f"{verdict} {masked}".rstrip()}  # fmt: skip


def _reasons(left: AnyTrace, right: AnyTrace, names: tuple[str, str]) -> list[str]:
    reasons = []
    ours, theirs = left.get("device"), right.get("device")
    if not ours or not theirs:
        reasons.append("a trace does not name its GPU")
    elif ours != theirs and not _same_kind(ours, theirs):
        reasons.append(f"the devices differ ({ours}, {theirs})")
    for side, trace in zip(names, (left, right), strict=True):
        times = trace.get("step_times")
        if times is None or times["count"] < 2:
            reasons.append(
                f"{side} has one step, so how much its steps differ by themselves is not known: record several, "
                "`schedule(active=5, ...)`"
            )
    return reasons


def _same_kind(one: str, other: str) -> bool:
    """Whether two names are one entry of the device table."""
    entry = find_device(one)
    return entry is not None and entry == find_device(other)


def _spread(trace: AnyTrace) -> float:
    """How far a trace's own steps lie apart, of their median."""
    times = trace.get("step_times")
    return (times["high_us"] - times["low_us"]) / times["median_us"] if times and times["median_us"] else 0.0


def _step(left: AnyTrace, right: AnyTrace, comparable: bool) -> ComparedStep | None:
    a, b = left.get("step_times"), right.get("step_times")
    if not a or not b:
        return None
    ratio = b["median_us"] / a["median_us"] if a["median_us"] else None
    return {"a": a, "b": b, "ratio": ratio, "verdict": _step_verdict(a, b) if comparable else UNSURE}


def _step_verdict(a: StepTimes, b: StepTimes) -> Verdict:
    if a["low_us"] <= b["high_us"] and b["low_us"] <= a["high_us"]:
        return SAME
    return FASTER if b["median_us"] < a["median_us"] else SLOWER


def _pairs(left: AnyTrace, right: AnyTrace) -> list[Pair]:
    """Parts of the two steps that are the same part; None on one side for what is new or gone."""
    ours, theirs = _parts(left), _parts(right)
    pairs: list[Pair] = []
    for same in (_key, _place):
        ours, theirs, matched = _match(ours, theirs, same)
        pairs += matched
    mine, other = _by_name(ours), _by_name(theirs)
    for name in dict.fromkeys([*mine, *other]):
        here, there = mine.get(name, []), other.get(name, [])
        if here and there:  # of one name, and no telling which is which: together
            pairs.append((_together(here), _together(there)))
        else:
            pairs += [*((p, None) for p in here), *((None, p) for p in there)]
    return pairs


def _key(part: Part) -> Hashable:
    return (part.kind, part.key) if part.key else None


def _place(part: Part) -> Hashable:
    return (part.kind, part.name, part.module) if part.module else None


def _by_name(parts: Parts) -> dict[tuple[str, str], Parts]:
    named: dict[tuple[str, str], Parts] = {}
    for part in parts:
        named.setdefault((part.kind, part.name), []).append(part)
    return named


def _together(parts: Parts) -> Part:
    """Several parts of one name as one."""
    longest = max(parts, key=lambda p: p.time_us)
    if len(parts) == 1:
        return longest
    return replace(longest, time_us=sum(p.time_us for p in parts), id=None, module="", count=len(parts))


def _match(ours: Parts, theirs: Parts, same: Same) -> tuple[Parts, Parts, list[Pair]]:
    """What is left of both, and the pairs whose name by `same` is one part's alone on either side."""
    mine, other = _unique(ours, same), _unique(theirs, same)
    paired = [(part, other[name]) for name, part in mine.items() if name in other]
    taken = {id(part) for pair in paired for part in pair}
    return [p for p in ours if id(p) not in taken], [p for p in theirs if id(p) not in taken], [*paired]


def _unique(parts: Parts, same: Same) -> dict[Hashable, Part]:
    named: dict[Hashable, Parts] = {}
    for part in parts:
        if (name := same(part)) is not None:
            named.setdefault(name, []).append(part)
    return {name: held[0] for name, held in named.items() if len(held) == 1}


def _parts(trace: AnyTrace) -> Parts:
    """A step's regions and rests."""
    parts = [
        Part(
            name=region["name"],
            kind="region",
            time_us=region.get("time_us_per_step") or 0.0,
            tool=advice["tool"] if (advice := region.get("advice")) else "none",
            key=region.get("key"),
            id=str(region_id) if (region_id := region.get("id")) else None,
            module=source["module"] if (source := region.get("source")) else "",
        )
        for region in regions_of(trace)
    ]
    rests = trace.get("rests") or []
    return [*parts, *(Part(rest["name"], "rest", rest["time_us"], "rest") for rest in rests if rest["time_us"])]


def regions_of(trace: AnyTrace) -> Sequence[AnyRegion]:
    """Its regions; none before they are known."""
    return trace.get("regions") or ()


def _row(a: Part | None, b: Part | None, margin: float, comparable: bool) -> ComparedPart:
    part = b or a
    assert part is not None
    before, after = (p.time_us if p else None for p in (a, b))
    ratio = after / before if before and after is not None else None
    verdict = GONE
    if a is None:
        verdict = NEW
    elif b is not None:
        verdict = _part_verdict(ratio, margin) if comparable else UNSURE
    return {
        "name": part.name, "kind": part.kind, "module": part.module, "tool": part.tool, "a": before,
        "b": after, "change_us": (after or 0.0) - (before or 0.0), "ratio": ratio, "verdict": verdict,
        "a_count": a.count if a else 0, "b_count": b.count if b else 0,
        "a_id": a.id if a else None, "b_id": b.id if b else None,
    }  # fmt: skip


def _part_verdict(ratio: float | None, margin: float) -> Verdict:
    if ratio is None or abs(ratio - 1) <= margin:
        return SAME
    return FASTER if ratio < 1 else SLOWER


def _words(rows: Sequence[ComparedPart], step: ComparedStep | None, reasons: Sequence[str]) -> str:
    if reasons:
        return f"No verdict: {', and '.join(reasons)}. The numbers stand next to each other for reading only."
    counted = [(word, sum(r["verdict"] == word for r in rows)) for word in (FASTER, SLOWER, NEW, GONE)]
    told = ", ".join(f"{n} {word}" for word, n in counted if n) or "nothing changed beyond the spread of the steps"
    if step is None:
        return f"Of the parts of the step: {told}."
    if step["verdict"] == SAME:
        return f"The step takes as long as before: the ranges of both overlap. Of its parts: {told}."
    times = f"{duration(step['a']['median_us'])} to {duration(step['b']['median_us'])}"
    return f"The step got {step['verdict']}, {times}. Of its parts: {told}."
