"""Which regions of a trace are listed and in what order, as the page's address says it. Pure functions of API JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from app.web.views.labels import TOOL_LABELS

Json = Mapping[str, Any]

TOOLS = ("triton", "cuda", "compile", "library", "skip")
EVIDENCE = (
    ("measured", "measured here"),
    ("recorded", "recorded elsewhere"),
    ("predicted", "predicted"),
    ("rule", "by the rule, no times"),
)
"""How advice is known, the best first: its word in the address, in the page."""
SORTS = (("saving", "saving"), ("time", "time"), ("share", "share"), ("name", "name"))
MAX_TEXT, MAX_NUMBER = 100, 1e12


@dataclass(frozen=True, slots=True)
class View:
    """What the address asks for. Empty is all.

    q: words that must all stand in a region's name, module, source line, operations or kernels. min_share: of the step,
    0 to 1. stream, rank: None for all and for the trace's own. start_us, end_us: what the timeline shows.
    """

    q: str = ""
    tool: tuple[str, ...] = ()
    evidence: str = ""
    min_share: float = 0.0
    stream: int | None = None
    rank: int | None = None
    sort: str = "saving"
    start_us: float | None = None
    end_us: float | None = None

    @property
    def filters(self) -> bool:
        """It leaves regions out, or may."""
        asked = replace(self, sort="saving", start_us=None, end_us=None, rank=None)
        return asked != View()

    @property
    def window(self) -> tuple[float, float] | None:
        if self.start_us is None or self.end_us is None:
            return None
        return self.start_us, self.end_us


def view_of(query: Iterable[tuple[str, str]]) -> View:
    """The view that an address asks for; what is no such value is left out, so that an old link still opens."""
    given: dict[str, str] = {}
    tools = []
    for name, value in query:
        if name == "tool" and value in TOOLS:
            tools.append(value)
        elif value.strip():
            given[name] = value.strip()
    percent = _number(given.get("min_share"))
    start, end = _number(given.get("start")), _number(given.get("end"))
    stream, rank = _number(given.get("stream")), _number(given.get("rank"))
    return View(
        q=given.get("q", "")[:MAX_TEXT],
        tool=tuple(t for t in TOOLS if t in tools) if len(set(tools)) < len(TOOLS) else (),
        evidence=given["evidence"] if given.get("evidence") in dict(EVIDENCE) else "",
        min_share=min(max(percent or 0.0, 0.0), 100.0) / 100,
        stream=None if stream is None else int(stream),
        rank=None if rank is None else int(rank),
        sort=given["sort"] if given.get("sort") in dict(SORTS) else "saving",
        start_us=start if start is not None and end is not None and end > start >= 0 else None,
        end_us=end if start is not None and end is not None and end > start >= 0 else None,
    )


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", "."))
    except ValueError:
        return None
    return value if abs(value) <= MAX_NUMBER else None  # a NaN is no number either


def query_of(view: View, **changes: Any) -> str:
    """The address's query for a view, only with what is not the default; "" for all of it.

    changes: fields in place of the view's; start and end as texts, "" for the whole step.
    """
    if "start" in changes or "end" in changes:
        window = _number(changes.pop("start", "")), _number(changes.pop("end", ""))
        changes |= {"start_us": window[0], "end_us": window[1]}
    view = replace(view, **changes)
    pairs: list[tuple[str, str]] = [("q", view.q)] if view.q else []
    pairs += [("tool", tool) for tool in view.tool]
    pairs += [("evidence", view.evidence)] if view.evidence else []
    pairs += [("min_share", f"{view.min_share * 100:g}")] if view.min_share else []
    pairs += [("stream", str(view.stream))] if view.stream is not None else []
    pairs += [("rank", str(view.rank))] if view.rank is not None else []
    pairs += [("sort", view.sort)] if view.sort != "saving" else []
    if view.window:
        pairs += [("start", f"{view.window[0]:.1f}"), ("end", f"{view.window[1]:.1f}")]
    return urlencode(pairs)


def level(region: Json) -> str:
    """How a region's advice is known: a word of EVIDENCE; "" without advice. `recorded`: the archive's, if any."""
    advice = region.get("advice") or {}
    validation = advice.get("validation") or {}
    if validation and validation.get("outcome") not in (None, "unmeasured"):
        return "measured"
    if region.get("recorded"):
        return "recorded"
    if not advice:
        return ""
    timed = advice.get("region_speedup") and (advice.get("tool") != "skip" or advice.get("floor_us"))
    return "predicted" if timed else "rule"


def _words(region: Json) -> str:
    """Everything of a region that is searched, in lower case."""
    source = region.get("source") or {}
    parts = [
        region.get("shown_name") or "", region.get("name") or "", source.get("module") or "", source.get("line") or "",
        region.get("kind") or "", *(source.get("ops") or ()), *(region.get("kernel_names") or ()),
    ]  # fmt: skip
    return " ".join(str(part) for part in parts).lower()


def select(regions: Sequence[Json], view: View) -> list[Json]:
    """Those that the view asks for, in its order. regions: by saving, with `saves_us`."""
    wanted = view.q.lower().split()
    found = [
        region
        for region in regions
        if (not view.tool or (region.get("advice") or {}).get("tool") in view.tool)
        and (not view.evidence or level(region) == view.evidence)
        and (region.get("share_of_step") or 0.0) >= view.min_share
        and (view.stream is None or view.stream in (region.get("streams") or ()))
        and (not wanted or _holds(_words(region), wanted))
    ]
    if view.sort == "name":
        return sorted(found, key=lambda r: str(r.get("shown_name") or r["name"]).lower())
    field = {"saving": "saves_us", "time": "time_us_per_step", "share": "share_of_step"}[view.sort]
    return sorted(found, key=lambda r: -(r.get(field) or 0.0))


def _holds(text: str, wanted: Sequence[str]) -> bool:
    return all(word in text for word in wanted)


def describe_filters(view: View) -> list[dict[str, Any]]:
    """Each filter in words, with the view without it: what a reader may take away again."""
    defaults = View()
    found = []
    for field in fields(View):
        value = getattr(view, field.name)
        if value == getattr(defaults, field.name) or field.name in ("sort", "start_us", "end_us", "rank"):
            continue
        words = {
            "q": f"“{view.q}”",
            "tool": " or ".join(TOOL_LABELS[t] for t in view.tool),
            "evidence": dict(EVIDENCE).get(view.evidence, ""),
            "min_share": f"at least {view.min_share * 100:g} % of the step",
            "stream": f"stream {view.stream}",
        }[field.name]
        found.append({"words": words, "without": {field.name: getattr(defaults, field.name)}})
    return found
