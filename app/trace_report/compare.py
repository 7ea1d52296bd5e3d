"""Two traces side by side: what got faster, slower, is new or gone, and when nothing may be said. Pure functions.

Regions are the same by their key (their text), then by name and module; those of one name that are left are taken
together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from app.units import duration
from profiler.hardware import find_device

Json = Mapping[str, Any]

Same = Callable[[dict[str, Any]], Hashable]
Parts = list[dict[str, Any]]

LEAST_CHANGE = 0.05
"""Below this a change of one region is none, however steady the steps are: clocks and caches move that much."""
FASTER, SLOWER, SAME, NEW, GONE, UNSURE = "faster", "slower", "no difference", "new", "gone", "no verdict"


def compare_traces(left: Json, right: Json, names: tuple[str, str] = ("A", "B")) -> dict[str, Any]:
    """rows, the verdict in words, whether it was refused and why, the margin of a change, step {a, b, ratio, verdict}.

    A row: name, kind ("region", "rest"), tool, a and b in µs of one step or None, change_us, ratio, verdict, ids, and
    how many parts of the name stand together on each side.
    Refused where the devices differ or are not known, or one trace has a single step: then nothing is called faster.
    names: what the words call the two.
    """
    reasons = _reasons(left, right, names)
    margin = max(LEAST_CHANGE, *(_spread(t) for t in (left, right)))
    rows = [_row(a, b, margin, not reasons) for a, b in _pairs(left, right)]
    rows.sort(key=lambda row: -abs(row["change_us"]))
    step = _step(left, right, not reasons)
    return {"rows": rows, "step": step, "refused": bool(reasons), "because": ", and ".join(reasons), "margin": margin,
            "verdict": _words(rows, step, reasons)}  # fmt: skip


def _reasons(left: Json, right: Json, names: tuple[str, str]) -> list[str]:
    reasons = []
    if not left.get("device") or not right.get("device"):
        reasons.append("a trace does not name its GPU")
    elif left["device"] != right["device"] and not _same_kind(left["device"], right["device"]):
        reasons.append(f"the devices differ ({left['device']}, {right['device']})")
    for side, trace in zip(names, (left, right), strict=True):
        if ((trace.get("step_times") or {}).get("count") or 0) < 2:
            reasons.append(
                f"{side} has one step, so how much its steps differ by themselves is not known: record several, "
                "`schedule(active=5, ...)`"
            )
    return reasons


def _same_kind(one: str, other: str) -> bool:
    """Whether two names are one entry of the device table."""
    found = find_device(one)
    return found is not None and found == find_device(other)


def _spread(trace: Json) -> float:
    """How far a trace's own steps lie apart, of their median."""
    times = trace.get("step_times") or {}
    return (times["high_us"] - times["low_us"]) / times["median_us"] if times.get("median_us") else 0.0


def _step(left: Json, right: Json, comparable: bool) -> dict[str, Any] | None:
    a, b = left.get("step_times"), right.get("step_times")
    if not a or not b:
        return None
    if not comparable:
        verdict = UNSURE
    elif a["low_us"] <= b["high_us"] and b["low_us"] <= a["high_us"]:
        verdict = SAME
    else:
        verdict = FASTER if b["median_us"] < a["median_us"] else SLOWER
    return {"a": a, "b": b, "ratio": b["median_us"] / a["median_us"] if a["median_us"] else None, "verdict": verdict}


def _pairs(left: Json, right: Json) -> list[tuple[dict[str, Any] | None, dict[str, Any] | None]]:
    """Parts of the two steps that are the same part; None on one side for what is new or gone."""
    ours, theirs = _parts(left), _parts(right)
    pairs: list[tuple[dict[str, Any] | None, dict[str, Any] | None]] = []
    for same in (
        lambda p: (p["kind"], p["key"]) if p["key"] else None,
        lambda p: (p["kind"], p["name"], p["module"]) if p["module"] else None,
    ):
        ours, theirs, found = _match(ours, theirs, same)
        pairs += found
    mine, other = _by_name(ours), _by_name(theirs)
    for name in dict.fromkeys([*mine, *other]):
        here, there = mine.get(name, []), other.get(name, [])
        if here and there:  # of one name, and no telling which is which: together
            pairs.append((_together(here), _together(there)))
        else:
            pairs += [*((p, None) for p in here), *((None, p) for p in there)]
    return pairs


def _by_name(parts: Parts) -> dict[tuple[str, str], Parts]:
    found: dict[tuple[str, str], Parts] = {}
    for part in parts:
        found.setdefault((part["kind"], part["name"]), []).append(part)
    return found


def _together(parts: Parts) -> dict[str, Any]:
    """Several parts of one name as one."""
    longest = max(parts, key=lambda p: p["time_us"])
    if len(parts) == 1:
        return longest
    return {**longest, "time_us": sum(p["time_us"] for p in parts), "id": None, "module": "", "count": len(parts)}


def _match(ours: Parts, theirs: Parts, same: Same) -> tuple[Parts, Parts, list[tuple[Any, Any]]]:
    """What is left of both, and the pairs whose name by `same` is one part's alone on either side."""
    mine, other = _unique(ours, same), _unique(theirs, same)
    both = mine.keys() & other.keys()
    paired = [(mine[k], other[k]) for k in mine if k in both]
    taken = {id(p) for pair in paired for p in pair}
    return [p for p in ours if id(p) not in taken], [p for p in theirs if id(p) not in taken], paired


def _unique(parts: Parts, same: Same) -> dict[Hashable, dict[str, Any]]:
    found: dict[Hashable, Parts] = {}
    for part in parts:
        if (name := same(part)) is not None:
            found.setdefault(name, []).append(part)
    return {name: held[0] for name, held in found.items() if len(held) == 1}


def _parts(trace: Json) -> Parts:
    """A step's regions and rests: name, kind, key, module, time_us, id, tool."""
    regions = [
        {
            "name": r["name"], "kind": "region", "key": r.get("key"), "id": r.get("id"),
            "module": (r.get("source") or {}).get("module") or "", "time_us": r.get("time_us_per_step") or 0.0,
            "tool": (r.get("advice") or {}).get("tool") or "none",
        }
        for r in trace.get("regions") or ()
    ]  # fmt: skip
    rests = [
        {"name": r["name"], "kind": "rest", "key": None, "id": None, "module": "", "time_us": r["time_us"],
         "tool": "rest"}
        for r in trace.get("rests") or ()
        if r["time_us"]
    ]  # fmt: skip
    return [*regions, *rests]


def _row(a: dict[str, Any] | None, b: dict[str, Any] | None, margin: float, comparable: bool) -> dict[str, Any]:
    part = b or a
    assert part is not None
    before, after = (p["time_us"] if p else None for p in (a, b))
    ratio = after / before if before and after is not None else None
    if a is None:
        verdict = NEW
    elif b is None:
        verdict = GONE
    elif not comparable:
        verdict = UNSURE
    elif ratio is None or abs(ratio - 1) <= margin:
        verdict = SAME
    else:
        verdict = FASTER if ratio < 1 else SLOWER
    return {
        "name": part["name"], "kind": part["kind"], "module": part["module"], "tool": part["tool"], "a": before,
        "b": after, "change_us": (after or 0.0) - (before or 0.0), "ratio": ratio, "verdict": verdict,
        "a_count": a.get("count", 1) if a else 0, "b_count": b.get("count", 1) if b else 0,
        "a_id": a["id"] if a else None, "b_id": b["id"] if b else None,
    }  # fmt: skip


def _words(rows: Sequence[Json], step: Json | None, reasons: Sequence[str]) -> str:
    if reasons:
        return f"No verdict: {', and '.join(reasons)}. The numbers stand beside each other for reading only."
    counted = [(word, sum(r["verdict"] == word for r in rows)) for word in (FASTER, SLOWER, NEW, GONE)]
    told = ", ".join(f"{n} {word}" for word, n in counted if n) or "nothing changed beyond the spread of the steps"
    if step is None:
        return f"Of the parts of the step: {told}."
    if step["verdict"] == SAME:
        return f"The step takes as long as before: the ranges of both overlap. Of its parts: {told}."
    times = f"{duration(step['a']['median_us'])} to {duration(step['b']['median_us'])}"
    return f"The step got {step['verdict']}, {times}. Of its parts: {told}."
