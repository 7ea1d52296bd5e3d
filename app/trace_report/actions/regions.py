"""The advice on each region as an action: what torch.compile(model) does not already contain."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from app.advice.evidence import without_figures
from app.advice.off_floor import WHOLE_MODEL
from app.objects.advice import Advice
from app.objects.trace import ActionEvidence, ActionTool
from app.trace_report.actions.model import Option, advised_left, launches_left, where_of
from app.trace_report.step_model import AnyRegion, Change, Left, Step

CONFIRMED = re.compile(r"(: (confirmed|overturned|a tie) by measurement( on .*)?| \(predicted\);.*)$")
"""What a measurement adds to a headline: the action's evidence says it."""
MEASURED = re.compile(r"^Measured(, a tie| otherwise): (?P<candidate>[^,;]+)")
"""A headline that names what was measured to be fastest, and not what to do."""


UNPROVEN = "custom"
"""Mode of advice to write a kernel of which there is none yet: no prediction of others is to rest on it."""


def of_regions(step: Step, within: Collection[int], graphs: bool) -> list[Option]:
    """One option for every region with advice to do something.

    within: places that a whole-step option compiles. graphs: whether there is one for CUDA graphs of the step, which
    advice to use them is then about.
    """
    made = []
    for place, region in enumerate(step.regions):
        advice = region.get("advice")
        if not advice or advice["tool"] == "skip" or (graphs and advice["mode"] == "reduce-overhead"):
            continue
        if advice["tool"] == "compile" and place in within:
            continue
        made.append(_of(place, region, advice, advice["tool"]))
    return made


def merged(options: Sequence[Option]) -> list[Option]:
    """Each change to the whole model once, with what it does to all regions that are advised it."""
    by_call: dict[str, list[Option]] = {}
    for option in options:
        if option.call in WHOLE_MODEL:
            by_call.setdefault(option.call, []).append(option)
    first = {same[0].id: same for same in by_call.values()}
    return [
        _together(first[o.id]) if o.id in first else o for o in options if o.id in first or o.call not in WHOLE_MODEL
    ]


def _together(same: Sequence[Option]) -> Option:
    """The first, about the regions of all, with every region's own prediction."""
    if len(same) == 1:
        return same[0]
    changes = [o.change for o in same if o.change]
    time = {place: left for c in reversed(changes) for place, left in c.time.items()}
    launches = {place: left for c in reversed(changes) for place, left in c.launches.items()}
    places = tuple(dict.fromkeys(p for o in same for p in o.regions))
    how_many = "both" if len(places) == 2 else f"all {len(places)}"
    return replace(
        same[0], title=f"{same[0].title} (and {len(places) - 1} more {'region' if len(places) == 2 else 'regions'})",
        because=f"{same[0].because} The same change does it for {how_many} regions.",
        change=Change(time=time, own=True, launches=launches) if changes else None, regions=places, where=None,
    )  # fmt: skip


def _of(place: int, region: AnyRegion, advice: Advice, tool: ActionTool) -> Option:
    left = advised_left(region)
    launches: dict[int, Left] = {place: launches_left(region, tool)}
    change = None if left is None else Change(time={place: left}, own=True, launches=launches)
    key = str(region.get("key") or f"region-{place}")
    return Option(
        key, tool, advice["mode"], title_of(region["name"], advice), advice["call"],
        advice["action"], _evidence(region, advice), change, (place,), scope_is_step=False, where=where_of(region),
        counted=advice["mode"] != UNPROVEN,
    )  # fmt: skip


def title_of(name: str, advice: Advice) -> str:
    """What to do, without figures: the headline, or the tool's words where that says what was measured."""
    measured, told = MEASURED.match(advice["headline"]), CONFIRMED.sub("", without_figures(advice["headline"]))
    if measured is None:
        return told
    mode = "" if advice["mode"] == "default" else f" in mode {advice['mode'].removesuffix('-no-cudagraphs')}"
    return {
        "library": f"Call {measured['candidate'].removeprefix('library:')} for {name}",
        "compile": f"Use torch.compile on {name}{mode}",
        "triton": f"Triton for {name}",
        "cuda": f"CUDA for {name}",
    }.get(advice["tool"], told)


def _evidence(region: AnyRegion, advice: Advice) -> ActionEvidence:
    """A measurement of this region where there is one, else what its prediction rests on."""
    rests, validation = region.get("rests_on"), advice.get("validation")
    if validation and validation["outcome"] not in (None, "unmeasured"):
        where = (validation["device"] or "").removeprefix("NVIDIA ")
        return {"kind": "measured", "text": f"measured on {where}, {validation['date']}"}
    return {"kind": "predicted", "text": rests["sentence"] if rests else "no time is predicted"}
