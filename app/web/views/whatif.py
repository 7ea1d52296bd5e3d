"""What a step gains when a region gets faster: Amdahl's law, for the slider of a region's page. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from app.advice.amdahl import amdahl
from app.web.charts.plotly import candidate_rows

Json = Mapping[str, Any]

UNKNOWN_SHARE = 0.1
"""Where the sliders stand while nobody has said what share of the step the region takes."""
LEAST_TOP, MOST_TOP = 5.0, 100.0
"""Right end of the speed-up's slider: beyond what is predicted, within these."""
MOST_FASTER = 1000.0


def answer(share: float, faster: float, step_us: float | None) -> dict[str, Any]:
    """Context of partials/whatif_answer.html. share: 0 to 1; step_us: of one step, None where it is not known.

    now, then: lengths of the region's part of the step in shares of today's step; saved: what is gone.
    """
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


def section(
    region: Json, validation: Json | None = None, share: float | None = None, faster: float | None = None
) -> dict[str, Any] | None:
    """Context of partials/whatif.html; None without advice. share, faster: as the address has them."""
    advice = region.get("advice")
    if not advice:
        return None
    known = region.get("share_of_step")
    own = share if share is not None else known
    asked = min(max(own if own is not None else UNKNOWN_SHARE, 0.0), 1.0)
    predicted = (advice.get("region_speedup") or {}).get("mid")
    chosen = faster if faster is not None else predicted or 2.0
    chosen = min(max(chosen, 1.0), MOST_FASTER)
    ways = rows(region, validation, asked)
    fastest = max([w["faster"] for w in ways if math.isfinite(w["faster"])] + [chosen])
    found = answer(asked, chosen, step_time_us(region))
    top = min(max(LEAST_TOP, math.ceil(fastest * 1.25)), MOST_TOP)
    return {**found, "assumed": own is None, "rows": ways, "top": max(top, chosen)}


def step_time_us(region: Json) -> float | None:
    """The step that a region of a trace is from, by its own time and share of it."""
    time_us, share = region.get("time_us_per_step"), region.get("share_of_step")
    return time_us / share if time_us and share else None


def rows(region: Json, validation: Json | None, share: float) -> list[dict[str, Any]]:
    """name, from ("predicted", "measured", "limit"), faster, step: of each way to run it, the slowest first.

    Predicted against what the region takes now, which is eager where no trace says otherwise.
    """
    advice = region["advice"]
    options = [o for o in advice.get("alternatives") or () if o.get("time_us") and o.get("admitted", True)]
    now = next((o["time_us"]["mid"] for o in options if o.get("candidate") == "eager"), None)
    found: list[dict[str, Any]] = []
    if now:
        best: dict[str, Json] = {}
        for option in options:
            kept = best.get(option["tool"])
            if option.get("candidate") != "eager" and (kept is None or _mid(option) < _mid(kept)):
                best[option["tool"]] = option
        found += [_row(o["candidate"], o["tool"], "predicted", now / _mid(o), share) for o in best.values()]
        if advice.get("floor_us"):
            found.append(_row("the floor", "floor", "limit of the hardware", now / advice["floor_us"], share))
    for candidate in candidate_rows(validation or {}):
        if candidate["name"] != "eager" and candidate["speedup"]:
            found.append(_row(candidate["name"], candidate["tool"], "measured", candidate["speedup"], share))
    found.append(_row("no time at all", "floor", "limit of Amdahl's law", math.inf, share))
    return sorted(found, key=lambda row: row["faster"])


def _mid(option: Json) -> float:
    return float(option["time_us"]["mid"])


def _row(name: str, tool: str, source: str, faster: float, share: float) -> dict[str, Any]:
    return {"name": name, "tool": tool, "source": source, "faster": faster, "step": amdahl(share, faster)}
