"""What to do about a step, for its page: the list of the API's trace, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from app.objects.trace import Action, Trace, TraceBody

FIRST = 3
"""So many are shown before the rest is unfolded."""


class ActionRow(TypedDict):
    """An action, where it is read about ("" where it is about the whole step), and those that stand in its place."""

    action: Action
    href: str
    place: str
    others: list[Action]


class ActionSection(TypedDict, total=False):
    """Context of partials/trace/actions.html. {} where nothing is known of the step."""

    first: list[ActionRow]
    more: list[ActionRow]


def action_section(trace: Trace | TraceBody, links: Mapping[str, str]) -> ActionSection:
    """Those with a saving first. links: key of a region -> where it is read about."""
    made = trace.get("actions") or [] if trace.get("step_parts") else []
    others: dict[str, list[Action]] = {}
    for action in made:
        others.setdefault(action["instead_of"], []).append(action)
    rows: list[ActionRow] = [
        {
            "action": action,
            "href": links.get(action["region"] or "", ""),
            "place": _place(action),
            "others": others.get(action["id"], []),
        }
        for action in others.get("", ())
    ]
    return {"first": rows[:FIRST], "more": rows[FIRST:]} if rows else {}


def _place(action: Action) -> str:
    where = action["where"]
    if where is None:
        return ""
    line = f"{where['file']}:{where['line']}" if where["line"] is not None else where["file"]
    return ", ".join(part for part in (where["module"], line) if part)


def saved_by_region(trace: Trace | TraceBody) -> dict[str, float]:
    """Key -> µs of one step that the actions followed together take off the region; they add up to what all save."""
    saved: dict[str, float] = {}
    for action in trace.get("actions") or ():
        for key, part in zip(action["regions"], action["parts_us"], strict=False):
            if key is not None:
                saved[key] = saved.get(key, 0.0) + part
    return saved
