"""A trace or a region as one HTML file that opens offline: the page's own parts, charts as SVG. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from markupsafe import Markup

from app import __version__
from app.objects.record import ArchiveRecord
from app.objects.region import RegionBody
from app.objects.trace import Trace, TraceBody, TraceSummary
from app.thresholds import DEFAULTS, Thresholds
from app.web.server.assets import folder
from app.web.templating import environment
from app.web.views.region.region_page import analysis, evidence_charts
from app.web.views.region.verdict import verdict_section
from app.web.views.trace_page import trace_page
from app.web.views.validation_page import AnyValidation, measured_compilations, summarize_validation

STYLES = tuple(folder("static") / name for name in ("app.css", "trace.css"))


@cache
def style() -> Markup:
    """The app's style sheets as an element of the page. They are ours, no user's text."""
    return Markup(f"<style>{''.join(sheet.read_text(encoding='utf-8') for sheet in STYLES)}</style>")


def trace_report(
    trace: Trace | TraceBody,
    group: Iterable[TraceSummary] = (),
    *,
    written: str,
    recorded: Mapping[str, ArchiveRecord] | None = None,
    settings: Thresholds = DEFAULTS,
) -> str:
    """The report of a trace that is ready, with a part for each of its regions.

    written: when, in words. recorded: texts of regions that the archive has, with the record. ValueError for a trace
    of which nothing is known.
    """
    page = trace_page(trace, group, recorded=recorded, anchors=True, settings=settings)
    if not page["parts"]:
        raise ValueError("there is nothing to report on a trace that is not read")
    sections = [*page["regions"], *page["small"]]
    verdicts = [verdict_section(region, trace=trace) for region in sections]
    return _render("report/trace.html", {**page, "sections": sections, "verdicts": verdicts}, written)


def region_report(
    region: RegionBody, validation: AnyValidation | None = None, nearest: ArchiveRecord | None = None, *, written: str,
    trace: Trace | None = None,
) -> str:  # fmt: skip
    """The report of a region with what was measured of it here, and the archive's nearest record of it. trace: that it
    is of."""
    measured = validation if validation and validation.get("state") == "done" else None
    evidence = nearest or measured
    context: dict[str, object] = {**analysis(region, evidence, trace=trace)}
    if measured:
        context |= summarize_validation(measured)
    if nearest:
        elsewhere = summarize_validation(nearest)
        context |= {"nearest": nearest, "nearest_chart": elsewhere["candidates_chart"]}
        context |= {"nearest_rows": elsewhere["candidate_rows"]}
    if region.get("advice"):
        context |= evidence_charts(region, evidence, None, None)
    context["compiled"] = measured_compilations(evidence)
    return _render("report/region.html", context, written)


def _render(template: str, context: Mapping[str, object], written: str) -> str:
    shared = {"report": True, "style": style(), "version": __version__, "written": written}
    return environment().get_template(template).render({**context, **shared})
