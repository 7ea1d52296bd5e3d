"""Two validations side by side: what may be called faster, and what may not. Pure functions of API dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.check.watch import weights
from app.units import count

Json = Mapping[str, Any]

FASTER, SLOWER, SAME = "B is faster", "B is slower", "no difference: the intervals overlap"
NEW, GONE = "new in B", "gone from B"
ONLY_A, ONLY_B, NEITHER, UNSURE = "timed only in A", "timed only in B", "timed in neither", "not comparable"


def compare(left: Json, right: Json) -> dict[str, Any]:
    """rows (name, tool, a, b, statuses, ratio, verdict), the verdict in words, whether one was refused, differences.

    a and b are {median, low, high} in µs or None; ratio is B's median over A's. differences: software whose versions
    are not the same on both sides, which is what a difference may be due to.
    """
    ours, theirs = _candidates(left), _candidates(right)
    reasons = _reasons(left, right)
    rows: list[dict[str, Any]] = []
    for name in [*ours, *(n for n in theirs if n not in ours)]:
        one, other = ours.get(name), theirs.get(name)
        a, b = _span(one), _span(other)
        rows.append(
            {
                "name": name,
                "tool": (one or other or {}).get("tool"),
                "a": a,
                "b": b,
                "a_status": one["status"] if one else "absent",
                "b_status": other["status"] if other else "absent",
                "ratio": b["median"] / a["median"] if a and b and a["median"] else None,
                "verdict": _verdict(one, other, comparable=not reasons),
            }
        )
    return {
        "rows": rows,
        "verdict": _refusal(reasons) if reasons else _words(rows, left, right),
        "refused": bool(reasons),
        "differences": _differences(left, right),
    }


def _candidates(validation: Json) -> dict[str, Json]:
    return {c["name"]: c for c in validation.get("candidates") or ()}


def _span(candidate: Json | None) -> Json | None:
    return candidate.get("time_us") if candidate else None


def _reasons(left: Json, right: Json) -> list[str]:
    """Why nothing may be called faster; [] where both were measured on one kind of device, at the same sizes."""
    reasons = []
    if not left.get("device") or not right.get("device"):
        reasons.append("at least one of them was not measured on a GPU")
    elif left["device"] != right["device"]:
        reasons.append(f"the devices differ ({left['device']}, {right['device']})")
    if (left.get("region") or "").split() != (right.get("region") or "").split():
        reasons.append("the regions differ")
    elif weights(dict(left)) != weights(dict(right)):
        reasons.append("they were measured at other sizes, or with other calls of each")
    return reasons


def _verdict(one: Json | None, other: Json | None, *, comparable: bool) -> str:
    """Faster or slower only where both were timed on one kind of device and the intervals are apart."""
    a, b = _span(one), _span(other)
    if a is None and b is None:
        return NEITHER
    if a is None:
        return NEW if one is None else ONLY_B
    if b is None:
        return GONE if other is None else ONLY_A
    if not comparable:
        return UNSURE
    if a["low"] <= b["high"] and b["low"] <= a["high"]:
        return SAME
    return FASTER if b["median"] < a["median"] else SLOWER


def _refusal(reasons: Sequence[str]) -> str:
    return f"No verdict: {', and '.join(reasons)}. The numbers stand beside each other for reading only."


def _words(rows: Sequence[Json], left: Json, right: Json) -> str:
    """The verdict in a sentence or two."""
    names = {verdict: [r["name"] for r in rows if r["verdict"] == verdict] for verdict in (FASTER, SLOWER, NEW, GONE)}
    words = {FASTER: "faster in B", SLOWER: "slower in B", NEW: "new", GONE: "gone"}
    told = "; ".join(f"{len(found)} {words[v]} ({', '.join(found)})" for v, found in names.items() if found)
    same = sum(r["verdict"] == SAME for r in rows)
    if not names[FASTER] and not names[SLOWER]:
        text = "No difference: every pair of intervals overlaps, or was timed on one side only."
        text += f" Beside them: {told}." if told else ""
    else:
        rest = f"; {same} whose intervals overlap" if same else ""
        text = f"Of {count(len(rows), 'candidate')}: {told}{rest}."
    best = [v.get("best") for v in (left, right)]
    if all(best) and best[0] != best[1]:
        text += f" The fastest changed from {best[0]} to {best[1]}."
    return text


def _differences(left: Json, right: Json) -> list[dict[str, str]]:
    one, other = (v.get("software") or {} for v in (left, right))
    names = dict.fromkeys([*one, *other])
    return [
        {"name": n, "a": str(one.get(n) or "not told"), "b": str(other.get(n) or "not told")}
        for n in names
        if one.get(n) != other.get(n)
    ]
