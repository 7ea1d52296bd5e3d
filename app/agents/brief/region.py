"""A region's text as a brief. Pure functions of the API's object."""

from __future__ import annotations

from collections.abc import Sequence

from app.advice.case import label_of
from app.agents.brief.commands import REGION, command, given, text_proofs
from app.agents.brief.fit import NAME, REASON, TITLE, code_text, fit_brief, one_line
from app.agents.brief.numbers import rounded, rounded_range
from app.agents.brief.tokens import MAX_TOKENS
from app.agents.brief.trace import why_not
from app.objects.advice import Advice, Alternative
from app.objects.brief import Brief, BriefAction, BriefCall, BriefLeave
from app.objects.common import Range
from app.objects.region import Region, RegionBody
from app.trace_report.actions.regions import title_of
from app.units import amount

MOST_OPTIONS = 4
"""Other ways than the advised one that are told, the fastest first."""


def region_brief(region: Region | RegionBody, file: str, *, most: int = MAX_TOKENS) -> Brief:
    """What to do about a region's text. file: as commands take it."""
    advice = region["advice"]
    assert advice is not None  # of a text that was read there is always advice
    options = sorted((a for a in advice["alternatives"] if a["time_us"]), key=_mid)
    now = next((a for a in options if a["candidate"] == "eager"), None)
    chosen = _chosen(advice, options)
    return fit_brief(
        {
            "of": "region",
            "name": one_line(region["name"], NAME),
            "device": one_line(advice["device"], NAME),
            "step": None,
            "call": _call(region, advice, now, chosen),
            "bottleneck": one_line(_bottleneck(region), REASON),
            "do": _do(region, advice, now, chosen),
            "do_not": _do_not(advice, options, chosen),
            "verify": text_proofs(given(file, REGION)),
            "warnings": [one_line(note, REASON) for note in advice["notes"]],
            "left_out": {"do": 0, "do_not": 0, "warnings": 0, "edits": 0},
            "more": command("advise", given(file, REGION), "--json"),
        },
        most,
    )


def _mid(alternative: Alternative) -> float:
    return alternative["time_us"]["mid"] if alternative["time_us"] else 0.0


def _chosen(advice: Advice, options: Sequence[Alternative]) -> Alternative | None:
    """The fastest admitted way that is of the advised tool and mode."""
    own = [a for a in options if a["tool"] == advice["tool"] and a["admitted"]]
    return next((a for a in own if a["mode"] == advice["mode"]), own[0] if own else None)


def _call(
    region: Region | RegionBody, advice: Advice, now: Alternative | None, chosen: Alternative | None
) -> BriefCall:
    cost = region["cost"]
    return {
        "now_us": rounded_range(now["time_us"]) if now else None,
        "advised_us": rounded_range(chosen["time_us"]) if chosen else None,
        "floor_us": rounded(advice["floor_us"]),
        "bound": cost["bound"] if cost else None,
    }


def _bottleneck(region: Region | RegionBody) -> str:
    """What a call is made of, as written and at best."""
    cost = region["cost"]
    if cost is None:
        return ""
    written, ideal = cost["unfused"], cost["ideal"]
    return (
        f"{cost['bound']}: {written['launches']} launches move {amount(written['bytes_moved'])} where "
        f"{amount(ideal['bytes_moved'])} is the least, and compute {amount(written['flops'], 'FLOP')}"
    )


def _do(
    region: Region | RegionBody, advice: Advice, now: Alternative | None, chosen: Alternative | None
) -> list[BriefAction]:
    if advice["tool"] == "skip":
        return []
    measured = advice["validation"]
    return [
        {
            "rank": 1,
            "title": one_line(title_of(region["name"], advice), TITLE),
            "tool": advice["tool"],
            "saves_us": _saved(now, chosen),
            "evidence": one_line(f"measured on {measured['device']}", TITLE) if measured else "predicted",
            "because": one_line(advice["action"], REASON),
            "edit": {
                "file": "",
                "line": None,
                "module": "",
                "before": code_text(region["text"] or ""),
                "after": code_text(advice["call"]),
            },
            "numerics": "",
            "instead_of": None,
            "region": None,
        }
    ]


def _saved(now: Alternative | None, chosen: Alternative | None) -> Range | None:
    """Of one call; both ends by the ends that save least and most, never below nothing."""
    if now is None or chosen is None or not now["time_us"] or not chosen["time_us"]:
        return None
    before, after = now["time_us"], chosen["time_us"]
    low, high = before["low"] - after["high"], before["high"] - after["low"]
    mid = before["mid"] - after["mid"]
    return rounded_range({"low": min(max(0.0, low), mid), "mid": mid, "high": max(high, mid)})


def _do_not(advice: Advice, options: Sequence[Alternative], chosen: Alternative | None) -> list[BriefLeave]:
    """The fastest other ways, each with what speaks against it; why nothing is done where that is the advice."""
    told: list[BriefLeave] = []
    if advice["tool"] == "skip":
        told.append(
            {
                "what": "anything else than it is",
                "share_of_step": None,
                "because": one_line(f"{advice['headline']}. {advice['action']}", REASON),
            }
        )
    others = [a for a in options if a is not chosen and a["candidate"] != "eager"]
    for other in others[:MOST_OPTIONS]:
        why = why_not(other, chosen) if chosen else other.get("excluded_by") or "not advised"
        told.append(
            {
                "what": one_line(label_of(other["candidate"]), TITLE),
                "share_of_step": None,
                "because": one_line(f"{_mid(other):.4g} µs a call; {why}", REASON),
            }
        )
    return told
