"""A trace's actions as a page, the command line and documents list them. Pure functions of the API's list."""

from __future__ import annotations

from collections.abc import Sequence

from app.objects.trace import Action, ActionWhere


def with_alternatives(actions: Sequence[Action]) -> list[tuple[Action, list[Action]]]:
    """The actions in their order, each with those that stand in its place."""
    others: dict[str, list[Action]] = {}
    for action in actions:
        others.setdefault(action["instead_of"], []).append(action)
    return [(action, others.get(action["id"], [])) for action in others.get("", ())]


def place(action: Action) -> str:
    """Module and line in the user's code, as far as they are known."""
    where = action["where"]
    return "" if where is None else ", ".join(part for part in (where["module"], line(where)) if part)


def line(where: ActionWhere) -> str:
    """The file, and the line where it is known."""
    return f"{where['file']}:{where['line']}" if where["line"] is not None else where["file"]


def adds_otherwise(action: Action) -> bool:
    """After those before it the action adds another time than it saves by itself."""
    adds, saves = action["adds_us"], action["saves_us"]
    return adds is not None and saves is not None and abs(adds - saves["mid"]) > 0.005 * abs(saves["mid"])


def saving_words(action: Action) -> str:
    """What the action saves of a step, in ms, and what it adds to those before it."""
    saves, step = action["saves_us"], action["step_time_us"]
    if saves is None or step is None:
        return "no time is predicted"
    if action["evidence"]["kind"] == "bound":
        return f"saves at most {saves['high'] / 1e3:.2f} ms"
    words = f"saves {saves['mid'] / 1e3:.2f} ms ({saves['low'] / 1e3:.2f} to {saves['high'] / 1e3:.2f}) of a step, "
    words += f"which then takes {step['mid'] / 1e3:.2f}"
    if adds_otherwise(action):
        words += f"; adds {(action['adds_us'] or 0.0) / 1e3:.2f} to those above"
    return words


def saved_by_region(actions: Sequence[Action]) -> dict[str, float]:
    """Key -> µs of one step that the actions followed together take off the region; they add up to what all save."""
    saved: dict[str, float] = {}
    for action in actions:
        for key, part in zip(action["regions"], action["parts_us"], strict=False):
            if key is not None:
                saved[key] = saved.get(key, 0.0) + part
    return saved
