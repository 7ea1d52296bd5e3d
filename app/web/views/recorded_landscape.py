"""The landscape on a region's page: the nearest one on record where nobody made one here, and how to make one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from app.archive.landscapes import nearest, surveys
from app.units import count
from app.web.charts import landscape
from app.web.charts.plotly import total_bytes
from profiler.region.language.text import parse
from profiler.region.model import RegionError

Json = Mapping[str, Any]


def candidates(region: Json, evidence: Json | None = None) -> list[str]:
    """The Triton candidates that a region can run: those that were measured first, the fastest in front, then as
    predicted. What has to be written yet is none.
    """
    measured = [
        (c["time_us"]["median"], c["name"])
        for c in (evidence or {}).get("candidates") or ()
        if c["tool"] == "triton" and c["status"] == "ok" and c.get("time_us")
    ]
    options = (region.get("advice") or {}).get("alternatives") or ()
    predicted = sorted(
        (o["time_us"]["mid"] if o.get("time_us") else float("inf"), o["candidate"])
        for o in options
        if o["tool"] == "triton" and o.get("candidate") and not o["candidate"].endswith(":custom")
    )
    return list(dict.fromkeys(name for _, name in [*sorted(measured), *predicted]))


def section(region: Json, evidence: Json | None = None) -> dict[str, Any]:
    """Context of partials/region_landscape.html: `survey`, the nearest record of one of the region's kernels or None.

    survey_candidate: the kernel whose landscape is to be made here, "" where the region has no Triton kernel.
    """
    names = candidates(region, evidence)
    found = _nearest(region, names)
    context: dict[str, Any] = {"survey": found, "survey_candidate": names[0] if names else ""}
    if found is not None:
        context |= {**_draw(found["number"]), "survey_words": words(found, names[0])}
    return context


@lru_cache(maxsize=128)
def _draw(number: int) -> dict[str, Any]:
    """Chart and rows of a record, by its number: they do not change, and a page has 100 ms."""
    found = surveys()[number]
    shown = {"survey_rows": landscape.rows(found)}
    if found["kind"] == "tuner":
        return {**shown, "survey_chart": landscape.few(found), "survey_left_out": 0}
    short = landscape.short(found)
    return {**shown, "survey_chart": landscape.heat_map(short), "survey_left_out": short["tiles_left_out"]}


def _nearest(region: Json, names: list[str]) -> dict[str, Any] | None:
    cost, text = region.get("cost"), region.get("text")
    if not (names and cost and text):
        return None
    try:
        inputs = parse(text).inputs
    except RegionError:
        return None
    return nearest(names, inputs[0].dtype if inputs else "", total_bytes(cost["ideal"]))


def words(survey: Json, wanted: str) -> list[str]:
    """What is shown, whose it is, and what it says."""
    timed = [p for p in survey["points"] if p["time_us"]]
    how = "the points that its own tuner tried" if survey["kind"] == "tuner" else f"{count(len(timed), 'point')} timed"
    other = "" if survey["candidate"] == wanted else f" There is none on record of {wanted}."
    found = [
        f"The nearest on record: `{survey['candidate']}` at {survey['what']}, {how}.{other}",
        landscape.headline(survey),
        landscape.chosen_words(survey),
        landscape.order_words(survey),
    ]
    return [text for text in found if text]
