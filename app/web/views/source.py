"""The user's source with the step's kernel time in its margin, as far as a trace tells: by file and function.

A recorded stack names a function by its file and its first line, not the line that made a call. Pure functions of API
JSON.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from app.objects.trace import CallTree, Trace, TraceBody
from app.units import duration, share
from app.web.charts.figure import show_hidden
from app.web.labels import TOOL_LABELS

MOST_FILES, MOST_REGIONS = 30, 6
"""Files that are listed, those with most time, and regions that are named with one function."""
_FUNCTION = re.compile(r"^(?P<file>.+):(?P<line>\d+) (?P<function>.+)$")


class SourceRegion(TypedDict):
    """A region that a function launches by itself."""

    name: str
    href: str
    tool: str
    time_us: float


class SourceLine(TypedDict):
    """A function by its first line. time_us: with what it calls; own_us, kernels: what it launches by itself, in a
    step; tool: advised for most of that, or of what it calls where it launches nothing."""

    line: int
    function: str
    time_us: float
    share: float
    own_us: float
    kernels: float
    tool: str
    regions: list[SourceRegion]
    more: int


class Margin(TypedDict):
    """What static/source.js writes next to the text of a file. lines: [first line, function, words, tool] each."""

    file: str
    lines: list[tuple[int, str, str, str]]


class SourceFile(TypedDict):
    """A file of the trace's stacks. own_us: what its functions launch by themselves."""

    file: str
    own_us: float
    share: float
    lines: list[SourceLine]
    margin: Margin


class SourceSection(TypedDict, total=False):
    """Context of partials/trace/source.html; {} for a trace that was stored before there were call trees.

    source_missing: why there is nothing, "" where there is.
    """

    source_files: list[SourceFile]
    source_left_out: int
    source_missing: str


@dataclass(slots=True)
class _Function:
    time_us: float = 0.0
    own_us: float = 0.0
    kernels: float = 0.0
    own: dict[int, float] = field(default_factory=dict)
    below: dict[str, float] = field(default_factory=dict)


def source_section(trace: Trace | TraceBody, names: Sequence[str], links: Sequence[str]) -> SourceSection:
    """names, links: of the trace's regions, in the report's order."""
    trees = trace.get("call_trees")
    if not trees:
        return {}
    tree = trees["functions"]
    if tree is None:
        missing = "No Python stacks were recorded. Record with `with_stack=True`: then each function has its time here."
        return {"source_files": [], "source_left_out": 0, "source_missing": missing}
    tools = [advice["tool"] if (advice := r.get("advice")) else "none" for r in trace["regions"]]
    functions = _functions(tree, tools)
    total = sum(t for t, parent in zip(tree["time_us"], tree["parent"], strict=True) if parent < 0)
    by_file: dict[str, list[SourceLine]] = {}
    for (file, line, function), sums in functions.items():
        by_file.setdefault(file, []).append(_line(line, function, sums, total, names, links, tools))
    files = [_file(file, lines, total) for file, lines in by_file.items()]
    files.sort(key=lambda f: -f["own_us"])
    return {
        "source_files": files[:MOST_FILES],
        "source_left_out": max(0, len(files) - MOST_FILES),
        "source_missing": "",
    }


def _functions(tree: CallTree, tools: Sequence[str]) -> dict[tuple[str, int, str], _Function]:
    """Sums by file, first line and function. A function that calls itself has its time once."""
    sums: dict[tuple[str, int, str], _Function] = {}
    keys = [(_FUNCTION.match(name)) for name in tree["names"]]
    for place, region in enumerate(tree["region"]):
        if region is None:
            continue
        time, seen, at = tree["time_us"][place], set[tuple[str, int, str]](), tree["parent"][place]
        tool = tools[region] if region >= 0 else "rest"
        innermost = True
        while at >= 0:
            match = keys[tree["name"][at]]
            if match is not None:
                key = (match["file"], int(match["line"]), match["function"])
                of = sums.setdefault(key, _Function())
                if innermost:
                    of.own_us += time
                    of.kernels += tree["kernels"][place]
                    of.own[region] = of.own.get(region, 0.0) + time
                if key not in seen:
                    of.time_us += time
                    of.below[tool] = of.below.get(tool, 0.0) + time
                    seen.add(key)
                innermost = False
            at = tree["parent"][at]
    return sums


def _line(
    line: int, function: str, sums: _Function, total: float,
    names: Sequence[str], links: Sequence[str], tools: Sequence[str],
) -> SourceLine:  # fmt: skip
    own = sorted(((t, r) for r, t in sums.own.items() if 0 <= r < len(names)), reverse=True)
    by_tool: dict[str, float] = {}
    for time, region in own:
        by_tool[tools[region]] = by_tool.get(tools[region], 0.0) + time
    of = by_tool or sums.below
    return {
        "line": line,
        "function": show_hidden(function),
        "time_us": sums.time_us,
        "share": sums.time_us / total if total else 0.0,
        "own_us": sums.own_us,
        "kernels": sums.kernels,
        "tool": max(of, key=lambda tool: of[tool], default="rest"),
        "regions": [
            {"name": show_hidden(names[r]), "href": links[r], "tool": tools[r], "time_us": t}
            for t, r in own[:MOST_REGIONS]
        ],
        "more": max(0, len(own) - MOST_REGIONS),
    }


def _file(file: str, lines: list[SourceLine], total: float) -> SourceFile:
    lines.sort(key=lambda row: (row["line"], row["function"]))
    own = sum(row["own_us"] for row in lines)
    name = show_hidden(file)
    return {
        "file": name,
        "own_us": own,
        "share": own / total if total else 0.0,
        "lines": lines,
        "margin": {"file": name, "lines": [(r["line"], r["function"], _words(r), r["tool"]) for r in lines]},
    }


def _words(row: SourceLine) -> str:
    """The margin of a function in words: its time, then what to do about what it launches by itself."""
    parts = [f"{duration(row['time_us'])}, {share(row['share'])}"]
    parts += [
        f"{TOOL_LABELS.get(r['tool'], r['tool'])}: {r['name']} ({duration(r['time_us'])})" for r in row["regions"]
    ]
    if row["more"]:
        parts.append(f"{row['more']} more")
    return " · ".join(parts)
