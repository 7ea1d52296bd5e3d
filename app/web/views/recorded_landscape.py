"""The landscape on a region's page: the nearest one on record where nobody made one here, and how to make one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NotRequired, TypedDict

from app.archive.landscapes import nearest, surveys
from app.objects.evidence import Figures
from app.objects.landscape import Survey
from app.objects.region import RegionBody
from app.units import count
from app.web.charts import landscape
from app.web.charts.figure import Chart
from app.web.charts.plotly import total_bytes
from kernels.measure.model import is_users_kernel
from profiler.region.language.text import parse
from profiler.region.model import RegionError


class Drawing(TypedDict):
    """Chart and table of a record. survey_left_out: tiles that the chart lacks."""

    survey_rows: list[landscape.PointRow]
    survey_chart: Chart | None
    survey_left_out: int


class SurveySection(TypedDict):
    """Context of partials/region/landscape.html. survey: the nearest record of one of the region's kernels.

    survey_candidate: the kernel whose landscape is to be made here, "" where the region has no Triton kernel.
    survey_words: what is shown, whose it is, and what it says.
    """

    survey: Survey | None
    survey_candidate: str
    survey_words: NotRequired[list[str]]
    survey_rows: NotRequired[list[landscape.PointRow]]
    survey_chart: NotRequired[Chart | None]
    survey_left_out: NotRequired[int]


def triton_candidates(region: RegionBody, evidence: Figures | None = None) -> list[str]:
    """The Triton candidates that a region can run: those that were measured first, the fastest in front, then as
    predicted. What has to be written yet is none.
    """
    measured = [
        (time_us["median"], c["name"])
        for c in (evidence.get("candidates") or () if evidence else ())
        if c["tool"] == "triton" and c["status"] == "ok" and not is_users_kernel(c["name"])
        if (time_us := c.get("time_us"))
    ]
    advice = region.get("advice")
    options = advice.get("alternatives") or () if advice else ()
    predicted = [
        (predicted_us["mid"] if (predicted_us := o.get("time_us")) else float("inf"), candidate)
        for o in options
        if o["tool"] == "triton" and (candidate := o.get("candidate")) and not candidate.endswith(":custom")
    ]
    return list(dict.fromkeys(name for _, name in [*sorted(measured), *sorted(predicted)]))


def survey_section(region: RegionBody, evidence: Figures | None = None) -> SurveySection:
    """The nearest record of one of the region's kernels, drawn, and the kernel that one can be made of here."""
    names = triton_candidates(region, evidence)
    survey = _find_nearest(region, names)
    candidate = names[0] if names else ""
    if survey is None:
        return {"survey": None, "survey_candidate": candidate}
    words = describe_survey(survey, candidate)
    return {"survey": survey, "survey_candidate": candidate, "survey_words": words, **_draw(survey["number"])}


@lru_cache(maxsize=128)
def _draw(number: int) -> Drawing:
    """Chart and rows of a record, by its number: they do not change, and a page has 100 ms."""
    survey = surveys()[number]
    rows = landscape.point_rows(survey)
    if survey["kind"] == "tuner":
        return {"survey_rows": rows, "survey_chart": landscape.tuner_bars(survey), "survey_left_out": 0}
    short = landscape.shorten_survey(survey)
    chart = landscape.heat_map(short)
    return {"survey_rows": rows, "survey_chart": chart, "survey_left_out": short["tiles_left_out"]}


def _find_nearest(region: RegionBody, names: Sequence[str]) -> Survey | None:
    cost, text = region.get("cost"), region.get("text")
    if not (names and cost and text):
        return None
    try:
        inputs = parse(text).inputs
    except RegionError:
        return None
    return nearest(names, inputs[0].dtype if inputs else "", total_bytes(cost["ideal"]))


def describe_survey(survey: Survey, candidate: str) -> list[str]:
    """What is shown, whose it is, and what it says. candidate: the kernel that a landscape is wanted of."""
    timed = [p for p in survey["points"] if p["time_us"]]
    how = "the points that its own tuner tried" if survey["kind"] == "tuner" else f"{count(len(timed), 'point')} timed"
    other = "" if survey["candidate"] == candidate else f" There is none on record of {candidate}."
    texts = [
        f"The nearest on record: `{survey['candidate']}` at {survey['what']}, {how}.{other}",
        landscape.describe_spread(survey),
        landscape.describe_choice(survey),
        landscape.describe_order(survey),
    ]
    return [text for text in texts if text]
