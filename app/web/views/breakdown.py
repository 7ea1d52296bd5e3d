"""Where the kernel time goes: treemaps by module and by kind of kernel, with their tables. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict
from urllib.parse import urlencode

from app.objects.trace import KernelRow, ModuleRow, Trace, TraceBody
from app.units import count, duration, share
from app.web.charts.names import id_of
from app.web.charts.treemap import Node, Tile, lay_out
from app.web.labels import TOOL_LABELS

SMALL_SHARE = 0.004
"""Of the whole; what is smaller is one box with its neighbours."""
LOOKS = tuple(f"k{n}" for n in range(1, 9))
"""Colours of kinds, by time; the ninth kind and on are grey."""
NO_MODULE = "no module recorded"


class LargestRegion(TypedDict):
    """A region of a module, and where it is read about."""

    name: str
    href: str
    time_us: float


class ModuleTime(ModuleRow):
    """Modules of one class in the table. largest: their regions with most time."""

    share: float
    largest: list[LargestRegion]


class LabelTime(TypedDict):
    """Kernels of one label (variants for other types and sizes). different: how many; regions: places in the report."""

    label: str
    name: str
    time_us: float
    calls_per_step: float
    different: int
    regions: list[int]
    share: float


class KindTime(TypedDict):
    """Kernels of one kind. look: the class of its colour; different: how many kernels there are of it."""

    kind: str
    look: str
    time_us: float
    share: float
    calls: float
    different: int
    kernels: list[LabelTime]


class BreakdownSection(TypedDict, total=False):
    """Context of partials/trace/where/breakdown.html; {} for a trace that was stored before there was any.

    *_read: the first thing to see in a picture, in words; module_*: only where the trace names modules.
    """

    where_total_us: float
    kind_tiles: tuple[Tile, ...]
    kind_rows: list[KindTime]
    kind_read: str
    module_rows: list[ModuleTime]
    module_tiles: tuple[Tile, ...]
    module_read: str
    module_looks: list[str]


@dataclass(slots=True)
class _Branch:
    """One module class while the tree is grown. regions: own time by place in the report."""

    count: int = 0
    regions: dict[int, float] = field(default_factory=dict)
    below: dict[str, _Branch] = field(default_factory=dict)

    @property
    def time_us(self) -> float:
        return sum(self.regions.values()) + sum(b.time_us for b in self.below.values())


def breakdown_section(trace: Trace | TraceBody, names: Sequence[str], links: Sequence[str]) -> BreakdownSection:
    """Both treemaps and their tables; {} for a trace that was stored before there was any.

    names, links: of the trace's regions, in the report's order.
    """
    where = trace.get("where")
    kernels = where.get("kernels") or [] if where else []
    total = sum(k["time_us"] for k in kernels)
    if not where or not total:
        return {}
    tools = [advice["tool"] if (advice := r.get("advice")) else "none" for r in trace["regions"]]
    kinds = kind_rows(kernels, total)
    modules = [_module_row(m, total, names, links) for m in where.get("modules") or ()]
    trace_id = id_of(trace) or ""
    section: BreakdownSection = {
        "where_total_us": total,
        "kind_tiles": lay_out([_kind_node(row, trace_id, names, links, total) for row in kinds]),
        "kind_rows": kinds,
        "kind_read": _describe_kinds(kinds),
        "module_rows": modules,
    }
    if any(m["path"] for m in modules):
        nodes = _branch_nodes(_grow_tree(where["modules"]), tools, names, links, total)
        section["module_tiles"] = lay_out(nodes)
        section["module_read"] = _describe_modules(modules)
        section["module_looks"] = [t for t in TOOL_LABELS if t in {*_looks(nodes)}]
    return section


def _detail(time_us: float, of_total: float) -> str:
    return f"{duration(time_us)} · {share(of_total)}"


def _looks(nodes: Sequence[Node]) -> list[str]:
    return [look for n in nodes for look in ([n.look] if not n.nodes else _looks(n.nodes))]


# ------------------------------------------------------------------------------------------------------------- modules


def _grow_tree(modules: Sequence[ModuleRow]) -> _Branch:
    root = _Branch()
    for row in modules:
        at = root
        for part in row["path"].split("/") if row["path"] else (NO_MODULE,):
            at = at.below.setdefault(part, _Branch())
        at.count = row["modules"]
        at.regions = {int(place): time for place, time in row["regions"]}
    return root


def _branch_nodes(
    branch: _Branch, tools: Sequence[str], names: Sequence[str], links: Sequence[str], total: float, path: str = ""
) -> list[Node]:
    """Nodes of what is below a branch and of its own regions. A branch with nothing but one below joins its name."""
    large: list[Node] = []
    small: list[Node] = []
    for name, below in branch.below.items():
        label, joined = name, f"{path}/{name}".strip("/")
        while len(below.below) == 1 and not below.regions:
            (inner, below), = below.below.items()  # fmt: skip
            label, joined = f"{label} / {inner}", f"{joined}/{inner}"
        node = _branch_node(label, joined, below, tools, names, links, total)
        (large if node.value >= SMALL_SHARE * total else small).append(node)
    for place, time in branch.regions.items():
        node = _region_node(place, time, tools, names, links, total)
        (large if time >= SMALL_SHARE * total else small).append(node)
    if len(small) == 1:
        return large + small
    if small:
        large.append(_rest(small, total))
    return large


def _branch_node(
    label: str, path: str, branch: _Branch, tools: Sequence[str], names: Sequence[str], links: Sequence[str],
    total: float,
) -> Node:  # fmt: skip
    nodes = _branch_nodes(branch, tools, names, links, total, path)
    time = branch.time_us
    counted = f"{label} ×{branch.count}" if branch.count > 1 else label
    detail = _detail(time, time / total)
    if len(nodes) == 1 and not nodes[0].nodes:
        only = nodes[0]
        title = f"{path}\n{only.title}"
        return Node(f"{counted}: {only.label}", time, only.look, detail, title, only.href)
    largest = max(nodes, key=lambda n: n.value, default=None)
    look = largest.look if largest else "rest"
    return Node(counted, time, look, detail, f"{path}\n{detail}", "", tuple(nodes))


def _region_node(
    place: int, time: float, tools: Sequence[str], names: Sequence[str], links: Sequence[str], total: float
) -> Node:
    is_region = 0 <= place < len(names)
    name, tool = (names[place], tools[place]) if is_region else ("no region", "rest")
    detail = _detail(time, time / total)
    title = f"{name}\n{TOOL_LABELS.get(tool, tool)}\n{detail}"
    return Node(name, time, tool, detail, title, links[place] if is_region else "")


def _rest(nodes: Sequence[Node], total: float) -> Node:
    time = sum(n.value for n in nodes)
    detail = _detail(time, time / total)
    title = "\n".join([detail, *(n.label for n in nodes[:12])])
    return Node(f"{len(nodes)} smaller", time, "rest", detail, title)


def _module_row(row: ModuleRow, total: float, names: Sequence[str], links: Sequence[str]) -> ModuleTime:
    parts = [(int(place), time) for place, time in row["regions"][:3]]
    return {
        **row,
        "share": row["time_us"] / total,
        "largest": [
            {"name": names[p], "href": links[p], "time_us": time} for p, time in parts if 0 <= p < len(names)
        ],
    }  # fmt: skip


def _describe_modules(rows: Sequence[ModuleTime]) -> str:
    """The first thing to see in the picture, in words."""
    named = [r for r in rows if r["path"]]
    top = named[0]
    last = top["path"].split("/")[-1]
    many = f", {top['modules']} of them," if top["modules"] > 1 else ""
    what = f": {top['largest'][0]['name']}" if top["largest"] else ""
    return f"Largest: {last}{many} with {duration(top['time_us'])}, {share(top['share'])} of the kernel time{what}."


# --------------------------------------------------------------------------------------------------------------- kinds


def kind_rows(kernels: Sequence[KernelRow], total: float) -> list[KindTime]:
    """One row a kind, by time."""
    by_kind: dict[str, list[KernelRow]] = {}
    for row in kernels:
        by_kind.setdefault(row["kind"], []).append(row)
    times = {kind: sum(k["time_us"] for k in rows) for kind, rows in by_kind.items()}
    kinds: list[KindTime] = []
    for place, kind in enumerate(sorted(times, key=lambda k: -times[k])):
        rows = by_kind[kind]
        kinds.append(
            {
                "kind": kind,
                "look": LOOKS[place] if place < len(LOOKS) else "rest",
                "time_us": times[kind],
                "share": times[kind] / total,
                "calls": sum(k["calls_per_step"] for k in rows),
                "different": sum(k.get("names", 1) for k in rows),
                "kernels": _by_label(rows, total),
            }
        )
    return kinds


def _by_label(kernels: Sequence[KernelRow], total: float) -> list[LabelTime]:
    """Kernels of one kind, those of one label as one row, by time."""
    rows: dict[str, LabelTime] = {}
    for kernel in kernels:
        different = kernel.get("names", 1)
        label = kernel["label"] or f"{different} smaller kernels"
        empty: LabelTime = {
            "label": label,
            "name": kernel["name"],
            "time_us": 0.0,
            "calls_per_step": 0.0,
            "different": 0,
            "regions": [],
            "share": 0.0,
        }
        row = rows.setdefault(label, empty)
        row["time_us"] += kernel["time_us"]
        row["calls_per_step"] += kernel["calls_per_step"]
        row["different"] += different
        row["regions"] += [place for place in kernel["regions"] if place not in row["regions"]]
    for row in rows.values():
        row["share"] = row["time_us"] / total
    return sorted(rows.values(), key=lambda r: -r["time_us"])


def _kind_node(row: KindTime, trace_id: str, names: Sequence[str], links: Sequence[str], total: float) -> Node:
    large: list[Node] = []
    small: list[Node] = []
    for kernel in row["kernels"]:
        node = _kernel_node(kernel, row["look"], trace_id, names, links)
        (large if kernel["share"] >= SMALL_SHARE else small).append(node)
    if len(small) > 1:
        rest = _rest(small, total)
        small = [Node(rest.label, rest.value, row["look"], rest.detail, rest.title)]
    nodes = large + small
    detail = _detail(row["time_us"], row["share"])
    if len(nodes) == 1:
        return Node(
            f"{row['kind']}: {nodes[0].label}", row["time_us"], row["look"], detail, nodes[0].title, nodes[0].href
        )
    return Node(row["kind"], row["time_us"], row["look"], detail, f"{row['kind']}\n{detail}", "", tuple(nodes))


def _kernel_node(kernel: LabelTime, look: str, trace_id: str, names: Sequence[str], links: Sequence[str]) -> Node:
    """A box that leads to its region, or to the list of its regions."""
    places = [p for p in kernel["regions"] if 0 <= p < len(names)]
    href = ""
    if len(places) == 1:
        href = links[places[0]]
    elif places and links[places[0]].startswith("/") and _longest_word(kernel["name"]):
        href = f"/traces/{trace_id}?{urlencode({'q': _longest_word(kernel['name'])})}#regions"
    detail = _detail(kernel["time_us"], kernel["share"])
    calls = count(round(kernel["calls_per_step"], 2), "call")
    regions = "; ".join(names[p] for p in places[:3])
    label = (
        kernel["label"]
        if kernel["different"] == 1 or not kernel["name"]
        else f"{kernel['label']} ×{kernel['different']}"
    )
    lines = [label, f"{detail}, {calls} a step", *([f"in {regions}"] if regions else [])]
    return Node(label, kernel["time_us"], look, detail, "\n".join(lines), href)


def _longest_word(kernel: str) -> str:
    """Of a kernel's name what the search is to look for: its longest word; an address holds nothing else of it."""
    return max(re.findall(r"[A-Za-z0-9_]+", kernel), key=len, default="")[:48]


def _describe_kinds(rows: Sequence[KindTime]) -> str:
    top = rows[0]
    text = f"Largest: {top['kind']} with {duration(top['time_us'])}, {share(top['share'])} of the kernel time"
    memory = sum(r["share"] for r in rows if r["kind"] in ("pointwise", "reduction", "copy, cast, layout"))
    if memory >= 0.05:
        text += f". Pointwise, reductions and copies have {share(memory)}: what fusing can shrink"
    return text + "."
