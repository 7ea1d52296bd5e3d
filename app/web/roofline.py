"""The roofline: where a region stands under its device's ceilings. API dictionaries in, a chart out."""

from __future__ import annotations

import math
from typing import Any

from app.web.charts import candidate_rows, moved
from app.web.figure import COLOURS, Chart, Json, chart, escape
from app.web.units import amount, digits


def roofline_points(cost: Json, device: Json, validation: Json | None = None) -> list[dict[str, Any]]:
    """name, tool, intensity in FLOP/byte, rate in FLOP/s of the region unfused, fused, ideal, and of each measurement.

    A predicted point lies on the roof; a measured one is its FLOPs over its time, at the ideal intensity.
    """
    flops = cost["ideal"]["flops"] or cost["unfused"]["flops"]
    if not flops:
        return []
    peak = compute_rate(cost, device)
    points = []
    for name, count, tool in (
        ("unfused, at best", cost["unfused"], "eager"),
        ("fused, at best", cost["fused"], "compile"),
        ("ideal, at best", cost["ideal"], "floor"),
    ):
        if not moved(count):
            continue
        intensity = flops / moved(count)
        rate = min(peak, intensity * device["copy_rate"])
        points.append({"name": name, "tool": tool, "intensity": intensity, "rate": rate, "measured": False})
    for row in candidate_rows(validation or {}):
        rate = flops / (row["time_us"]["median"] * 1e-6)
        intensity = flops / max(moved(cost["ideal"]), 1)
        points.append(
            {"name": row["name"], "tool": row["tool"], "intensity": intensity, "rate": rate, "measured": True}
        )
    return points


def compute_rate(cost: Json, device: Json) -> float:
    """FLOP/s of the units that this region uses: matrix units in its dtype where it multiplies matrices."""
    dtype = cost.get("matmul_dtype")
    rates = device.get("matmul_rates") or {}
    if dtype and rates.get(dtype):
        return float(rates[dtype])
    return float(device["f32_rate"])


def ceilings(cost: Json, device: Json) -> tuple[str, str]:
    """Where the figures of the memory slope and of the compute roof are from: "measured", "datasheet", or between."""
    slope = "measured" if device.get("measured_copy_rate") else "datasheet"
    dtype = cost.get("matmul_dtype")
    if not device.get("measured_matmul_rate") or dtype not in ("bf16", "f16", "f8e4m3", "f8e5m2"):
        return slope, "datasheet"
    return slope, "measured" if dtype == "bf16" else "datasheet, scaled by bf16 as measured"


def roofline(cost: Json, device: Json, validation: Json | None = None) -> Chart | None:
    """Log-log roofline: the region's points under its device's ceilings, each named with where its figure is from."""
    points = roofline_points(cost, device, validation)
    if not points:
        return None
    peak = compute_rate(cost, device)
    bandwidth = float(device["copy_rate"])
    ridge = peak / bandwidth
    left = min(min(p["intensity"] for p in points) / 4, ridge / 8)
    right = max(max(p["intensity"] for p in points) * 4, ridge * 8)
    slope, roof = ceilings(cost, device)
    grey = "#8a8f94"
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [left, ridge, right],
            "y": [left * bandwidth / 1e12, peak / 1e12, peak / 1e12],
            "line": {"color": grey, "width": 2},
            "name": "roof",
            "hoverinfo": "skip",
            "showlegend": False,
        }
    ]
    traces += [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [point["intensity"]],
            "y": [point["rate"] / 1e12],
            "name": escape(point["name"]),
            "marker": {
                "color": COLOURS.get(point["tool"], grey),
                "size": 12,
                "symbol": "circle" if point["measured"] else "diamond-open",
                "line": {"width": 2, "color": COLOURS.get(point["tool"], grey)},
            },
            "hovertemplate": f"{escape(point['name'])}<br>{digits(point['intensity'])} FLOP/byte<br>"
            f"{amount(point['rate'], 'FLOP/s')}<extra></extra>",
        }
        for point in points
    ]
    units = f"{cost['matmul_dtype']} matrix units" if cost.get("matmul_dtype") else "f32 vector units"
    lowest = min([p["rate"] for p in points] + [left * bandwidth]) / 1e12
    layout = {
        "xaxis": {
            "type": "log",
            "title": {"text": "intensity, FLOP/byte"},
            "range": [math.log10(left), math.log10(right)],
            "dtick": 1,
        },
        "yaxis": {
            "type": "log",
            "title": {"text": "rate, TFLOP/s"},
            "range": [math.log10(lowest) - 0.2, math.log10(peak / 1e12) + 0.6],
            "dtick": 1,
            "automargin": True,
        },
        "annotations": [
            _note(right, peak, f"{units}: {amount(peak, 'FLOP/s')} ({roof})", "right", "bottom"),
            _note(left, left * bandwidth, f"memory: {amount(bandwidth, 'B/s')} ({slope})", "left", "top"),
        ],
        "margin": {"l": 56, "r": 16, "t": 8, "b": 48},
        "legend": {"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0, "xanchor": "left"},
    }
    return chart(traces, layout, 400)


def _note(x: float, rate: float, text: str, xanchor: str, yanchor: str) -> dict[str, Any]:
    """A text on log axes, whose annotations are placed by exponents."""
    place = {"x": math.log10(x), "y": math.log10(rate / 1e12)}
    shift = {"yshift": 10} if yanchor == "bottom" else {"xshift": 60}  # clear of the points on the roof, of the slope
    return {**place, **shift, "text": text, "showarrow": False, "xanchor": xanchor, "yanchor": yanchor}
