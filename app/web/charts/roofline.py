"""The roofline: where a region stands under its device's ceilings. API dictionaries in, a chart out."""

from __future__ import annotations

import math
from typing import Literal, TypedDict

from app.objects.advice import Advice
from app.objects.cost import Cost
from app.objects.evidence import Figures
from app.units import amount, digits
from app.web.charts.figure import COLOURS, Chart, Figure, chart, escape, symbol
from app.web.charts.plotly import total_bytes
from app.web.charts.timed import candidate_rows, timed_options

Kind = Literal["limit", "measured", "predicted"]


class DeviceRates(TypedDict):
    """What the roofline needs of a device. Rates in bytes/s and FLOP/s; matmul_rates: by dtype, as estimates use them.

    measured_copy_rate, measured_matmul_rate: None where they are the datasheet's. source: the datasheet.
    """

    name: str
    copy_rate: float
    f32_rate: float
    matmul_rates: dict[str, float]
    measured_copy_rate: float | None
    measured_matmul_rate: float | None
    source: str
    measured_source: str


class Point(TypedDict):
    """What is drawn of one way to run the region. intensity: FLOP/byte; rate: FLOP/s."""

    name: str
    tool: str
    kind: Kind
    intensity: float
    rate: float
    measured: bool


def roofline_points(
    cost: Cost, device: DeviceRates, validation: Figures | None = None, advice: Advice | None = None
) -> list[Point]:
    """What is drawn, in order.

    kind "limit": the region unfused, fused and at its floor, on the roof at best. "measured": each tool's fastest
    candidate, its FLOPs over its time at the ideal intensity. "predicted": the same of a tool that was not measured.
    """
    flops = cost["ideal"]["flops"] or cost["unfused"]["flops"]
    if not flops:
        return []
    peak, written = compute_rate(cost, device), written_rate(cost, device)
    points: list[Point] = []
    for name, traffic, tool, rate in (
        ("unfused, at best", cost["unfused"], "eager", written),
        ("fused, at best", cost["fused"], "compile", written),
        ("floor", cost["ideal"], "floor", peak),
    ):
        if not total_bytes(traffic):
            continue
        intensity = flops / total_bytes(traffic)
        points.append(_point(name, tool, "limit", intensity, min(rate, intensity * device["copy_rate"])))
    intensity = flops / max(total_bytes(cost["ideal"]), 1)
    drawn: set[str] = set()
    for row in candidate_rows(validation):  # the fastest first
        time_us = row["time_us"]
        if time_us is not None and row["tool"] not in drawn:
            drawn.add(row["tool"])
            rate = flops / (time_us["median"] * 1e-6)
            points.append(_point(row["name"], row["tool"], "measured", intensity, rate))
    for option in sorted((o for o in timed_options(advice) if o.admitted), key=lambda o: o.mid_us):
        if option.look not in drawn:
            drawn.add(option.look)
            rate = flops / (option.mid_us * 1e-6)
            points.append(_point(option.candidate or option.look, option.look, "predicted", intensity, rate))
    return points


def _point(name: str, tool: str, kind: Kind, intensity: float, rate: float) -> Point:
    measured = kind == "measured"
    return {"name": name, "tool": tool, "kind": kind, "intensity": intensity, "rate": rate, "measured": measured}


def limit_dtype(cost: Cost) -> str | None:
    """The dtype at whose rate the region's matrix products could be made: its 8-bit inputs', where it widens them."""
    return cost.get("limit_dtype") or cost.get("matmul_dtype")


def compute_rate(cost: Cost, device: DeviceRates) -> float:
    """FLOP/s of the fastest units that this region could use: matrix units where it multiplies matrices."""
    return _rate(limit_dtype(cost), device)


def written_rate(cost: Cost, device: DeviceRates) -> float:
    """FLOP/s of the units that it uses as it is written: less than `compute_rate` where 8-bit inputs are widened."""
    return _rate(cost.get("matmul_dtype"), device)


def _rate(dtype: str | None, device: DeviceRates) -> float:
    return (device["matmul_rates"].get(dtype) or device["f32_rate"]) if dtype else device["f32_rate"]


def units_of(dtype: str | None) -> str:
    """The units that work in a dtype, in words."""
    return f"{dtype} matrix units" if dtype not in (None, "f32", "f64") else f"{dtype or 'f32'} vector units"


SCALED = ("f16", "tf32", "f8e4m3", "f8e5m2", "f4e2m1x2")
"""Dtypes whose rate is the datasheet's times the share that bf16 was measured to reach."""


def name_ceilings(cost: Cost, device: DeviceRates) -> tuple[str, str]:
    """Where the figures of the memory slope and of the compute roof are from: "measured", "datasheet", or between."""
    slope = "measured" if device.get("measured_copy_rate") else "datasheet"
    dtype = limit_dtype(cost)
    if not device.get("measured_matmul_rate") or dtype not in ("bf16", *SCALED):
        return slope, "datasheet"
    return slope, "measured" if dtype == "bf16" else "datasheet, scaled by bf16 as measured"


def _symbol(point: Point) -> str:
    """Limits touch the roof from below; candidates have their tool's shape, hollow where predicted."""
    limit = point["kind"] == "limit"
    return "triangle-down-open" if limit else symbol(point["tool"], hollow=point["kind"] == "predicted")


def roofline(
    cost: Cost, device: DeviceRates, validation: Figures | None = None, advice: Advice | None = None
) -> Chart | None:
    """Log-log roofline: the region's points under its device's ceilings, each named with where its figure is from."""
    points = roofline_points(cost, device, validation, advice)
    if not points:
        return None
    peak = compute_rate(cost, device)
    bandwidth = float(device["copy_rate"])
    ridge = peak / bandwidth
    left = min(min(p["intensity"] for p in points) / 4, ridge / 8)
    right = max(max(p["intensity"] for p in points) * 4, ridge * 8)
    slope, roof = name_ceilings(cost, device)
    grey = "#8a8f94"
    traces: list[Figure] = [
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
            "showlegend": False,
            "marker": {
                "color": COLOURS.get(point["tool"], grey),
                "size": 12,
                "symbol": _symbol(point),
                "line": {"width": 2, "color": COLOURS.get(point["tool"], grey)},
            },
            "hovertemplate": f"{escape(point['name'])}<br>{digits(point['intensity'])} FLOP/byte<br>"
            f"{amount(point['rate'], 'FLOP/s')}<extra></extra>",
        }
        for point in points
    ]
    written = written_rate(cost, device)
    lower: list[Figure] = []
    if written < peak:
        traces.append(
            {
                "type": "scatter", "mode": "lines", "x": [written / bandwidth, right], "y": [written / 1e12] * 2,
                "line": {"color": grey, "width": 2, "dash": "dash"}, "name": "as written", "hoverinfo": "skip",
                "showlegend": False,
            }
        )  # fmt: skip
        text = f"as written, {units_of(cost['matmul_dtype'])}: {amount(written, 'FLOP/s')}"
        lower.append(_note(right, written, text, "right", "bottom"))
    units = units_of(limit_dtype(cost))
    lowest = min([p["rate"] for p in points] + [left * bandwidth]) / 1e12
    across = (math.log10(left), math.log10(right))
    up = (math.log10(lowest) - 0.2, math.log10(peak / 1e12) + 0.6)
    layout = {
        "xaxis": {
            "type": "log", "title": {"text": "intensity, FLOP/byte"}, "range": [*across], "dtick": 1,
        },
        "yaxis": {
            "type": "log", "title": {"text": "rate, TFLOP/s"}, "range": [*up], "dtick": 1, "automargin": True,
        },
        "annotations": [
            _note(right, peak, f"{units}: {amount(peak, 'FLOP/s')} ({roof})", "right", "bottom"),
            _note(left, left * bandwidth, f"memory: {amount(bandwidth, 'B/s')} ({slope})", "left", "top"),
            *lower,
            *_labels(points, across, up),
        ],
        "margin": {"l": 56, "r": 16, "t": 8, "b": 48},
    }  # fmt: skip
    return chart(traces, layout, 380)


LINE = 0.05
"""Height of a line of text, of the height of the chart."""


def _labels(points: list[Point], across: tuple[float, float], up: tuple[float, float]) -> list[Figure]:
    """A label at each point: over the roof's triangles, next to the others, moved apart where they would touch."""
    labels: list[Figure] = []
    previous = math.inf
    height, width = up[1] - up[0], across[1] - across[0]
    limits: list[tuple[float, float, list[str]]] = []
    for point in (p for p in points if p["kind"] == "limit"):
        x, y = math.log10(point["intensity"]), math.log10(point["rate"] / 1e12)
        name = point["name"].removesuffix(", at best")
        near = limits and x - limits[-1][0] < 0.14 * width and abs(y - limits[-1][1]) < LINE * height
        if near:  # one label for those that would touch
            limits[-1] = (x, y, [*limits[-1][2], name])
        else:
            limits.append((x, y, [name]))
    for x, y, names in limits:
        labels.append({"x": x, "y": y, "text": ", ".join(names), "showarrow": False, "xanchor": "right",
                       "yanchor": "bottom", "xshift": -4, "yshift": 2})  # fmt: skip
    for point in sorted((p for p in points if p["kind"] != "limit"), key=lambda p: -p["rate"]):
        x, y = math.log10(point["intensity"]), math.log10(point["rate"] / 1e12)
        y = min(y, previous - LINE * height)
        previous = y
        text = {"eager": "eager", "library": "library", "compile": "torch.compile"}.get(point["tool"], "Triton")
        text += "" if point["measured"] else ", predicted"
        right = x < across[0] + 0.6 * width
        labels.append({"x": x, "y": y, "text": text, "showarrow": False, "xanchor": "left" if right else "right",
                       "xshift": 12 if right else -12})  # fmt: skip
    return labels


def _note(x: float, rate: float, text: str, xanchor: str, yanchor: str) -> Figure:
    """A text on log axes, whose annotations are placed by exponents."""
    place = {"x": math.log10(x), "y": math.log10(rate / 1e12)}
    shift = {"yshift": 22} if yanchor == "bottom" else {"xshift": 60}  # clear of the points on the roof, of the slope
    return {**place, **shift, "text": text, "showarrow": False, "xanchor": xanchor, "yanchor": yanchor}
