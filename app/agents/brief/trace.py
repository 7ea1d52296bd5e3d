"""A trace as a brief. Pure functions of the API's object, whatever it was made of: a file, or ranks of one job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.advice.case import label_of
from app.agents.brief.commands import command, given, given_program, module_proofs, trace_proofs
from app.agents.brief.fit import NAME, PLACE, REASON, TITLE, code_text, fit_brief, one_line
from app.agents.brief.numbers import rounded, rounded_range
from app.agents.brief.tokens import MAX_TOKENS
from app.objects.advice import Advice, Alternative
from app.objects.brief import Brief, BriefAction, BriefEdit, BriefLeave, BriefStep
from app.objects.common import Note
from app.objects.region import Region, RegionBody
from app.objects.trace import Action, Trace, TraceBody
from app.units import count, duration

LEAST_SHARE = 0.01
"""Of the step: a region below it is not told by itself."""
AnyRegion = Region | RegionBody


def trace_brief(
    trace: Trace | TraceBody, file: str, *, program: Sequence[str] = (), warnings: Sequence[str] = (),
    most: int = MAX_TOKENS,
) -> Brief:  # fmt: skip
    """What to do about a trace's step. file: as commands take it, "" of a program whose trace is not kept; program:
    the words that `advise` takes for it; warnings: further ones, told first."""
    regions = trace["regions"]
    numbers = {region.get("key"): number for number, region in enumerate(regions, 1)}
    actions = _actions(trace.get("actions") or (), regions, numbers)
    wanted = next((a["region"] for a in actions if a["region"]), 1 if regions else None)
    predicted = trace.get("origin") is not None
    place = given(file) if file else ""
    asked = given_program(program) if program else (place,)
    told = [_remark(note["message"], note["remedy"]) for note in _notes(trace["notes"])]
    told += [
        _remark(f"torch.compile: {each['op']} {each['does']}.", each["remedy"])
        for each in trace.get("compile_obstacles") or ()
    ]
    critical = trace.get("critical")
    return fit_brief(
        {
            "of": "module" if predicted else "trace",
            "name": one_line(program[0] if program else trace["name"], NAME),
            "device": one_line(trace.get("estimates_for") or trace["device"] or "", NAME),
            "step": _step(trace),
            "call": None,
            "bottleneck": one_line(critical["because"], REASON) if critical else "",
            "do": actions,
            "do_not": _leave(regions),
            "verify": module_proofs(place, asked, wanted) if predicted else trace_proofs(place, wanted),
            "warnings": [*(one_line(text, REASON) for text in warnings), *told],
            "left_out": {"do": 0, "do_not": 0, "warnings": 0, "edits": _edits_missing(trace, actions)},
            "more": command("advise", *asked, "--json"),
        },
        most,
    )


def _notes(notes: Sequence[Note]) -> list[Note]:
    """Those that are a warning. That a step is predicted is the first, and what ends its record the next."""
    told = [note for note in notes if note["level"] != "info" or note["code"] == "predicted"]
    return sorted(told, key=lambda note: (note["code"] != "predicted", note["code"] != "not-recorded"))


def _step(trace: Trace | TraceBody) -> BriefStep | None:
    time_us = trace["step_time_us"]
    if not time_us:
        return None
    gain, parts, pace = trace.get("gain"), trace.get("step_parts"), trace.get("pace")
    return {
        "time_us": rounded(time_us),
        "after_us": rounded_range(gain["all"]["step_time_us"]) if gain and gain["all"] else None,
        "gpu_idle_share": rounded(parts["idle_share"]) if parts else None,
        "launches": rounded(pace["launches"]) if pace else None,
    }


def _actions(
    actions: Sequence[Action], regions: Sequence[AnyRegion], numbers: Mapping[str | None, int]
) -> list[BriefAction]:
    ranks = {action["id"]: rank for rank, action in enumerate(actions, 1)}
    return [
        {
            "rank": rank,
            "title": one_line(action["title"], TITLE),
            "tool": action["tool"],
            "saves_us": rounded_range(action["saves_us"]),
            "evidence": _evidence(action),
            "because": one_line(action["because"], REASON),
            "edit": _edit(action, regions, numbers),
            "numerics": one_line(action["numerics"], TITLE),
            "instead_of": ranks.get(action["instead_of"]),
            "region": numbers.get(action["region"]) if action["region"] else None,
        }
        for rank, action in enumerate(actions, 1)
    ]


def _evidence(action: Action) -> str:
    """How the saving is known, in a word; where it was measured."""
    evidence = action["evidence"]
    return one_line(evidence["text"], TITLE) if evidence["kind"] == "measured" else evidence["kind"]


def _edit(action: Action, regions: Sequence[AnyRegion], numbers: Mapping[str | None, int]) -> BriefEdit:
    where = action["where"]
    number = numbers.get(action["region"]) if action["scope"] == "region" else None
    module = where["module"] if where else _root(regions[n - 1] for k in action["regions"] if (n := numbers.get(k)))
    return {
        "file": one_line(where["file"], PLACE) if where else "",
        "line": where["line"] if where else None,
        "module": one_line(module, PLACE),
        "before": code_text(regions[number - 1]["text"] or "") if number else "",
        "after": code_text(action["call"]),
    }


def _root(regions: Iterable[AnyRegion]) -> str:
    """The outermost module that all of the regions are in, as far as their modules are known; "" for several."""
    sources = [region["source"] for region in regions]
    roots = {source["module"].partition("/")[0] for source in sources if source and source["module"]}
    return roots.pop() if len(roots) == 1 else ""


def _edits_missing(trace: Trace | TraceBody, told: Sequence[BriefAction]) -> int:
    """Codes that are too long to be given whole."""
    actions = trace.get("actions") or ()
    return sum(bool(a["call"]) and not b["edit"]["after"] for a, b in zip(actions, told, strict=True))


def _remark(message: str, remedy: str) -> str:
    return one_line(f"{message} {remedy}".strip(), REASON)


@dataclass(frozen=True, slots=True)
class _Left:
    """Regions that are left as they are for one reason."""

    name: str
    because: str
    regions: int
    share: float

    def told(self) -> BriefLeave:
        times = f" ({self.regions} regions)" if self.regions > 1 else ""
        return {
            "what": one_line(f"{self.name}{times}", TITLE),
            "share_of_step": rounded(self.share),
            "because": one_line(self.because, REASON),
        }


def _leave(regions: Sequence[AnyRegion]) -> list[BriefLeave]:
    """Regions to leave, and kernels not to write by hand, by their share of the step; regions of one name and reason
    together."""
    by_reason: dict[tuple[str, str], _Left] = {}
    small = [r for r in regions if r["advice"] and _share(r) < LEAST_SHARE and r["advice"]["tool"] == "skip"]
    for region in regions:
        advice = region["advice"]
        if not advice or _share(region) < LEAST_SHARE:
            continue
        because = _why_left(region["name"], advice)
        if not because:
            continue
        kernel = "" if advice["tool"] == "skip" else "a Triton kernel for "
        before = by_reason.get((region["name"], because))
        by_reason[region["name"], because] = _Left(
            f"{kernel}{region['name']}", because, before.regions + 1 if before else 1,
            (before.share if before else 0.0) + _share(region),
        )  # fmt: skip
    told = [left.told() for left in sorted(by_reason.values(), key=lambda left: -left.share)]
    if small:
        told.append(
            {
                "what": count(len(small), "more region"),
                "share_of_step": rounded(sum(map(_share, small))),
                "because": "each under 1 % of the step",
            }
        )
    return told


def _share(region: AnyRegion) -> float:
    return region["share_of_step"] or 0.0


def _why_left(name: str, advice: Advice) -> str:
    """Why the region is left, or no kernel written for it; "" where one is to be written, or nothing is known."""
    if advice["tool"] == "skip":
        headline = advice["headline"].replace(f"Leave {name}: ", "")
        return f"{headline}. {advice['action']}"
    if advice["tool"] in ("triton", "cuda"):
        return ""
    kernel = _fastest([a for a in advice["alternatives"] if a["tool"] == "triton"])
    chosen = _fastest(
        [a for a in advice["alternatives"] if a["tool"] == advice["tool"] and a["mode"] == advice["mode"]]
    )
    if kernel is None or chosen is None:
        return ""
    took, takes = kernel["time_us"], chosen["time_us"]
    assert took is not None and takes is not None  # `_fastest` has only such
    return (
        f"{label_of(chosen['candidate'])} is predicted to take {duration(takes['mid'])} a call, "
        f"{label_of(kernel['candidate'])} {duration(took['mid'])}: {why_not(kernel, chosen)}"
    )


def why_not(other: Alternative, chosen: Alternative) -> str:
    """Why another way than the advised one is not taken: the rule leaves it out, it is slower, or hardly faster."""
    if excluded := other.get("excluded_by"):
        return excluded
    times, advised = other["time_us"], chosen["time_us"]
    if times and advised and times["mid"] < advised["mid"]:
        return "not faster by the margin that its lines ask for"
    return "not faster"


def _fastest(alternatives: Sequence[Alternative]) -> Alternative | None:
    timed = [(a["time_us"]["mid"], i) for i, a in enumerate(alternatives) if a["time_us"]]
    return alternatives[min(timed)[1]] if timed else None
