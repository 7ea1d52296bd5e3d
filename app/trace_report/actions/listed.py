"""A trace's actions as a page, the command line and documents list them. Pure functions of the API's list."""

from __future__ import annotations

from collections.abc import Sequence

from app.objects.trace import Action


def with_alternatives(actions: Sequence[Action]) -> list[tuple[Action, list[Action]]]:
    """The actions in their order, each with those that stand in its place."""
    others: dict[str, list[Action]] = {}
    for action in actions:
        others.setdefault(action["instead_of"], []).append(action)
    return [(action, others.get(action["id"], [])) for action in others.get("", ())]


def place(action: Action) -> str:
    """Module and line in the user's code, as far as they are known."""
    where = action["where"]
    if where is None:
        return ""
    line = f"{where['file']}:{where['line']}" if where["line"] is not None else where["file"]
    return ", ".join(part for part in (where["module"], line) if part)


def adds_otherwise(action: Action) -> bool:
    """After those before it the action adds another time than it saves by itself."""
    adds, saves = action["adds_us"], action["saves_us"]
    return adds is not None and saves is not None and abs(adds - saves["mid"]) > 0.005 * abs(saves["mid"])


def saved_by_region(actions: Sequence[Action]) -> dict[str, float]:
    """Key -> µs of one step that the actions followed together take off the region; they add up to what all save."""
    saved: dict[str, float] = {}
    for action in actions:
        for key, part in zip(action["regions"], action["parts_us"], strict=False):
            if key is not None:
                saved[key] = saved.get(key, 0.0) + part
    return saved
