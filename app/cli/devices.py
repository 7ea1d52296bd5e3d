"""`tritonworthy advise REGION --device all`: the region on every device of the table, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.objects.common import Range
from app.thresholds import Thresholds

if TYPE_CHECKING:
    from app.objects.advice import RegionDevices

ALL = "all"
"""The name that stands for every device of the table."""


def advise_on_devices(
    text: str, *, share_of_step: float | None, step_time_us: float | None, objective: str, thresholds: Thresholds
) -> RegionDevices:
    """The API's `items` of a region's text: what `GET /api/v1/regions/{id}/devices` answers. Raises RegionError."""
    from app.analysis import service

    prepared = service.prepare_region(
        text,
        share_of_step=share_of_step,
        step_time_us=step_time_us,
        objective=objective,
        thresholds=thresholds,
    )
    return {"items": service.on_devices(prepared)}


def devices_text(advised: RegionDevices) -> str:
    """One line a device."""
    lines = []
    for row in advised["items"]:
        tool = f"{row['tool']} {row['mode']}" if row["mode"] != "default" else row["tool"]
        region, step = _span(row["region_speedup"]), _span(row["step_speedup"])
        lines.append(f"{row['device']:<24} {tool}: region {region}, step {step}{'' if row['fitted'] else ' *'}")
    scaled = next((r["because"] for r in advised["items"] if not r["fitted"]), None)
    return "\n".join([*lines, *([f"* such as the first: {scaled}"] if scaled else [])])


def _span(values: Range | None) -> str:
    if values is None:
        return "not predicted"
    return f"{values['mid']:.2f} times as fast ({values['low']:.2f} to {values['high']:.2f})"
