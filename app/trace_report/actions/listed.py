"""A trace's actions as a page, the command line and documents list them. Pure functions of the API's list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.objects.common import Range
from app.objects.trace import Action, ActionWhere, SlimTrace, Trace, TraceBody


def before_us(trace: Trace | TraceBody | SlimTrace) -> float | None:
    """The step that changes save from: where a profiler slowed the host, what it takes without one."""
    return trace.get("unprofiled_us") or trace.get("step_time_us")


def with_alternatives(actions: Sequence[Action]) -> list[tuple[Action, list[Action]]]:
    """The actions in their order, each with those that stand in its place."""
    others: dict[str, list[Action]] = {}
    for action in actions:
        others.setdefault(action["instead_of"], []).append(action)
    return [(action, others.get(action["id"], [])) for action in others.get("", ())]


@dataclass(frozen=True, slots=True)
class Promise:
    """The step after what is to be done first. action: that alone, None where it is after all that are followed
    together. after: which those are, in words."""

    step_time_us: Range
    after: str
    action: Action | None = None


def promised(trace: Trace | TraceBody) -> Promise | None:
    """What following the list gives: all that are followed together where the first is among them, else the first
    alone; so it is never worse than the first. None where no time is known."""
    listed = [action for action, _ in with_alternatives(trace.get("actions") or ())]
    first = listed[0] if listed else None
    if first is not None and first["step_time_us"] is not None and first["adds_us"] is None:
        bound = first["evidence"]["kind"] == "bound"
        after = "if change 1 ends half of the wait" if bound else "after change 1 alone, predicted"
        return Promise(first["step_time_us"], after, first)
    gain = trace.get("gain")
    total = gain["all"] if gain else None
    return Promise(total["step_time_us"], f"after {followed_words(trace)}, predicted") if total else None


def followed_words(trace: Trace | TraceBody) -> str:
    """Which of the list are followed together, by their numbers."""
    listed = [action for action, _ in with_alternatives(trace.get("actions") or ())]
    numbers = [str(number) for number, action in enumerate(listed, 1) if action["adds_us"] is not None]
    if len(numbers) == len(listed):
        return "this change" if len(listed) == 1 else "all changes"
    if len(numbers) < 2:
        return f"change {''.join(numbers)} alone"
    return f"changes {', '.join(numbers[:-1])} and {numbers[-1]}"


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


LEAST_TOLD = 0.01
"""Of a step, below which a saving is told as less than that: no "-0 %"."""
SHOWN = 0.005
"""What two digits show."""
SHORT_US = 100.0
"""A shorter step is told in microseconds."""
LITTLE, NOTHING = "less than 1 %", "nothing by itself"


def little(saved_us: float, before_us: float) -> str:
    """Words for a saving that is too small for a figure; "" for one that has one."""
    if saved_us >= LEAST_TOLD * before_us:
        return ""
    return LITTLE if saved_us > 0.0 else NOTHING


def a_step_of(action: Action) -> str:
    """The step that the action is about, with its phase where it is a serving engine's."""
    phase = action.get("phase")
    return {"mixed": "a step of prefill and decode"}.get(phase, f"a {phase} step") if phase else "a step"


def saving_words(action: Action) -> str:
    """What the action saves of a step, in ms, and what it adds to those before it."""
    saves, step = action["saves_us"], action["step_time_us"]
    if saves is None or step is None:
        return "no time is predicted" + (f" of {a_step_of(action)}" if action.get("phase") else "")
    if action["evidence"]["kind"] == "bound":
        return f"saves at most {saves['high'] / 1e3:.2f} ms"
    before, a_step = step["mid"] + saves["mid"], a_step_of(action)
    unit, us = ("ms", 1e3) if before >= SHORT_US else ("µs", 1.0)
    if small := little(saves["mid"], before):
        words = f"saves {small} of {a_step} of {before / us:.2f} {unit}"
        words += f" (up to {saves['high'] / us:.2f})" if saves["high"] >= SHOWN * us else ""
    else:
        words = (
            f"saves {saves['mid'] / us:.2f} {unit} ({saves['low'] / us:.2f} to {saves['high'] / us:.2f}) of {a_step}, "
        )
        words += f"which then takes {step['mid'] / us:.2f}"
    if adds_otherwise(action):
        adds = action["adds_us"] or 0.0
        told = f"{adds / us:.2f}" if adds >= LEAST_TOLD * before else LITTLE if adds > 0.0 else "nothing"
        words += f"; adds {told} to those above"
    return words


def saved_by_region(actions: Sequence[Action]) -> dict[str, float]:
    """Key -> µs of one step that the actions followed together take off the region; they add up to what all save, but
    for launches outside of regions and the host itself."""
    saved: dict[str, float] = {}
    for action in actions:
        for key, part in zip(action["regions"], action["parts_us"], strict=False):
            if key is not None:
                saved[key] = saved.get(key, 0.0) + part
    return saved
