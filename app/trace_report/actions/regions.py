"""The advice on each region as an action: what torch.compile(model) does not already contain."""

from __future__ import annotations

from collections.abc import Collection

from app.objects.advice import Advice
from app.objects.trace import ActionEvidence, ActionTool
from app.trace_report.actions.model import Option, advised_left, launches_left, where_of
from app.trace_report.step_model import AnyRegion, Change, Left, Step

PREDICTED = ", predicted "
"""From where on a headline tells how many times as fast: the action's saving says it of the step."""


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


def _of(place: int, region: AnyRegion, advice: Advice, tool: ActionTool) -> Option:
    left = advised_left(region)
    launches: dict[int, Left] = {place: launches_left(region, tool)}
    change = None if left is None else Change(time={place: left}, own=True, launches=launches)
    key, title = str(region.get("key") or f"region-{place}"), advice["headline"].partition(PREDICTED)[0]
    return Option(
        key, tool, advice["mode"], title, advice["call"],
        advice["action"], _evidence(region, advice), change, (place,), scope_is_step=False, where=where_of(region),
    )  # fmt: skip


def _evidence(region: AnyRegion, advice: Advice) -> ActionEvidence:
    """A measurement of this region where there is one, else what its prediction rests on."""
    rests, validation = region.get("rests_on"), advice.get("validation")
    if validation:
        return {"kind": "measured", "text": f"measured on {validation['device']}"}
    return {"kind": "predicted", "text": rests["sentence"] if rests else "no time is predicted"}
