"""Two validations side by side: what may be called faster, and what may not. Pure functions of API dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def _timed(validation: Json) -> dict[str, Json]:
    return {c["name"]: c for c in validation.get("candidates") or ()}


def _span(candidate: Json | None) -> Json | None:
    return candidate.get("time_us") if candidate else None


def _row_verdict(a: Json | None, b: Json | None, comparable: bool) -> str:
    """Faster or slower only where both were timed on one kind of device and the intervals are apart."""
    if a is None and b is None:
        return "timed in neither"
    if a is None:
        return "timed only in B"
    if b is None:
        return "timed only in A"
    if not comparable:
        return "not comparable"
    if a["low"] <= b["high"] and b["low"] <= a["high"]:
        return "no difference: the intervals overlap"
    return "B is faster" if b["median"] < a["median"] else "B is slower"


def compare(left: Json, right: Json) -> dict[str, Any]:
    """rows (name, a, b, ratio, verdict), the verdict in one sentence, and whether one was refused.

    a and b are {median, low, high} in µs or None; ratio is B's median over A's.
    """
    a_all, b_all = _timed(left), _timed(right)
    reasons = []
    if not left.get("device") or not right.get("device"):
        reasons.append("at least one of them was not measured on a GPU")
    elif left["device"] != right["device"]:
        reasons.append(f"the devices differ ({left['device']}, {right['device']})")
    if (left.get("region") or "").split() != (right.get("region") or "").split():
        reasons.append("the regions differ")
    comparable = not reasons
    rows: list[dict[str, Any]] = []
    for name in [*a_all, *(n for n in b_all if n not in a_all)]:
        a, b = _span(a_all.get(name)), _span(b_all.get(name))
        rows.append(
            {
                "name": name,
                "a": a,
                "b": b,
                "a_status": a_all[name]["status"] if name in a_all else "absent",
                "b_status": b_all[name]["status"] if name in b_all else "absent",
                "ratio": b["median"] / a["median"] if a and b and a["median"] else None,
                "verdict": _row_verdict(a, b, comparable),
            }
        )
    if not comparable:
        text = "No verdict: " + ", and ".join(reasons) + ". The numbers stand beside each other for reading only."
        return {"rows": rows, "verdict": text, "refused": True}
    changed = [row["name"] for row in rows if row["verdict"] in ("B is faster", "B is slower")]
    if not changed:
        text = "No difference: every pair of intervals overlaps, or was timed on one side only."
    else:
        text = f"{len(changed)} of {len(rows)} candidates differ beyond their intervals: {', '.join(changed)}."
    if left.get("best") and right.get("best") and left["best"] != right["best"]:
        text += f" The fastest changed from {left['best']} to {right['best']}."
    return {"rows": rows, "verdict": text, "refused": False}
