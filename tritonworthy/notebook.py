"""Reports as HTML for a notebook's cell: the bottleneck, three things to do, a link. No script, nothing to load."""

from __future__ import annotations

from html import escape
from urllib.parse import urlsplit

from app.objects.region import RegionBody
from app.objects.trace import Action, TraceBody
from app.trace_report.actions.listed import place, saving_words, with_alternatives

MOST_ACTIONS = 3


def trace_html(trace: TraceBody, link: str) -> str:
    """A trace: its step, its bottleneck, the actions that save most."""
    step_us, critical = trace["step_time_us"], trace.get("critical")
    step = f"{step_us / 1e3:.2f} ms a step" if step_us else "no step"
    head = f"<p><strong>{_text(trace['name'])}</strong>: {step}</p>"
    bottleneck = f"<p>Bottleneck: {_text(critical['because'])}</p>" if critical else ""
    actions = with_alternatives(trace.get("actions") or ())
    rows = "".join(_action(action) for action, _ in actions[:MOST_ACTIONS])
    listed = f"<ol>{rows}</ol>" if rows else "<p>Nothing to do about the step.</p>"
    left = len(actions) - MOST_ACTIONS
    more = f"<p>{left} more: print() lists them.</p>" if left > 0 else ""
    return f"<div>{head}{bottleneck}{listed}{more}{_link(link)}</div>"


def region_html(region: RegionBody, link: str) -> str:
    """A region: what is advised, and the call."""
    advice = region["advice"]
    name = f"<p><strong>{_text(region['name'] or 'region')}</strong></p>"
    if advice is None:
        return f"<div>{name}<p>No advice.</p>{_link(link)}</div>"
    action = f"<p>{_text(advice['action'])}</p>" if advice["action"] else ""
    return f"<div>{name}<p>{_text(advice['headline'])}</p>{action}{_code(advice['call'])}{_link(link)}</div>"


def text_html(text: str) -> str:
    """A text as it is printed."""
    return f"<pre>{_text(text)}</pre>"


def _action(action: Action) -> str:
    where = f" ({_text(place(action))})" if place(action) else ""
    saved = _text(saving_words(action))
    return f"<li><strong>{_text(action['title'])}</strong>{where}<br>{saved}{_code(action['call'])}</li>"


def _code(call: str) -> str:
    return f"<pre>{_text(call)}</pre>" if call else ""


def _link(link: str) -> str:
    """The page, where the address is one of the web."""
    if urlsplit(link).scheme not in ("http", "https"):
        return ""
    return f'<p><a href="{escape(link)}" rel="noopener noreferrer" target="_blank">Open its page</a></p>'


def _text(text: str) -> str:
    return escape(text)
