"""What a step gains when a region gets faster: Amdahl's law, for the slider of a region's page. Pure functions."""

from __future__ import annotations

import math
from typing import TypedDict

from app.advice.amdahl import amdahl
from app.objects.advice import Advice
from app.objects.evidence import Figures
from app.objects.region import RegionBody
from app.web.charts.timed import TimedOption, candidate_rows, timed_options

UNKNOWN_SHARE = 0.1
"""Where the sliders stand while nobody has said what share of the step the region takes."""
LEAST_TOP, MOST_TOP = 5.0, 100.0
"""Right end of the speed-up's slider: beyond what is predicted, within these."""
MOST_FASTER = 1000.0


class Answer(TypedDict):
    """Context of partials/region/whatif_answer.html. share: 0 to 1; step_us: of one step, None where it is not known.

    then: length of the region's part of the step, in shares of today's step; saved: what is gone of it.
    """

    share: float
    faster: float
    step_us: float | None
    step_speedup: float
    limit: float
    then: float
    rest: float
    saved: float
    saved_us: float | None
    then_us: float | None


class Row(TypedDict):
    """One way to run the region. source: where its speed-up is known from; step: the step's speed-up."""

    name: str
    tool: str
    source: str
    faster: float
    step: float


class Section(Answer):
    """Context of partials/region/whatif.html.

    assumed: nobody has said the share; top: right end of the speed-up's slider.
    """

    assumed: bool
    rows: list[Row]
    top: float


def answer(share: float, faster: float, step_us: float | None) -> Answer:
    """What a step gains. share: of the step, 0 to 1; step_us: of one step, None where it is not known."""
    gained = amdahl(share, faster)
    then = share / faster
    return {
        "share": share,
        "faster": faster,
        "step_us": step_us,
        "step_speedup": gained,
        "limit": amdahl(share, math.inf),
        "then": then,
        "rest": 1.0 - share,
        "saved": share - then,
        "saved_us": (share - then) * step_us if step_us else None,
        "then_us": step_us / gained if step_us else None,
    }


def make_section(
    region: RegionBody,
    validation: Figures | None = None,
    share: float | None = None,
    faster: float | None = None,
    measured: Advice | None = None,
) -> Section | None:
    """Both sliders and the table; None without advice. share, faster: as the address has them.

    measured: the advice by the validation, where the page's headline is its; then nothing predicted stands next to it.
    """
    advice = measured or region.get("advice")
    if not advice:
        return None
    own = share if share is not None else region.get("share_of_step")
    assumed = min(max(own if own is not None else UNKNOWN_SHARE, 0.0), 1.0)
    speedup = advice.get("region_speedup")
    predicted = speedup["mid"] if speedup else None
    chosen = faster if faster is not None else predicted or 2.0
    chosen = min(max(chosen, 1.0), MOST_FASTER)
    rows = [r for r in make_rows(advice, validation, assumed) if measured is None or r["source"] != "predicted"]
    fastest = max([w["faster"] for w in rows if math.isfinite(w["faster"])] + [chosen])
    top = min(max(LEAST_TOP, math.ceil(fastest * 1.25)), MOST_TOP)
    gained = answer(assumed, chosen, step_time_us(region))
    return {**gained, "assumed": own is None, "rows": rows, "top": max(top, chosen)}


def step_time_us(region: RegionBody) -> float | None:
    """The step that a region of a trace is from, by its own time and share of it."""
    time_us, share = region.get("time_us_per_step"), region.get("share_of_step")
    return time_us / share if time_us and share else None


def make_rows(advice: Advice, validation: Figures | None, share: float) -> list[Row]:
    """Each way to run the region, the slowest first. share: of the step, 0 to 1.

    Predicted against what the region takes now, which is eager where no trace says otherwise.
    """
    options = [o for o in timed_options(advice) if o.admitted]
    now_us = next((o.mid_us for o in options if o.candidate == "eager"), None)
    rows: list[Row] = []
    if now_us:
        fastest: dict[str, TimedOption] = {}
        for option in options:
            if option.candidate != "eager" and (
                option.tool not in fastest or option.mid_us < fastest[option.tool].mid_us
            ):
                fastest[option.tool] = option
        rows += [_row(o.name, o.tool, "predicted", now_us / o.mid_us, share) for o in fastest.values()]
        floor_us = advice.get("floor_us")
        if floor_us:
            rows.append(_row("the floor", "floor", "limit of the hardware", now_us / floor_us, share))
    for candidate in candidate_rows(validation):
        if candidate["name"] != "eager" and candidate["speedup"]:
            rows.append(_row(candidate["name"], candidate["tool"], "measured", candidate["speedup"], share))
    rows.append(_row("no time at all", "floor", "limit of Amdahl's law", math.inf, share))
    return sorted(rows, key=lambda row: row["faster"])


def _row(name: str, tool: str, source: str, faster: float, share: float) -> Row:
    return {"name": name, "tool": tool, "source": source, "faster": faster, "step": amdahl(share, faster)}
