"""What to do about a step, for its page: the list of the API's trace, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from app.objects.trace import Action, Trace, TraceBody
from app.trace_report.actions.listed import adds_otherwise, place, with_alternatives

FIRST = 3
"""So many are shown before the rest is unfolded."""


class ActionRow(TypedDict):
    """An action, where it is read about ("" where it is about the whole step), and those that stand in its place.

    adds: whether it adds another time to those above it than it saves by itself.
    """

    action: Action
    href: str
    place: str
    others: list[Action]
    adds: bool


class ActionSection(TypedDict, total=False):
    """Context of partials/trace/actions.html. {} where nothing is known of the step."""

    first: list[ActionRow]
    more: list[ActionRow]


def action_section(trace: Trace | TraceBody, links: Mapping[str, str]) -> ActionSection:
    """Those with a saving first. links: key of a region -> where it is read about."""
    made = trace.get("actions") or [] if trace.get("step_parts") else []
    rows: list[ActionRow] = [
        {
            "action": action,
            "href": links.get(action["region"] or "", ""),
            "place": place(action),
            "others": others,
            "adds": adds_otherwise(action),
        }
        for action, others in with_alternatives(made)
    ]
    return {"first": rows[:FIRST], "more": rows[FIRST:]} if rows else {}
