"""What a template needs beside the API's dictionaries: charts, their rows, rankings. Pure functions of API JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.web import charts, effort, foretold, oracle_views, roofline, trace_views, traffic, whatif
from app.web.units import duration
from profiler.hardware import DEFAULT_DEVICE, Device, find_device

Json = Mapping[str, Any]

COMPANION_WORDS = {"beside": "the trace", "execution_trace": "the execution trace"}

ROUNDING_US = 1e-3
"""Sums of the same kernels' times in another order differ by less."""

SMALL_SHARE = 0.005
FEW = 5
"""Regions under half a per cent of the step that nothing is to be done about are folded away, where there are many."""


def device_json(device: Device, dtype: str | None) -> dict[str, Any]:
    """A device as the roofline needs it: its fields, the rates that estimates use, whether those were measured."""
    return {
        **dataclasses.asdict(device),
        "copy_rate": device.copy_rate,
        "ceilings_measured": device.ceilings_measured,
        "matmul_rates": {dtype: device.matmul_rate(dtype)} if dtype else {},
    }


def analysis(region: Json, validation: Json | None = None) -> dict[str, Any]:
    """Context of partials/analysis.html. Measured points join the roofline where the validation is of its device."""
    advice, cost = region.get("advice") or {}, region.get("cost")
    device = find_device(advice.get("device")) or find_device(DEFAULT_DEVICE)
    if device is None:
        raise LookupError(f"the device table lacks its own default, {DEFAULT_DEVICE}")
    shown = device_json(device, cost.get("matmul_dtype") if cost else None)
    fits = validation and _same_sizes(validation) and find_device(validation.get("device")) == device
    same = validation if fits else None
    panels = traffic.picture(cost)
    return {
        "region": region,
        "oracle": oracle_views.section(region),
        "device": shown,
        "alternatives_chart": charts.alternatives(advice) if advice else None,
        "traffic": panels,
        "traffic_words": traffic.summary(panels),
        "bytes_chart": charts.bytes_moved(cost) if cost else None,
        "roofline_chart": roofline.roofline(cost, shown, same, advice) if cost else None,
        "peak": roofline.compute_rate(cost, shown) if cost else None,
        "ceilings": roofline.ceilings(cost, shown) if cost else None,
        "roofline_points": roofline.roofline_points(cost, shown, same, advice) if cost else [],
    }


def evidence_charts(region: Json, evidence: Json | None, share: float | None, faster: float | None) -> dict[str, Any]:
    """Context of the parts that hold predictions to what was measured, here or elsewhere at the same sizes.

    share, faster: where the what-if's sliders stand, None for the region's own.
    """
    same = evidence if (evidence or {}).get("candidates") and _same_sizes(evidence) else None
    advice = region.get("advice") or None
    rows, told = effort.rows(advice, same), foretold.rows(same, advice)
    return {
        "effort_rows": rows,
        "effort_chart": effort.effort(rows),
        "effort_device": same.get("device") if same else None,
        "foretold_rows": told,
        "foretold_chart": foretold.foretold(told) if told else None,
        "whatif": whatif.section(region, same, share, faster),
    }


def _same_sizes(evidence: Json | None) -> bool:
    return ((evidence or {}).get("archived") or {}).get("match") != "other-sizes"


def measured(validation: Json) -> dict[str, Any]:
    """Context of partials/validation_summary.html."""
    return {
        "validation": validation,
        "candidates_chart": charts.candidates(validation) if validation.get("candidates") else None,
        "candidate_rows": charts.candidate_rows(validation),
    }


def saves_us(region: Json, step_us: float | None) -> float:
    """µs of one step that following the advice is predicted to save: 0 where it says to leave the region.

    By the step's speed-up, which counts waiting for launches as well; without a step time by the region's own.
    """
    advice = region.get("advice") or {}
    step, own = ((advice.get(name) or {}).get("mid") for name in ("step_speedup", "region_speedup"))
    time_us = region.get("time_us_per_step")
    if advice.get("tool") in (None, "skip"):
        return 0.0
    if step and step_us:
        return float(step_us) * (1 - 1 / float(step))
    return float(time_us) * (1 - 1 / float(own)) if own and time_us else 0.0


def ranked(regions: Iterable[Json], step_us: float | None) -> list[dict[str, Any]]:
    """Regions with `saves_us`, the largest saving first, then by time."""
    found = [{**r, "saves_us": saves_us(r, step_us)} for r in regions]
    return sorted(found, key=lambda r: (-r["saves_us"], -(r.get("time_us_per_step") or 0.0)))


def shown_notes(trace: Json) -> list[dict[str, Any]]:
    """The trace's notes for its page: what went wrong, what comes before any kernel; no recipe printed twice."""
    notes = sorted(trace.get("notes") or (), key=lambda n: (n["level"] != "error", n["code"] != "gpu-idle"))
    nameless = any(n["code"] == "no-device" for n in notes)
    shown, recipes = [], set()
    for note in notes:
        if nameless and note["code"] == "remark":  # says for which GPU instead, as no-device does here
            continue
        words, code = _parts(note.get("remedy") or "")
        if code in recipes:
            words, code = _as_above(words), ""
        elif code:
            recipes.add(code)
        shown.append({**note, "remedy": f"{words}\n{code}" if words and code else words or code})
        if note["code"] == "no-device" and trace.get("estimates_for"):
            shown[-1]["message"] = (
                f"The trace does not name its GPU: floors and predictions are for {trace['estimates_for']}. If it was "
                "another, open a region and choose the GPU there."
            )
    return shown


def _as_above(words: str) -> str:
    """A remedy's sentence whose code stands in an earlier note."""
    if words.endswith(":"):
        return f"{words[:-1]}, recorded as above."
    return f"{words} Record it as above." if words else ""


def _parts(remedy: str) -> tuple[str, str]:
    """A remedy's sentence and its code; either may be ""."""
    if remedy.startswith(("from ", "import ")):
        return "", remedy.strip()
    words, _, code = remedy.partition("\n")
    return words, code.strip()


def obstacle_rows(obstacles: Iterable[Json]) -> list[dict[str, Any]]:
    """What stands in torch.compile's way, one row a remedy: its operations, calls and places together."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for found in obstacles:
        key = found["kind"], "" if found["kind"] == "custom-op" else found["remedy"]
        row = rows.setdefault(key, {**found, "ops": [], "where": [], "total": 0.0})
        row["ops"].append(found["op"])
        row["total"] += found["calls_per_step"]
        row["where"] += [w for w in (found["sources"] or found["modules"]) if w not in row["where"]]
    return [
        {
            **row,
            "title": row["title"][:1].upper() + row["title"][1:],
            "ops": row["ops"][:FEW],
            "more_ops": max(0, len(row["ops"]) - FEW),
            "where": row["where"][:FEW],
            "calls": f"{row['total']:.3g}",
            "operands": row["operands"][:2] if len(row["ops"]) == 1 else [],
        }
        for row in rows.values()
    ]


def _paired(regions: Sequence[Json]) -> list[dict[str, Any]]:
    """Regions with `forward`, the region whose gradient each computes, and `passes`, its time in both in words."""
    by_key = {r["key"]: r for r in reversed(regions) if r.get("key")}
    return [{**r, "forward": by_key.get(r.get("forward_of") or ""), "passes": _passes(r)} for r in regions]


def _passes(region: Json) -> str:
    forward, backward = (region.get(f"{name}_time_us_per_step") or 0.0 for name in ("forward", "backward"))
    if not backward:
        return ""
    return f"forward {duration(forward)}, backward {duration(backward)}" if forward > ROUNDING_US else "backward"


def trace_page(trace: Json, group: Iterable[Json] = ()) -> dict[str, Any]:
    """Context of partials/trace_body.html. group: the traces of the same job, this one among them."""
    if trace["status"] != "ready":
        return {"trace": trace}
    rows = charts.step_rows(trace)
    by_tool: dict[str, float] = {}
    for row in rows:
        by_tool[row["tool"]] = by_tool.get(row["tool"], 0.0) + row["time_us"]
    step_us = trace.get("step_time_us")
    regions = ranked(_paired(trace.get("regions") or ()), step_us)
    small = [r for r in regions if not r["saves_us"] and (r.get("share_of_step") or 0.0) < SMALL_SHARE]
    helping = [r["advice"] for r in regions if (r.get("advice") or {}).get("tool") not in (None, "skip")]
    timeless = bool(helping) and not any(a.get("region_speedup") for a in helping)
    used = [
        {"tool": tool, "time_us": by_tool[tool], "share": by_tool[tool] / step_us if step_us else None}
        for tool in charts.TOOLS
        if tool in by_tool
    ]
    order = {tool: place for place, tool in enumerate(charts.TOOLS)}
    return {
        "trace": trace,
        "notes": shown_notes(trace),
        "obstacles": obstacle_rows(trace.get("compile_obstacles") or ()),
        "no_saving": "not known: no times can be predicted" if timeless else "no saving predicted",
        "step_rows": rows,
        "strip": sorted(rows, key=lambda row: (order[row["tool"]], -row["time_us"])),
        "tools_used": used,
        "step_chart": charts.step_by_region(trace),
        "regions": regions if len(small) < FEW else [r for r in regions if r not in small],
        "small": [] if len(small) < FEW else small,
        "gain": trace_views.gain_section(trace),
        "companions": [
            {"what": words, "name": (trace.get("companions") or {})[field]}
            for field, words in COMPANION_WORDS.items()
            if field in (trace.get("companions") or {})
        ],
        **trace_views.step_section(trace),
        **trace_views.rank_section(group),
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
    return [
        {
            "id": v["id"],
            "label": f"{v.get('name') or 'region'} · {v.get('outcome') or v['state']} · {v.get('device') or 'no GPU'}"
            f" · {when(v['created_at']) if v.get('created_at') else v.get('date') or ''}",
        }
        for v in validations
        if v["state"] == "done"
    ]


def picked(choices: Sequence[Mapping[str, str]], a: str, b: str) -> dict[str, str]:
    """Which options of /compare stand selected: what was asked for, else the newest two, never the same one twice."""
    ids = [choice["id"] for choice in choices]
    first = a or next((i for i in ids if i != b), "")
    return {"a": first, "b": b or next((i for i in ids if i != first), "")}
