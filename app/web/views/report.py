"""A trace or a region as one HTML file that opens offline: the page's own parts, charts as SVG. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from markupsafe import Markup

from app import __version__
from app.web.server.assets import folder
from app.web.templating import environment
from app.web.views import oracle
from app.web.views import region as views
from app.web.views import trace as trace_page

Json = Mapping[str, Any]

STYLES = folder("static") / "app.css"


@cache
def style() -> Markup:
    """The app's style sheet as an element of the page. It is ours, no user's text."""
    return Markup(f"<style>{STYLES.read_text(encoding='utf-8')}</style>")


def trace_report(
    trace: Json, group: Iterable[Json] = (), *, written: str, recorded: Mapping[str, str] | None = None
) -> str:
    """The report of a trace that is ready, with a part for each of its regions.

    written: when, in words. recorded: texts of regions that the archive has, with the device.
    """
    numbered = [{**r, "anchor": f"region-{n}"} for n, r in enumerate(trace["regions"], 1)]
    found = trace_page.trace_page({**trace, "regions": numbered}, group, recorded=recorded)
    sections = [*found["regions"], *found["small"]]
    return _render("report/trace.html", {**found, "sections": sections}, written)


def region_report(region: Json, validation: Json | None = None, nearest: Json | None = None, *, written: str) -> str:
    """The report of a region with what was measured of it here, and the archive's nearest record of it."""
    measured = validation if validation and validation.get("state") == "done" else None
    evidence = nearest or measured
    context: dict[str, Any] = views.validation_summary(measured) if measured else {}
    if nearest:
        there = views.validation_summary(nearest)
        context |= {"nearest": nearest, "nearest_chart": there["candidates_chart"]}
        context |= {"nearest_rows": there["candidate_rows"]}
    charts = views.evidence_charts(region, evidence, None, None) if region.get("advice") else {}
    found = {
        **views.analysis(region, evidence),
        **context,
        **charts,
        "compiled": oracle.measured_compilations(evidence),
    }
    return _render("report/region.html", found, written)


def _render(template: str, context: Json, written: str) -> str:
    shown = {**context, "report": True, "style": style(), "version": __version__, "written": written}
    return environment().get_template(template).render(shown)
