"""`tritonworthy advise REGION --device all`: the region on every device of the table, as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

ALL = "all"
"""The name that stands for every device of the table."""


def on_devices(text: str, **workload: Any) -> Json:
    """The API's `items` of a region's text: what `GET /api/v1/regions/{id}/devices` answers. Raises RegionError."""
    from app.analysis import service

    return {"items": service.on_devices(service.prepare_region(text, **workload))}


def devices_text(found: Json) -> str:
    """One line a device."""
    lines = []
    for row in found["items"]:
        tool = f"{row['tool']} {row['mode']}" if row["mode"] != "default" else row["tool"]
        region, step = _span(row["region_speedup"]), _span(row["step_speedup"])
        lines.append(f"{row['device']:<24} {tool}: region {region}, step {step}{'' if row['fitted'] else ' *'}")
    scaled = next((r["because"] for r in found["items"] if not r["fitted"]), None)
    return "\n".join([*lines, *([f"* such as the first: {scaled}"] if scaled else [])])


def _span(values: Mapping[str, float] | None) -> str:
    if values is None:
        return "not predicted"
    return f"{values['mid']:.2f} times as fast ({values['low']:.2f} to {values['high']:.2f})"
