"""Two traces side by side: how much faster the step is and how sure, and its parts in pairs. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from app.objects.region import AnyRegion
from app.objects.trace import (
    AnyTrace,
    ComparedPart,
    ComparedPiece,
    ComparedStep,
    Comparison,
    PairedBy,
    StepTimes,
    Sureness,
    Verdict,
)
from app.trace_report.comparison.compared_attention import masked_in_one
from app.trace_report.comparison.pairing import Pair, Part, Parts, pair
from app.trace_report.comparison.same_work import NOT_THE_SAME, why_not_the_same
from app.trace_report.part_operations import is_fused, operations, sizes
from app.units import count, duration, factor, share
from profiler.hardware import find_device

LEAST_CHANGE = 0.05
"""Below this a change of one region is none, however steady the steps are: clocks and caches move that much."""
ALONE_CHANGE = 0.15
"""The same where a trace has one step. Of 24 recordings of several steps among the tests' traces, 21 have none farther
than 12 % from the median."""
CLEAR_OF_SPREAD = 3.0
"""A change is sure where it is so many times as large as the steps of either trace lie apart."""
PREDICTED = "one step is predicted from a program and the other was recorded (record it before and after the change)"
FASTER: Verdict = "faster"
SLOWER: Verdict = "slower"
SAME: Verdict = "no difference"
NEW: Verdict = "new"
GONE: Verdict = "gone"
UNSURE: Verdict = "no verdict"
PAIR_SURENESS: dict[PairedBy, Sureness] = {
    "text": "sure", "module": "sure", "sizes": "sure", "name": "likely", "operations": "likely",
    "weak operations": "unsure", "alone": "likely",
}  # fmt: skip


def compare_traces(left: AnyTrace, right: AnyTrace, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Both steps, part by part, with the verdict in words.

    Refused where one was recorded and one is predicted, the devices differ or are not known, or the steps do other work
    (`same_work`): then nothing is called faster. names: what the words call the two.
    """
    pairs = pair(_parts(left), _parts(right))
    other_work = why_not_the_same(left, right, pairs, names)
    reasons = [*_reasons(left, right), *([other_work] if other_work else [])]
    alone = any((t.get("step_times") or {"count": 1})["count"] < 2 for t in (left, right))
    margin = max(ALONE_CHANGE if alone else LEAST_CHANGE, *(_spread(t) for t in (left, right)))
    rows = [_row(p, margin, not reasons) for p in pairs]
    rows.sort(key=lambda row: -abs(row["change_us"]))
    step = _step(left, right, names, not reasons)
    verdict = _words(rows, step, reasons, names)
    masked = "" if reasons else masked_in_one(regions_of(left), regions_of(right), names)
    return {"rows": rows, "step": step, "refused": bool(reasons), "because": ", and ".join(reasons), "margin": margin,
            "masked": masked, "verdict": f"{verdict} {masked}".rstrip()}  # fmt: skip


def _reasons(left: AnyTrace, right: AnyTrace) -> list[str]:
    if bool(left.get("origin")) != bool(right.get("origin")):
        return [PREDICTED]
    ours, theirs = left.get("device"), right.get("device")
    if not ours or not theirs:
        return ["a trace does not name its GPU"]
    if ours != theirs and not _same_kind(ours, theirs):
        return [f"the devices differ ({ours}, {theirs})"]
    return []


def _same_kind(one: str, other: str) -> bool:
    """Whether two names are one entry of the device table."""
    entry = find_device(one)
    return entry is not None and entry == find_device(other)


def _spread(trace: AnyTrace) -> float:
    """How far a trace's own steps lie apart, of their median."""
    times = trace.get("step_times")
    return (times["high_us"] - times["low_us"]) / times["median_us"] if times and times["median_us"] else 0.0


# ------------------------------------------------------------------------------------------------------------ the step


def _step(left: AnyTrace, right: AnyTrace, names: tuple[str, str], comparable: bool) -> ComparedStep | None:
    a, b = left.get("step_times"), right.get("step_times")
    if not a or not b:
        return None
    ratio = b["median_us"] / a["median_us"] if a["median_us"] else None
    if not comparable or ratio is None:
        return {"a": a, "b": b, "ratio": ratio, "verdict": UNSURE, "sure": "unsure", "because": ""}
    verdict, sure, because = _judge(a, b, ratio, names)
    return {"a": a, "b": b, "ratio": ratio, "verdict": verdict, "sure": sure, "because": because}


def _judge(a: StepTimes, b: StepTimes, ratio: float, names: tuple[str, str]) -> tuple[Verdict, Sureness, str]:
    """The verdict on the step, how sure it is, and why: by the number of steps and how far they lie apart."""
    verdict = FASTER if ratio < 1 else SLOWER
    single = [name for name, times in zip(names, (a, b), strict=True) if times["count"] < 2]
    if single:
        have = "has" if len(single) == 1 else "have"
        one = f"{' and '.join(single)} {have} one step, so how far steps differ is not known"
        if abs(ratio - 1) < ALONE_CHANGE:
            return SAME, "unsure", f"{one}: less than {percent(ALONE_CHANGE)} is not told from chance. {RECORD_SEVERAL}"
        return verdict, "likely", f"{one}; more than {percent(ALONE_CHANGE)} is seldom chance. {RECORD_SEVERAL}"
    if a["low_us"] <= b["high_us"] and b["low_us"] <= a["high_us"]:
        return SAME, "unsure", "the ranges of their steps overlap"
    spread_share = max((t["longest_us"] - t["shortest_us"]) / t["median_us"] for t in (a, b))
    steps = f"{count(a['count'], 'step')} and {count(b['count'], 'step')}, which differ by up to {share(spread_share)}"
    separate = a["longest_us"] < b["shortest_us"] or b["longest_us"] < a["shortest_us"]
    if separate and abs(ratio - 1) >= CLEAR_OF_SPREAD * spread_share:
        return verdict, "sure", f"every step of one is {'shorter' if ratio < 1 else 'longer'}: {steps}"
    return verdict, "likely", f"of {steps}, the middle ones do not overlap"


RECORD_SEVERAL = "Record several, `schedule(active=5, ...)`"


def change_words(ratio: float) -> str:
    """ "42 % less time (1.72× as fast)"; "30 % more time (0.77× as fast)"."""
    part, word = (1 - ratio, "less") if ratio < 1 else (ratio - 1, "more")
    return f"{percent(part)} {word} time ({factor(1 / ratio)} as fast)"


def percent(part: float) -> str:
    """Whole per cent where there are ten and more: how far steps differ leaves no more digits."""
    return f"{part * 100:.0f} %" if part >= 0.1 else share(part)


def step_headline(comparison: Comparison, name: str = "B") -> str:
    """The answer in a line: "B takes 42 % less time (1.72× as fast)", and where that is not sure, how it stands."""
    step = comparison["step"]
    if NOT_THE_SAME in comparison["because"]:
        return "Not the same work"
    if comparison["refused"] or step is None or step["ratio"] is None:
        return "No verdict"
    if step["verdict"] == SAME:
        return "No difference that is sure"
    return f"{name} {'' if step['sure'] == 'sure' else 'likely '}takes {change_words(step['ratio'])}"


# ----------------------------------------------------------------------------------------------------------- the parts


def _parts(trace: AnyTrace) -> Parts:
    """A step's regions and rests."""
    parts = [_part(region) for region in regions_of(trace)]
    rests = trace.get("rests") or []
    return [*parts, *(Part(rest["name"], "rest", rest["time_us"], "rest") for rest in rests if rest["time_us"])]


def _part(region: AnyRegion) -> Part:
    source = region.get("source")
    ops = source.get("ops") or [] if source else []
    shapes = region.get("shapes") or []
    return Part(
        name=region["name"],
        kind="region",
        time_us=region.get("time_us_per_step") or 0.0,
        tool=advice["tool"] if (advice := region.get("advice")) else "none",
        key=region.get("key"),
        id=str(region_id) if (region_id := region.get("id")) else None,
        module=source["module"] if source else "",
        calls=region.get("calls_per_step") or 0.0,
        ops=operations(ops),
        fused=any(is_fused(op) for op in ops),
        sizes=sizes(shapes[0].get("operands") or ()) if shapes else (),
    )


def regions_of(trace: AnyTrace) -> Sequence[AnyRegion]:
    """Its regions; none before they are known."""
    return trace.get("regions") or ()


def _row(of: Pair, margin: float, comparable: bool) -> ComparedPart:
    before, after = (sum(p.time_us for p in side) if side else None for side in (of.a, of.b))
    ratio = after / before if before and after is not None else None
    verdict = GONE
    if before is None:
        verdict = NEW
    elif after is not None:
        verdict = _part_verdict(ratio, margin) if comparable else UNSURE
    # The name of a kernel that torch.compile wrote says less than that of what it was made of.
    told = min((side for side in (of.b, of.a) if side), key=lambda side: sum(p.fused for p in side))
    longest = max(of.b or of.a, key=lambda p: p.time_us)
    return {
        "name": _names(told), "kind": longest.kind, "module": longest.module if len(told) == 1 else "",
        "tool": longest.tool, "a": before, "b": after, "change_us": (after or 0.0) - (before or 0.0), "ratio": ratio,
        "verdict": verdict, "by": of.by, "sure": PAIR_SURENESS[of.by],
        "a_count": len(of.a), "b_count": len(of.b), "a_id": _only_id(of.a), "b_id": _only_id(of.b),
        "a_parts": _pieces(of.a), "b_parts": _pieces(of.b),
    }  # fmt: skip


def _names(parts: Sequence[Part]) -> str:
    return ", ".join(dict.fromkeys(p.name for p in sorted(parts, key=lambda p: -p.time_us)))


def _only_id(parts: Sequence[Part]) -> str | None:
    return parts[0].id if len(parts) == 1 else None


def _pieces(parts: Sequence[Part]) -> list[ComparedPiece]:
    return [{"name": p.name, "time_us": p.time_us, "id": p.id} for p in sorted(parts, key=lambda p: -p.time_us)]


def _part_verdict(ratio: float | None, margin: float) -> Verdict:
    if ratio is None or abs(ratio - 1) <= margin:
        return SAME
    return FASTER if ratio < 1 else SLOWER


def _words(
    rows: Sequence[ComparedPart], step: ComparedStep | None, reasons: Sequence[str], names: tuple[str, str]
) -> str:
    if reasons:
        return f"No verdict: {', and '.join(reasons)}. The numbers stand next to each other for reading only."
    counted = [(word, sum(r["verdict"] == word for r in rows)) for word in (FASTER, SLOWER, NEW, GONE)]
    told = ", ".join(f"{n} {word}" for word, n in counted if n) or "nothing changed beyond the spread of the steps"
    if step is None or step["ratio"] is None:
        return f"Of the parts of the step: {told}."
    times = f"{duration(step['a']['median_us'])} to {duration(step['b']['median_us'])}"
    if step["verdict"] == SAME:
        return f"No difference in the step ({times}): {step['because']}. Of its parts: {told}."
    sure = "Sure" if step["sure"] == "sure" else "Likely"
    return f"{names[1]} takes {change_words(step['ratio'])}: {times}. {sure}: {step['because']}. Of its parts: {told}."
