"""A trace's action for one of its regions: what the region's page, row and CSV say of the step. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from app.objects.advice import Advice
from app.objects.common import Range
from app.objects.trace import Action, Trace, TraceBody
from app.trace_report.actions.listed import before_us


@dataclass(frozen=True, slots=True)
class OwnAction:
    """The action with a predicted time that is the advice on a region. step_us: the step's time now, without the
    profiler that recorded it."""

    action: Action
    key: str
    step_us: float
    after_us: Range
    saved_us: Range

    @property
    def speedup(self) -> Range:
        """How many times as fast the step is after it alone."""
        now, then = self.step_us, self.after_us
        return {"low": now / then["high"], "mid": now / then["mid"], "high": now / then["low"]}

    @property
    def saves_us(self) -> float:
        """What it saves of the step by itself; of one about several regions the part that falls on this one."""
        parts, keys = self.action["parts_us"], self.action["regions"]
        if len(keys) == 1:
            return self.saved_us["mid"]
        whole = sum(parts)
        own = sum(part for key, part in zip(keys, parts, strict=False) if key == self.key)
        return self.saved_us["mid"] * own / whole if whole > 0.0 else 0.0

    @property
    def measured(self) -> bool:
        """Whether it rests on a measurement of the region."""
        return self.action["evidence"]["kind"] == "measured"


def own_action(trace: Trace | TraceBody, key: str | None, advice: Advice | None) -> OwnAction | None:
    """The action that this advice on the region of that key is; None where there is none, or no time of it.

    What is done to the whole step is no region's own, whatever regions it takes in.
    """
    step_us = before_us(trace)
    if not key or not advice or not step_us:
        return None
    for action in trace.get("actions") or ():
        after_us, saved_us = action["step_time_us"], action["saves_us"]
        own = action["scope"] == "region" and action["tool"] == advice["tool"] and key in action["regions"]
        if own and after_us is not None and saved_us is not None and after_us["low"] > 0.0:
            return OwnAction(action, key, step_us, after_us, saved_us)
    return None
