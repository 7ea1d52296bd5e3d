"""What to do about a step, for its page: the list of the API's trace, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, cast

from app.objects.trace import Action, Trace, TraceBody
from app.trace_report.actions.listed import Promise, adds_otherwise, place, promised, with_alternatives
from app.trace_report.speedup import gain_and_actions

FIRST = 3
"""So many are shown before the rest is unfolded."""

OF_NOTE = 0.01
"""Share of the step from which on a region is likely to have an action of its own."""


class ActionRow(TypedDict):
    """An action, where it is read about ("" where it is about the whole step), and those that stand in its place.

    region: its name, "" for the whole step. adds: whether it adds another time to those above it than it saves by
    itself.
    """

    action: Action
    href: str
    region: str
    place: str
    others: list[Action]
    adds: bool


class ActionSection(TypedDict, total=False):
    """Context of partials/trace/to_do.html. {} where nothing is known of the step.

    promise: the step after the first of them, or after all that are followed together.
    """

    first: list[ActionRow]
    more: list[ActionRow]
    promise: Promise | None


def action_section(trace: Trace | TraceBody, links: Mapping[str, str], names: Mapping[str, str]) -> ActionSection:
    """Those with a saving first. links: key of a region -> where it is read about; names: key -> its name."""
    made = trace.get("actions") or [] if trace.get("step_parts") else []
    rows: list[ActionRow] = [
        {
            "action": action,
            "href": links.get(action["region"] or "", ""),
            "region": names.get(action["region"] or "", ""),
            "place": place(action),
            "others": others,
            "adds": adds_otherwise(action),
        }
        for action, others in with_alternatives(made)
    ]
    return {"first": rows[:FIRST], "more": rows[FIRST:], "promise": promised(trace)} if rows else {}


def expected_rows(trace: Trace | TraceBody) -> int:
    """How many rows are likely to stand in the list before its rest is unfolded, from 1 on, while regions are still
    without advice: what the step alone tells to do, and one of regions. Of 43 traces none had two more or fewer.
    """
    bare = cast("TraceBody", {**trace, "regions": [{**region, "advice": None} for region in trace["regions"]]})
    of_step = len(with_alternatives(gain_and_actions(bare)[1]))
    large = any((region.get("share_of_step") or 0.0) >= OF_NOTE for region in trace["regions"])
    return min(FIRST, max(of_step + large, 1 + large))
