"""A step's kernel time as a flame graph that hangs down: callers above, regions below, as wide as their time.

Pure functions of API JSON. Places are per cent of the width, so that text stays text at every width and a script moves
frames without drawing anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from app.objects.trace import CallTree, CallTrees, Trace, TraceBody
from app.units import duration, share
from app.web.charts.figure import show_hidden
from app.web.labels import TOOL_LABELS

LEAST_SHARE = 0.0015
"""Of the whole: a narrower frame is less than two pixels wide and is left out, which its place then shows."""
NAMED_SHARE = 0.02
"""A frame from this width on has its name drawn; the others have it in their title."""
ROW_PX = 22
MOST_ROWS = 40
"""Rows of the table: the heaviest frames, in the order of the picture."""
NO_REGION = "in no region"
MISSING = {
    "modules": "The trace names no modules. Record it with `with_stack=True`: then each kernel has the `nn.Module` "
    "that it ran for.",
    "functions": "No Python stacks were recorded. `with_stack=True` adds the functions that launch each kernel.",
}
TITLES = {"modules": "By module", "functions": "By Python function"}


class Frame(TypedDict):
    """A box. left, width: per cent; look: the tool that most of its time is advised; href: of a region."""

    label: str
    title: str
    left: float
    width: float
    depth: int
    look: str
    href: str
    leaf: bool
    named: bool


class FrameRow(TypedDict):
    """A frame in the table. kernels: launched in a step."""

    depth: int
    name: str
    href: str
    tool: str
    time_us: float
    share: float
    kernels: float


class Flame(TypedDict):
    """One picture, or why there is none (`missing`). read: what to see in it, in words; left_out: rows of the table."""

    kind: str
    title: str
    missing: str
    read: str
    height: int
    total_us: float
    frames: list[Frame]
    rows: list[FrameRow]
    left_out: int
    looks: list[str]


class FlameSection(TypedDict, total=False):
    """Context of partials/trace/flame.html; {} for a trace that was stored before there were call trees."""

    flames: list[Flame]


def flame_section(trace: Trace | TraceBody, names: Sequence[str], links: Sequence[str]) -> FlameSection:
    """names, links: of the trace's regions, in the report's order."""
    trees: CallTrees | None = trace.get("call_trees")
    if not trees:
        return {}
    tools = [advice["tool"] if (advice := r.get("advice")) else "none" for r in trace["regions"]]
    both = (("modules", trees["modules"]), ("functions", trees["functions"]))
    return {"flames": [_flame(kind, tree, names, links, tools) for kind, tree in both]}


def _flame(kind: str, tree: CallTree | None, names: Sequence[str], links: Sequence[str], tools: Sequence[str]) -> Flame:
    if tree is None or not tree["parent"]:
        return {
            "kind": kind, "title": TITLES[kind], "missing": MISSING[kind], "read": "", "height": 0, "total_us": 0.0,
            "frames": [], "rows": [], "left_out": 0, "looks": [],
        }  # fmt: skip
    total = sum(t for t, parent in zip(tree["time_us"], tree["parent"], strict=True) if parent < 0)
    looks = _looks(tree, tools)
    frames, rows = _frames(tree, looks, names, links, total)
    order = sorted(range(len(rows)), key=lambda place: -rows[place]["time_us"])[:MOST_ROWS]
    kept = [rows[place] for place in sorted(order)]
    return {
        "kind": kind,
        "title": TITLES[kind],
        "missing": "",
        "read": _describe(tree, names, total),
        "height": ROW_PX * (1 + max((f["depth"] for f in frames), default=0)),
        "total_us": total,
        "frames": frames,
        "rows": kept,
        "left_out": len(rows) - len(kept),
        "looks": [t for t in TOOL_LABELS if t in {f["look"] for f in frames}],
    }


def _looks(tree: CallTree, tools: Sequence[str]) -> list[str]:
    """Of each node the tool that most of its time is advised; of what is in no region "rest"."""
    times: list[dict[str, float]] = [{} for _ in tree["parent"]]
    for place in range(len(times) - 1, -1, -1):
        region = tree["region"][place]
        if region is not None:
            times[place] = {tools[region] if region >= 0 else "rest": tree["time_us"][place]}
        parent = tree["parent"][place]
        if parent >= 0:
            above = times[parent]
            for tool, time in times[place].items():
                above[tool] = above.get(tool, 0.0) + time
    return [max(t, key=lambda tool: t[tool], default="rest") for t in times]


def _frames(
    tree: CallTree, looks: Sequence[str], names: Sequence[str], links: Sequence[str], total: float
) -> tuple[list[Frame], list[FrameRow]]:
    frames: list[Frame] = []
    rows: list[FrameRow] = []
    next_left, depths = [0.0] * len(looks), [0] * len(looks)
    free = 0.0
    columns = zip(tree["parent"], tree["name"], tree["region"], tree["time_us"], tree["kernels"], strict=True)
    for place, (parent, name, region, time, kernels) in enumerate(columns):
        left = free if parent < 0 else next_left[parent]
        if parent < 0:
            free += time
        else:
            next_left[parent] += time
            depths[place] = depths[parent] + 1
        next_left[place] = left
        part = time / total if total else 0.0
        full, href = _name(tree["names"][name], region, names, links)
        advice = TOOL_LABELS.get(looks[place], looks[place])
        told = advice if region is not None else f"mostly {advice}"
        if part >= LEAST_SHARE:
            frames.append(
                {
                    "label": short_name(full) if region is None else full,
                    "title": f"{full} · {duration(time)}, {share(part)} · {told}",
                    "left": round(100 * left / total, 3),
                    "width": round(100 * part, 3),
                    "depth": depths[place],
                    "look": looks[place],
                    "href": href,
                    "leaf": region is not None,
                    "named": part >= NAMED_SHARE,
                }
            )
        rows.append(
            {
                "depth": depths[place], "name": full, "href": href, "tool": looks[place], "time_us": time,
                "share": part, "kernels": kernels,
            }
        )  # fmt: skip
    return frames, rows


def _name(name: str, region: int | None, names: Sequence[str], links: Sequence[str]) -> tuple[str, str]:
    if region is None:
        return show_hidden(name), ""
    return (show_hidden(names[region]), links[region]) if 0 <= region < len(names) else (NO_REGION, "")


def short_name(function: str) -> str:
    """ "models/bert.py:429 mask" -> "mask bert.py:429": what is told first fits where little does."""
    place, _, name = function.rpartition(" ")
    return f"{name} {place.rpartition('/')[2]}" if ".py:" in place else function


def _describe(tree: CallTree, names: Sequence[str], total: float) -> str:
    """The module or function that launches most by itself, and the region that most of it is."""
    own: dict[int, float] = {}
    best: dict[int, tuple[float, int]] = {}
    for place, region in enumerate(tree["region"]):
        parent, time = tree["parent"][place], tree["time_us"][place]
        if region is not None and parent >= 0:
            own[parent] = own.get(parent, 0.0) + time
            best[parent] = max(best.get(parent, (0.0, -1)), (time, region))
    if not own or not total:
        return ""
    place = max(own, key=lambda p: own[p])
    _, region = best[place]
    what = f", most of it {names[region]}" if 0 <= region < len(names) else ""
    return f"{short_name(tree['names'][tree['name'][place]])} has {share(own[place] / total)} itself{what}."
