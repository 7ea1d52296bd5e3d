"""Why an advice is what it is: three sentences, and the criteria read forward. Pure functions of API JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from app.advice.criteria import BY_NAME, CRITERIA, figure
from app.advice.model import EFFORT_ORDER
from app.objects.advice import Advice, Criterion, Tool
from app.thresholds import Thresholds
from app.units import duration, share
from app.web.labels import TOOL_LABELS

Mark = Literal["for", "against", "unknown", "unasked"]


class CriterionRow(TypedDict):
    """A criterion read forward. mark: whether `claim`, which speaks for the tool that it stands under, is true.

    source: "" where it is the criterion's own, which docs/rule.md has.
    """

    name: str
    claim: str
    mark: Mark
    threshold: str
    because: str
    source: str


class CriteriaOfTool(TypedDict):
    """The criteria that speak for one tool where their claims are true."""

    tool: Tool
    rows: list[CriterionRow]


def criteria_of(advice: Advice) -> list[CriteriaOfTool]:
    """The criteria by the tool that they speak for, in the order of effort."""
    judged = {c["name"]: c for c in advice.get("criteria") or ()}
    groups: list[CriteriaOfTool] = []
    for tool in EFFORT_ORDER:
        rows = [_row(judged[c.name]) for c in CRITERIA if c.claim.tool == tool and c.name in judged]
        if rows:
            groups.append({"tool": tool, "rows": rows})
    return groups


def _row(criterion: Criterion) -> CriterionRow:
    threshold = criterion["threshold"]
    number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    return {
        "name": criterion["name"],
        "claim": BY_NAME[criterion["name"]].claim.text,
        "mark": mark_of(criterion),
        "threshold": figure(threshold, criterion["name"]) if number else "",
        "because": criterion["because"],
        "source": "" if criterion["source"] == BY_NAME[criterion["name"]].source else criterion["source"],
    }


def mark_of(criterion: Criterion) -> Mark:
    """Whether a criterion's claim is true."""
    claim = BY_NAME[criterion["name"]].claim
    if claim.only_if_given and criterion["threshold"] is None:
        return "unasked"
    if criterion["holds"] is None:
        return "unknown"
    return "for" if criterion["holds"] is claim.on else "against"


# ----------------------------------------------------------------------------------------------------------- sentences


class Timed(TypedDict):
    """Of a candidate's bar what the sentences need: see app.web.views.region.verdict.Bar."""

    name: str
    label: str
    look: str
    time_us: float
    excluded_by: str
    missing: bool
    advised: bool


def sentences(
    advice: Advice, bars: Sequence[Timed], basis: Literal["measured", "predicted"], settings: Thresholds
) -> list[str]:
    """What decided, the criterion of the tool that is advised, and what nearly decided otherwise: three at most."""
    judged = {c["name"]: c for c in advice.get("criteria") or ()}
    ended = _ended_by(advice, judged)
    then = next((b for b in bars if b["advised"]), None)
    if ended is not None:
        first = f"Decided by the criterion “{BY_NAME[ended['name']].claim.text}”: {ended['because']}"
        return [first, *_nearly(advice, None, [], settings)]
    faster = [
        b for b in bars
        if then is not None and b["time_us"] < then["time_us"] and not b["excluded_by"] and not b["advised"]
    ]  # fmt: skip
    return [
        *_decided(advice, then, bars, basis),
        *_supported(advice, judged),
        *(_nearly(advice, then, faster, settings) or _next(then, bars)),
    ][:3]


def _ended_by(advice: Advice, judged: Mapping[str, Criterion]) -> Criterion | None:
    """The criterion that ended the question; None where times or the order of effort did."""
    if advice["tool"] != "skip" and advice.get("mode") != "reduce-overhead":
        return None
    for criterion in CRITERIA:
        known = judged.get(criterion.name)
        if known is not None and criterion.ends_at is not None and known["holds"] is criterion.ends_at:
            return known
    return None


def _decided(
    advice: Advice, then: Timed | None, bars: Sequence[Timed], basis: Literal["measured", "predicted"]
) -> list[str]:
    now = next((b for b in bars if b["name"] == "eager"), None)
    if then is None:
        return ["Decided by the order of effort: no times are known"]
    if then is now:
        others = [b for b in bars if b is not now and not b["excluded_by"]]
        best = min(others, key=lambda b: b["time_us"], default=None)
        if best is None:
            return []
        return [
            f"Decided by {basis} times: it takes {duration(then['time_us'])}, the fastest other candidate, "
            f"{best['label']}, {duration(best['time_us'])}"
        ]
    from_now = f" against {duration(now['time_us'])} now" if now is not None else ""
    return [f"Decided by {basis} times: {then['label']} takes {duration(then['time_us'])}{from_now}"]


def _supported(advice: Advice, judged: Mapping[str, Criterion]) -> list[str]:
    """The criterion that speaks for the tool that is advised, or what it says against it all the same."""
    for criterion in CRITERIA:
        known = judged.get(criterion.name)
        if known is None or criterion.claim.tool != advice["tool"] or advice["tool"] == "skip":
            continue
        mark = mark_of(known)
        if mark == "for" and known["because"] == f"it runs on {known['value']} already":
            return [f"It stays a library's call: now it is {known['value']}"]
        if mark == "for":
            return [f"For {TOOL_LABELS[advice['tool']]}: {known['because']}"]
        if mark == "against":
            lead = "Fusion is partial" if advice["tool"] == "compile" else "Against it"
            return [f"{lead}: {known['because']}"]
    return []


def _nearly(advice: Advice, then: Timed | None, faster: Sequence[Timed], settings: Thresholds) -> list[str]:
    """Who is faster and was not taken, and why; else the nearest change that another tool would come of."""
    if then is not None and faster:
        best = min(faster, key=lambda b: b["time_us"])
        ahead = 1 - best["time_us"] / then["time_us"]
        return [f"Nearly {best['label']}: {share(ahead)} less time, {_not_taken(best, then, ahead, settings)}"]
    changes = advice.get("would_change") or ()
    if not changes:
        return []
    words, _, _ = changes[0]["because"].rpartition(": ")
    return [f"Nearly {TOOL_LABELS[changes[0]['tool']]}: it would be {words}"]


def _next(then: Timed | None, bars: Sequence[Timed]) -> list[str]:
    """The fastest of the others, where none is faster and nothing is known to change the advice."""
    others = [b for b in bars if not b["advised"] and b["name"] != "eager" and not b["excluded_by"]]
    best = min(others, key=lambda b: b["time_us"], default=None)
    if then is None or best is None or then["name"] == "eager":
        return []
    slower = best["time_us"] / then["time_us"] - 1
    return [f"Next is {best['label']}: {duration(best['time_us'])}, {share(slower)} more time"]


def _not_taken(best: Timed, then: Timed, ahead: float, settings: Thresholds) -> str:
    if best["missing"]:
        return "but its package is not installed here"
    kernel = best["look"] in ("triton", "cuda")
    if kernel and then["look"] not in ("triton", "cuda"):
        if ahead < settings.win_margin:
            return f"under the {share(settings.win_margin)} that a kernel must win: a tie, broken by effort"
        return f"but not surely by the {share(settings.win_margin)} that a kernel must win"
    if ahead <= settings.near_best:
        return f"within the {share(settings.near_best)} that count as a tie, broken by effort"
    return "but within the estimate's error: a tie, broken by effort"
