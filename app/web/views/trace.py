"""What the page of a trace needs beside the API's object: rankings, notes, names that tell apart, the view asked for.

Pure functions of API JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.units import duration
from app.web.charts import plotly
from app.web.charts.timeline import timeline_section
from app.web.views import trace_step
from app.web.views.breakdown import where_section
from app.web.views.reading import has_parts, progress_of
from app.web.views.region_list import EVIDENCE, SORTS, TOOLS, View, describe_filters, level, query_of, select
from app.web.views.region_names import region_names

Json = Mapping[str, Any]

COMPANION_WORDS = {"beside": "the trace", "execution_trace": "the execution trace"}

ROUNDING_US = 1e-3
"""Sums of the same kernels' times in another order differ by less."""

SMALL_SHARE = 0.005
ADVICE_HEIGHT = 234
"""px of the part "What to do" beside its chart: the room that is kept for it while advice comes."""
FEW = 5
"""Regions under half a per cent of the step that nothing is to be done about are folded away, where there are many."""


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


def rank_by_saving(regions: Iterable[Json], step_us: float | None) -> list[dict[str, Any]]:
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


def _pair_passes(regions: Sequence[Json]) -> list[dict[str, Any]]:
    """Regions with `forward`, the region whose gradient each computes, and `passes`, its time in both in words."""
    by_key = {r["key"]: r for r in reversed(regions) if r.get("key")}
    return [{**r, "forward": by_key.get(r.get("forward_of") or ""), "passes": _passes(r)} for r in regions]


def _passes(region: Json) -> str:
    forward, backward = (region.get(f"{name}_time_us_per_step") or 0.0 for name in ("forward", "backward"))
    if not backward:
        return ""
    return f"forward {duration(forward)}, backward {duration(backward)}" if forward > ROUNDING_US else "backward"


def trace_page(
    trace: Json, group: Iterable[Json] = (), *, view: View | None = None, recorded: Mapping[str, str] | None = None,
    of_rank: Json | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Context of partials/trace_body.html. group: the traces of the same job, this one among them.

    reading: the trace is still being read; parts: what is there of it can be shown, without the advice on all regions.
    view: what the page's address asks for. recorded: texts of regions that the archive has, with the device.
    of_rank: the trace of the rank whose regions are listed, where it is another.
    """
    reading = trace["status"] == "reading"
    if not has_parts(trace):
        return {"trace": trace, "reading": reading, "parts": False}
    view = view or View()
    trace = {**trace, "regions": add_shown_names(trace.get("regions") or ())}
    rows = plotly.step_rows(trace)
    by_tool: dict[str, float] = {}
    for row in rows:
        by_tool[row["tool"]] = by_tool.get(row["tool"], 0.0) + row["time_us"]
    step_us = trace.get("step_time_us")
    used = [
        {"tool": tool, "time_us": by_tool[tool], "share": by_tool[tool] / step_us if step_us else None}
        for tool in plotly.TOOLS
        if tool in by_tool
    ]
    order = {tool: place for place, tool in enumerate(plotly.TOOLS)}
    helping = [r["advice"] for r in trace["regions"] if (r.get("advice") or {}).get("tool") not in (None, "skip")]
    timeless = bool(helping) and not any(a.get("region_speedup") for a in helping)
    ranks = trace_step.rank_section(group)
    return {
        "trace": trace,
        "reading": reading,
        "parts": True,
        "progress": progress_of(trace),
        "notes": shown_notes(trace),
        "obstacles": obstacle_rows(trace.get("compile_obstacles") or ()),
        "no_saving": _no_saving(trace, timeless),
        "rests_title": _rests_title(trace.get("rests") or ()),
        "step_rows": rows,
        "strip": sorted(rows, key=lambda row: (order[row["tool"]], -row["time_us"])),
        "tools_used": used,
        "step_chart": None if reading else plotly.step_by_region(trace),
        "advice_height": ADVICE_HEIGHT + plotly.step_height(rows),
        "gain": trace_step.gain_section(trace),
        "companions": [
            {"what": words, "name": (trace.get("companions") or {})[field]}
            for field, words in COMPANION_WORDS.items()
            if field in (trace.get("companions") or {})
        ],
        **trace_step.step_section(trace),
        **ranks,
        **where_section(trace, region_labels(trace), region_links(trace)),
        **timeline_part(trace, view),
        **regions_part(trace, view, recorded, of_rank, ranks.get("ranks") or ()),
    }


def _no_saving(trace: Json, timeless: bool) -> str:
    """Why there is no estimate of the step after all changes."""
    if trace["status"] == "failed":
        return "not known: reading ended before"
    return "not known: no times can be predicted" if timeless else "no saving predicted"


def _rests_title(rests: Iterable[Json]) -> str:
    """The heading of what is in no region: kernels that no advice can be given on may be among it."""
    return "Time outside regions" if any(r.get("kind") == "kernels" for r in rests) else "Time outside kernels"


def add_shown_names(regions: Sequence[Json]) -> list[dict[str, Any]]:
    """Regions with `shown_name`, by which a reader tells those of one name apart, and `place`, theirs in the trace."""
    names = region_names(regions)
    return [{**r, "shown_name": name, "place": n} for n, (r, name) in enumerate(zip(regions, names, strict=True))]


def region_labels(trace: Json) -> list[str]:
    """The names of a trace's regions, which are `named`."""
    return [r["shown_name"] for r in trace["regions"]]


def region_links(trace: Json) -> list[str]:
    """Where each region is read about: its page, in a report its part."""
    return [
        f"#{r['anchor']}" if r.get("anchor") else f"/regions/{r['id']}" if r.get("id") else "" for r in trace["regions"]
    ]


def timeline_part(trace: Json, view: View) -> dict[str, Any]:
    """Context of partials/trace_timeline.html, for a trace whose regions are `named`."""

    def link(**changes: Any) -> str:
        return page_address(trace.get("id", ""), view, **changes)

    return timeline_section(trace, region_labels(trace), region_links(trace), view.window, link)


def page_address(trace_id: str, view: View, **changes: Any) -> str:
    """The address of a trace's page in this view."""
    query = query_of(view, **changes)
    return f"/traces/{trace_id}{'?' if query else ''}{query}"


def regions_part(
    trace: Json, view: View, recorded: Mapping[str, str] | None, of_rank: Json | None, ranks: Iterable[Json]
) -> dict[str, Any]:
    """Context of the regions' filter and list, for a trace whose regions are `named`. Without a filter those that
    nothing is to be done about are folded away where they are many and small. While advice comes they are in order of
    time, so that none moves."""
    of = {**of_rank, "regions": add_shown_names(of_rank.get("regions") or ())} if of_rank else trace
    known = recorded or {}
    every = [
        {**r, "recorded": known.get(r.get("text") or "")}
        for r in rank_by_saving(_pair_passes(of["regions"]), of.get("step_time_us"))
    ]
    every = [{**r, "level": level(r)} for r in every]
    reading = trace.get("status") == "reading"
    found = select(every, replace(view, sort="time") if reading and view.sort == "saving" else view)
    fold = not view.filters and view.sort == "saving"
    small = [r for r in found if fold and not r["saves_us"] and (r.get("share_of_step") or 0.0) < SMALL_SHARE]
    if len(small) < FEW:
        small = []
    times = [
        r["busy_us_per_step"] if r.get("busy_us_per_step") is not None else r.get("time_us_per_step") for r in found
    ]
    time_us, step_us = sum(t or 0.0 for t in times), of.get("step_time_us")
    has = {r["level"] for r in every}
    return {
        "view": view,
        "reading": reading,
        "regions": [r for r in found if r not in small] if small else found,
        "small": small,
        "listed": {
            "shown": len(found),
            "of": len(every),
            "time_us": time_us,
            "share": time_us / step_us if step_us else None,
            "filters": [
                {**f, "href": page_address(trace.get("id", ""), view, **f["without"])} for f in describe_filters(view)
            ],
            "all": page_address(trace.get("id", ""), View(start_us=view.start_us, end_us=view.end_us, rank=view.rank)),
            "address": page_address(trace.get("id", ""), view),
            "query": query_of(view, start_us=None, end_us=None),
            "other_rank": of_rank["name"] if of_rank else "",
        },
        "choices": {
            "tools": [(t, sum((r.get("advice") or {}).get("tool") == t for r in every)) for t in TOOLS],
            "evidence": [(value, words, value in has) for value, words in EVIDENCE],
            "streams": sorted({s for r in every for s in r.get("streams") or ()}),
            "ranks": [{"rank": r["rank"], "own": r["id"] == trace.get("id")} for r in ranks],
            "sorts": SORTS,
        },
    }
