"""The user's source with the step's kernel time in its margin, as far as a trace tells: by file, function and line.

Most recorded stacks name a function by its file and its first line, not the line that made a call; then what it calls
goes to the page, and static/source_lines.js finds the lines in a text that is given to the browser. Pure functions of
API JSON.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from app.objects.trace import CallTree, SourceCalls, Trace, TraceBody
from app.units import duration, share
from app.web.charts.figure import show_hidden
from app.web.labels import TOOL_LABELS

MOST_FILES, MOST_REGIONS = 30, 6
"""Files that are listed, those with most time, and regions that are named with one function."""
_FUNCTION = re.compile(r"^(?P<file>.+):(?P<line>\d+) (?P<function>.+)$")


MarginCall = tuple[int, str, list[str], int, int, bool, int, float]
"""First line, function, names of what is called, turn, turns, launched by itself, region, µs (`SourceCalls`)."""


class SourceRegion(TypedDict):
    """A region that a function launches by itself."""

    name: str
    href: str
    tool: str
    time_us: float


class SourceLine(TypedDict):
    """A function by its first line, or a line of it where the stacks have those of the calls.

    time_us: with what it calls; own_us, kernels: what it launches by itself, in a step; tool: advised for most of that,
    or of what it calls where it launches nothing."""

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
    """What static/source.js writes next to the text of a file. exact: the lines are those of the calls.

    lines: [line, function, words, tool, µs with what it calls, µs by itself] each; calls: where the lines are
    not those of the calls."""

    file: str
    exact: bool
    lines: list[tuple[int, str, str, str, float, float]]
    calls: list[MarginCall]


class MarginRegion(TypedDict):
    """What a margin says of a region."""

    name: str
    advice: str
    tool: str


class SourceTold(TypedDict):
    """Kernel time of a step by what is told of who launched it, and all of it, in µs; in words, without a text."""

    line_us: float
    function_us: float
    none_us: float
    words: str


class SourceFile(TypedDict):
    """A file of the trace's stacks. own_us: what its functions launch by themselves."""

    file: str
    own_us: float
    share: float
    lines: list[SourceLine]
    margin: Margin


class SourceSection(TypedDict, total=False):
    """Context of partials/trace/source.html; {} for a trace that was stored before there were call trees.

    source_missing: why there is nothing, "" where there is. source_regions: as calls number them; source_exact: lines
    are those of the calls.
    """

    source_files: list[SourceFile]
    source_left_out: int
    source_missing: str
    source_regions: list[MarginRegion]
    source_told: SourceTold | None
    source_exact: bool


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
    exact = trees.get("lines") == "call"
    calls = _calls_by_file(trees.get("calls"))
    files = [_file(file, lines, total, calls.get(file, []), exact=exact) for file, lines in by_file.items()]
    files.sort(key=lambda f: -f["own_us"])
    told = trees.get("told")
    regions: list[MarginRegion] = [
        {"name": show_hidden(name), "advice": TOOL_LABELS.get(tool, tool), "tool": tool}
        for name, tool in zip(names, tools, strict=False)
    ]
    return {
        "source_regions": regions,
        "source_told": _told(told["line_us"], told["function_us"], told["none_us"]) if told else None,
        "source_exact": exact,
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


def _told(line_us: float, function_us: float, none_us: float) -> SourceTold:
    every = line_us + function_us + none_us
    parts = [(line_us, "a line"), (function_us, "a function"), (none_us, "neither")]
    words = ", ".join(f"{share(us / every if every else 0.0)} to {what}" for us, what in parts)
    return {"line_us": line_us, "function_us": function_us, "none_us": none_us, "words": words}


def _calls_by_file(calls: SourceCalls | None) -> dict[str, list[MarginCall]]:
    by_file: dict[str, list[MarginCall]] = {}
    if calls is None:
        return by_file
    columns = (calls[name] for name in ("function", "callee", "turn", "turns", "own", "region", "time_us"))
    for function, callee, turn, turns, own, region, time_us in zip(*columns, strict=True):
        if match := _FUNCTION.match(calls["functions"][function]):
            by_file.setdefault(match["file"], []).append(
                (int(match["line"]), show_hidden(match["function"]), calls["callees"][callee], turn, turns, own,
                 region, time_us)
            )  # fmt: skip
    return by_file


def _file(file: str, lines: list[SourceLine], total: float, calls: list[MarginCall], *, exact: bool) -> SourceFile:
    lines.sort(key=lambda row: (row["line"], row["function"]))
    own = sum(row["own_us"] for row in lines)
    name = show_hidden(file)
    return {
        "file": name,
        "own_us": own,
        "share": own / total if total else 0.0,
        "lines": lines,
        "margin": {
            "file": name,
            "exact": exact,
            "lines": [
                (r["line"], r["function"], _words(r), r["tool"], round(r["time_us"], 3), round(r["own_us"], 3))
                for r in lines
            ],
            "calls": calls,
        },
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
