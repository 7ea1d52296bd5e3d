"""Jinja2 for the pages: autoescaped, with the filters of app.units and the words of app.web.labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from app import units
from app.advice import criteria
from app.trace_report.actions.listed import little
from app.web import labels
from app.web.charts import effort
from app.web.charts.figure import show_hidden
from app.web.charts.svg import can_draw, drawing, drawings
from app.web.charts.timed import advised_candidate
from app.web.server.assets import asset, folder
from app.web.server.vocabulary_version import vocabulary_address
from kernels.measure.outcome import by_wall

TEMPLATES = folder("templates")


def ticks(text: object) -> Markup:
    """Text with `code` in backticks, as the advice writes it: escaped first, then the pairs become <code>."""
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(text))))


def breakable(path: str, mark: str = "/") -> Markup:
    """A path that may wrap after its slashes, or a name after another mark, rather than anywhere."""
    return Markup(f"{escape(mark)}<wbr>").join(path.split(mark))


def reveal_hidden(value: object) -> object:
    """What an expression prints, with every hidden character as its number: names of a trace may turn the direction
    of the text around them, or be no text at all. Markup stays markup."""
    if not isinstance(value, str):
        return value
    text = show_hidden(value)
    return Markup(text) if isinstance(value, Markup) else text


@cache
def environment() -> Environment:
    """One environment per process. Every template is HTML, so everything is escaped unless said otherwise."""
    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=reveal_hidden,
    )
    env.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    env.filters |= {
        "by_wall": by_wall,
        "duration": units.duration,
        "amount": units.amount,
        "share": units.share,
        "factor": units.factor,
        "span": units.span,
        "ratio": units.ratio,
        "digits": units.digits,
        "plain": units.plain,
        "ticks": ticks,
        "breakable": breakable,
        "count": units.count,
        "criterion": criteria.figure,
        "change": units.change,
        "sentence": units.sentence,
        "drawing": drawing,
        "drawings": drawings,
        "effort_kept": effort.describe_lines,
        "advised": advised_candidate,
        "little": little,
    }
    env.tests["drawable"] = can_draw
    env.globals |= {
        "asset": asset,
        "vocabulary_address": vocabulary_address,
        "tool_labels": labels.TOOL_LABELS,
        "outcome_labels": labels.OUTCOME_LABELS,
        "agreement": labels.AGREEMENT,
        "paired_by": labels.PAIRED_BY,
        "status_labels": labels.STATUS_LABELS,
    }
    return env


def is_fragment(request: Request) -> bool:
    """htmx asks for a part of a page, not for a whole one."""
    return request.headers.get("hx-request") == "true"


def render(
    template: str,
    context: Mapping[str, object],
    *,
    request: Request,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """The template as a response. Varies by HX-Request: Back must not show a bare fragment."""
    html = environment().get_template(template).render(request=request, current=request.url.path, **context)
    return HTMLResponse(html, status, {"Vary": "HX-Request", **(headers or {})})
