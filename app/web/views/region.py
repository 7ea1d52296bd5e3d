"""What a template needs beside the API's dictionaries: charts, their rows, rankings. Pure functions of API JSON."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.web.charts import effort, plotly, roofline, traffic
from app.web.views import conditions, oracle, predicted_vs_measured, whatif
from app.web.views.long_lists import MOST_SAVINGS, heaviest
from profiler.hardware import DEFAULT_DEVICE, Device, find_device

Json = Mapping[str, Any]


def device_json(device: Device, *dtypes: str | None) -> dict[str, Any]:
    """A device as the roofline needs it: its fields, the rates that estimates use, whether those were measured."""
    return {
        **dataclasses.asdict(device),
        "copy_rate": device.copy_rate,
        "ceilings_measured": device.ceilings_measured,
        "matmul_rates": {dtype: device.matmul_rate(dtype) for dtype in dtypes if dtype},
    }


def analysis(region: Json, validation: Json | None = None) -> dict[str, Any]:
    """Context of partials/analysis.html. Measured points join the roofline where the validation is of its device."""
    advice, cost = region.get("advice") or {}, region.get("cost")
    device = find_device(advice.get("device")) or find_device(DEFAULT_DEVICE)
    if device is None:
        raise LookupError(f"the device table lacks its own default, {DEFAULT_DEVICE}")
    shown = device_json(device, *(cost.get(name) for name in ("matmul_dtype", "limit_dtype")) if cost else ())
    fits = validation and _same_sizes(validation) and find_device(validation.get("device")) == device
    same = validation if fits else None
    panels = traffic.picture(cost)
    return {
        "region": region,
        **(cost_rows(cost) if cost else {}),
        "oracle": oracle.section(region),
        "device": shown,
        "alternatives_chart": plotly.alternatives(advice) if advice else None,
        "traffic": panels,
        "traffic_words": traffic.summary(panels),
        "bytes_chart": plotly.bytes_moved(cost) if cost else None,
        "roofline_chart": roofline.roofline(cost, shown, same, advice) if cost else None,
        "peak": roofline.compute_rate(cost, shown) if cost else None,
        "written_peak": roofline.written_rate(cost, shown) if cost else None,
        "ceilings": roofline.ceilings(cost, shown) if cost else None,
        "roofline_points": roofline.roofline_points(cost, shown, same, advice) if cost else [],
    }


def cost_rows(cost: Json) -> dict[str, Any]:
    """Context of the tables of operations, kernels and savings: app.web.views.long_lists.Rows of each."""
    return {
        "operation_rows": plotly.operation_rows(cost),
        "kernel_rows": heaviest(list(enumerate(cost["kernels"], 1)), lambda row: plotly.total_bytes(row[1])),
        "saving_rows": heaviest(cost["savings"], lambda s: s["bytes_before"] - s["bytes_after"], MOST_SAVINGS),
    }


def evidence_charts(region: Json, evidence: Json | None, share: float | None, faster: float | None) -> dict[str, Any]:
    """Context of the parts that hold predictions to what was measured, here or elsewhere at the same sizes.

    share, faster: where the what-if's sliders stand, None for the region's own.
    """
    same = evidence if (evidence or {}).get("candidates") and _same_sizes(evidence) else None
    advice = region.get("advice") or None
    rows, told = effort.rows(advice, same), predicted_vs_measured.rows(same, advice)
    return {
        "effort_rows": rows,
        "effort_chart": effort.effort(rows),
        "effort_device": same.get("device") if same else None,
        "foretold_rows": told,
        "foretold_chart": predicted_vs_measured.prediction_chart(told) if told else None,
        "whatif": whatif.section(region, same, share, faster),
    }


def _same_sizes(evidence: Json | None) -> bool:
    return ((evidence or {}).get("archived") or {}).get("match") != "other-sizes"


def validation_summary(validation: Json) -> dict[str, Any]:
    """Context of partials/validation_summary.html."""
    return {
        "validation": validation,
        "candidates_chart": plotly.candidates(validation) if validation.get("candidates") else None,
        "candidate_rows": plotly.candidate_rows(validation),
        "condition_rows": conditions.rows(validation.get("conditions")),
        "condition_warnings": conditions.warnings(validation.get("conditions")),
    }


def recent_rows(items: Iterable[Json]) -> list[dict[str, Any]]:
    """Rows of partials/recent.html from the store's mixed list."""
    folders = {"trace": "traces", "region": "regions", "validation": "validations"}
    return [
        {**item, "url": f"/{folders[item['kind']]}/{item['id']}", "when": when(item["created_at"])} for item in items
    ]


def when(iso: str) -> str:
    """2026-11-21T06:34:12.123Z as 2026-11-21 06:34 UTC."""
    return f"{iso[:10]} {iso[11:16]} UTC" if len(iso) >= 16 else iso


def choices(validations: Sequence[Json]) -> list[dict[str, str]]:
    """Finished validations as options of /compare."""
    return [{"id": v["id"], "label": _label(v)} for v in validations if v["state"] == "done"]


def _label(validation: Json) -> str:
    made = validation.get("created_at")
    parts = (
        validation.get("name") or "region", _sizes(validation.get("region") or ""),
        validation.get("outcome") or validation["state"], validation.get("device") or "no GPU",
        when(made) if made else validation.get("date"),
    )  # fmt: skip
    return " · ".join(str(p) for p in parts if p)


def _sizes(text: str) -> str:
    """The first input of a region's text, by which regions of one name are told apart."""
    return next((line.partition(":")[2].strip() for line in text.splitlines() if re.match(r"\s*\w+\s*:", line)), "")


def select_options(choices: Sequence[Mapping[str, str]], a: str, b: str) -> dict[str, str]:
    """Which options of /compare stand selected: what was asked for, else the newest two, never the same one twice."""
    ids = [choice["id"] for choice in choices]
    first = a or next((i for i in ids if i != b), "")
    return {"a": first, "b": b or next((i for i in ids if i != first), "")}
