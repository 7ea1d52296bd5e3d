"""How good predictions were: recorded validations, each candidate's predicted speed-up beside the measured one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from app.web.charts.figure import COLOURS, Chart, Json, chart, escape
from app.web.charts.hatching import symbol
from app.web.views.labels import TOOL_LABELS

BAND = 0.2
"""A prediction counts as right within 20 % of the measured speed-up (the design's target)."""


def _predicted_us(advice: Json) -> dict[str, float]:
    options = advice.get("alternatives") or ()
    return {o["candidate"]: o["time_us"]["mid"] for o in options if o.get("candidate") and o.get("time_us")}


def rows(validations: Iterable[Json]) -> list[dict[str, Any]]:
    """One row per candidate that was predicted and measured, eager left out: it is what speed-ups are against.

    Keys: region, name, tool, device, date, archived, predicted, measured (speed-ups over eager, above 1 is faster).
    """
    found = []
    for validation in validations:
        predicted = _predicted_us(validation.get("advice_before") or {})
        base = predicted.get("eager")
        if not base:
            continue
        for candidate in validation.get("candidates") or ():
            time_us, against = predicted.get(candidate["name"]), candidate.get("ratio_to_eager")
            if candidate["name"] == "eager" or candidate["status"] != "ok" or not time_us or not against:
                continue
            found.append(
                {
                    "region": validation.get("name") or "region",
                    "name": candidate["name"],
                    "tool": candidate["tool"],
                    "device": validation.get("device") or "",
                    "date": validation.get("date") or "",
                    "archived": bool(validation.get("archived")),
                    "predicted": base / time_us,
                    "measured": 1 / against["median"],
                }
            )
    return found


def advised_candidate(validation: Json) -> str | None:
    """The candidate that following the advice before measuring would have run; eager where it said to leave it."""
    advice = validation.get("advice_before") or {}
    if not advice.get("tool"):
        return None
    if advice["tool"] == "skip":
        return "eager"
    options = [o for o in advice.get("alternatives") or () if o["tool"] == advice["tool"] and o.get("admitted", True)]
    same_mode = [o for o in options if o.get("mode") == advice.get("mode")]
    timed = sorted((o for o in same_mode or options if o.get("time_us")), key=lambda o: o["time_us"]["mid"])
    return timed[0]["candidate"] if timed else None


def regret(validation: Json) -> float | None:
    """Measured time of the advised candidate over the best measured one; 1 is a perfect choice, None unknown."""
    times = {c["name"]: c["time_us"]["median"] for c in validation.get("candidates") or () if c.get("time_us")}
    choice = advised_candidate(validation)
    if choice is None or choice not in times:
        return None
    return float(times[choice] / min(times.values()))


def summary(validations: Sequence[Json]) -> dict[str, Any]:
    """regions, devices, within (share of rows inside BAND), followed (geometric mean of regret), worst regret."""
    compared = rows(validations)
    inside = [row for row in compared if abs(row["predicted"] / row["measured"] - 1) <= BAND]
    regrets = [r for r in (regret(v) for v in validations) if r is not None]
    return {
        "regions": len({v.get("region") for v in validations if v.get("device")}),
        "devices": sorted({row["device"] for row in compared}),
        "within": len(inside) / len(compared) if compared else None,
        "followed": math.exp(sum(map(math.log, regrets)) / len(regrets)) if regrets else None,
        "worst": max(regrets) if regrets else None,
    }


TICKS = [0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100]
"""Speed-ups marked on the logarithmic axes, dense where most of them lie."""


def scatter(compared: Sequence[Json]) -> Chart | None:
    """Predicted against measured speed-up of each candidate over eager, with the band of 20 % either side."""
    if not compared:
        return None
    values = [v for row in compared for v in (row["predicted"], row["measured"])]
    low, high = min(values) / 1.3, max(values) * 1.3
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [low, high],
            "y": [low * scale, high * scale],
            "line": {
                "color": COLOURS["rest"],
                "width": 2 if scale == 1 else 1,
                "dash": "solid" if scale == 1 else "dot",
            },
            "name": name,
            "hoverinfo": "skip",
        }
        for scale, name in ((1.0, "as predicted"), (1.2, "20 % faster"), (1 / 1.2, "20 % slower"))
    ]
    for tool in ("library", "compile", "triton", "cuda"):
        chosen = [row for row in compared if row["tool"] == tool]
        if chosen:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [row["predicted"] for row in chosen],
                    "y": [row["measured"] for row in chosen],
                    "name": TOOL_LABELS[tool],
                    "text": [escape(f"{row['region']}: {row['name']}", 80) for row in chosen],
                    "hovertemplate": "%{text}<br>predicted %{x:.2f}×, measured %{y:.2f}×<extra></extra>",
                    "marker": {"color": COLOURS[tool], "size": 10, "symbol": symbol(tool)},
                }
            )
    axis = {"type": "log", "range": [math.log10(low), math.log10(high)], "tickvals": TICKS}
    layout = {
        "xaxis": axis | {"title": {"text": "predicted speed-up over eager"}},
        "yaxis": axis | {"title": {"text": "measured speed-up over eager"}, "automargin": True},
        "margin": {"l": 56, "r": 16, "t": 8, "b": 48},
    }
    return chart(traces, layout, 420)
