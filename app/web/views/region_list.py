"""Which regions of a trace are listed and in what order, as the page's address says it. Pure functions of API JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NotRequired, TypedDict, Unpack
from urllib.parse import urlencode

from app.objects.common import Range
from app.objects.region import Region, RegionBody
from app.web.labels import TOOL_LABELS

TOOLS = ("triton", "cuda", "compile", "library", "skip")
EVIDENCE = (
    ("measured", "measured"),
    ("recorded", "recorded elsewhere"),
    ("predicted", "predicted"),
    ("rule", "by the rule, no times"),
)
"""How advice is known, the best first: its word in the address, in the page."""
SORTS = (
    ("saving", "saving"), ("time", "time"), ("share", "share"), ("speedup", "region speed-up"), ("calls", "calls"),
    ("name", "name"),
)  # fmt: skip
TAB_NAMES = {
    "regions": "Regions",
    "timeline": "Timeline",
    "flame": "Flame graph",
    "source": "Source",
    "where": "Where time goes",
    "notes": "Notes",
}
"""The tabs of the page: the word in its address -> the one on it. The first is open where none is asked for."""
MAX_TEXT, MAX_NUMBER = 100, 1e12

Level = Literal["", "measured", "recorded", "predicted", "rule"]
"""How a region's advice is known: a word of EVIDENCE; "" without advice."""


class ListedRegion(Region):
    """A region as a trace's page lists it. distinct_name: by which a reader distinguishes those of one name.

    place: in the trace's list. saves_us: of one step, by following the advice alone. step_speedup: likewise. recorded:
    the device of the archive's record of it. forward: the region whose gradient it computes; passes: its time in both
    passes, in words. anchor: of its part of a report.
    """

    distinct_name: NotRequired[str]
    place: NotRequired[int]
    saves_us: NotRequired[float]
    step_speedup: NotRequired[Range | None]
    recorded: NotRequired[str | None]
    level: NotRequired[Level]
    forward: NotRequired[ListedRegion | None]
    passes: NotRequired[str]
    anchor: NotRequired[str]


@dataclass(frozen=True, slots=True)
class View:
    """What the page's address asks for. Empty is all.

    q: words that must all stand in a region's name, module, source line, operations or kernels. min_share: of the step,
    0 to 1. stream, rank: None for all and for the trace's own. start_us, end_us: what the timeline shows.
    tab: the open one.
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
    tab: str = "regions"

    @property
    def filters(self) -> bool:
        """It leaves regions out, or may."""
        filters = replace(self, sort="saving", start_us=None, end_us=None, rank=None, tab="regions")
        return filters != View()

    @property
    def window(self) -> tuple[float, float] | None:
        if self.start_us is None or self.end_us is None:
            return None
        return self.start_us, self.end_us


class ViewChanges(TypedDict, total=False):
    """Fields in place of a view's."""

    q: str
    tool: tuple[str, ...]
    evidence: str
    min_share: float
    stream: int | None
    rank: int | None
    sort: str
    start_us: float | None
    end_us: float | None
    tab: str


class Filter(TypedDict):
    """A filter that is on, in words. without: the fields that take it away."""

    words: str
    without: ViewChanges


def parse_view(query: Iterable[tuple[str, str]]) -> View:
    """The view that an address asks for; what is no such value is left out, so that an old link still opens."""
    values: dict[str, str] = {}
    tools = []
    for name, value in query:
        if name == "tool" and value in TOOLS:
            tools.append(value)
        elif value.strip():
            values[name] = value.strip()
    percent = _number(values.get("min_share"))
    start, end = _number(values.get("start")), _number(values.get("end"))
    stream, rank = _number(values.get("stream")), _number(values.get("rank"))
    return View(
        q=values.get("q", "")[:MAX_TEXT],
        tool=tuple(t for t in TOOLS if t in tools) if len(set(tools)) < len(TOOLS) else (),
        evidence=values["evidence"] if values.get("evidence") in dict(EVIDENCE) else "",
        min_share=min(max(percent or 0.0, 0.0), 100.0) / 100,
        stream=None if stream is None else int(stream),
        rank=None if rank is None else int(rank),
        sort=values["sort"] if values.get("sort") in dict(SORTS) else "saving",
        start_us=start if start is not None and end is not None and end > start >= 0 else None,
        end_us=end if start is not None and end is not None and end > start >= 0 else None,
        tab=values["tab"] if values.get("tab") in TAB_NAMES else "regions",
    )


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", "."))
    except ValueError:
        return None
    return value if abs(value) <= MAX_NUMBER else None  # a NaN is no number either


def write_query(view: View, **changes: Unpack[ViewChanges]) -> str:
    """The address's query for a view, only with what is not the default; "" for all of it.

    changes: fields in place of the view's.
    """
    view = replace(view, **changes)
    pairs: list[tuple[str, str]] = [("tab", view.tab)] if view.tab != "regions" else []
    pairs += [("q", view.q)] if view.q else []
    pairs += [("tool", tool) for tool in view.tool]
    pairs += [("evidence", view.evidence)] if view.evidence else []
    pairs += [("min_share", f"{view.min_share * 100:g}")] if view.min_share else []
    pairs += [("stream", str(view.stream))] if view.stream is not None else []
    pairs += [("rank", str(view.rank))] if view.rank is not None else []
    pairs += [("sort", view.sort)] if view.sort != "saving" else []
    if view.window:
        pairs += [("start", f"{view.window[0]:.1f}"), ("end", f"{view.window[1]:.1f}")]
    return urlencode(pairs)


def evidence_level(region: Region | RegionBody, recorded: str | None = None) -> Level:
    """How a region's advice is known. recorded: the device of the archive's record of it, if any."""
    advice = region.get("advice")
    validation = advice.get("validation") if advice else None
    if validation and validation.get("outcome") not in (None, "unmeasured"):
        return "measured"
    if recorded:
        return "recorded"
    if not advice:
        return ""
    timed = advice.get("region_speedup") and (advice.get("tool") != "skip" or advice.get("floor_us"))
    return "predicted" if timed else "rule"


def _searched_text(region: ListedRegion) -> str:
    """Everything of a region that is searched, in lower case."""
    parts = [region.get("distinct_name") or "", region.get("name") or "", region.get("kind") or ""]
    source = region.get("source")
    if source:
        parts += [source.get("module") or "", source.get("line") or "", *(source.get("ops") or ())]
    parts += region.get("kernel_names") or ()
    return " ".join(str(part) for part in parts).lower()


def select(regions: Sequence[ListedRegion], view: View) -> list[ListedRegion]:
    """Those that the view asks for, in its order. regions: by saving, with `saves_us`."""
    words = view.q.lower().split()
    selected = [
        region
        for region in regions
        if (not view.tool or _tool(region) in view.tool)
        and (not view.evidence or evidence_level(region, region.get("recorded")) == view.evidence)
        and (region.get("share_of_step") or 0.0) >= view.min_share
        and (view.stream is None or view.stream in (region.get("streams") or ()))
        and (not words or _holds_all(_searched_text(region), words))
    ]
    if view.sort == "name":
        return sorted(selected, key=lambda r: str(r.get("distinct_name") or r["name"]).lower())
    return sorted(selected, key=_ORDERS[view.sort])


_ORDERS: Mapping[str, Callable[[ListedRegion], float]] = {
    "saving": lambda r: -(r.get("saves_us") or 0.0),
    "time": lambda r: -(r.get("time_us_per_step") or 0.0),
    "share": lambda r: -(r.get("share_of_step") or 0.0),
    "speedup": lambda r: -region_speedup(r),
    "calls": lambda r: -(r.get("calls_per_step") or 0.0),
}


def region_speedup(region: ListedRegion) -> float:
    """What following the advice makes of the region itself; 1 where it is left as it is, or nothing is predicted."""
    advice = region.get("advice")
    speedup = advice.get("region_speedup") if advice and advice.get("tool") != "skip" else None
    return float(speedup["mid"]) if speedup else 1.0


def _tool(region: ListedRegion) -> str | None:
    advice = region.get("advice")
    return advice.get("tool") if advice else None


def _holds_all(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)


def describe_filters(view: View) -> list[Filter]:
    """Each filter in words, with the view without it: what a reader may take away again."""
    filters: list[Filter] = []
    if view.q:
        filters.append({"words": f"“{view.q}”", "without": {"q": ""}})
    if view.tool:
        filters.append({"words": " or ".join(TOOL_LABELS[t] for t in view.tool), "without": {"tool": ()}})
    if view.evidence:
        filters.append({"words": dict(EVIDENCE).get(view.evidence, ""), "without": {"evidence": ""}})
    if view.min_share:
        words = f"at least {view.min_share * 100:g} % of the step"
        filters.append({"words": words, "without": {"min_share": 0.0}})
    if view.stream is not None:
        filters.append({"words": f"stream {view.stream}", "without": {"stream": None}})
    return filters
