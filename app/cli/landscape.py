"""tritonworthy landscape: the time of a Triton candidate's kernel over its tiles, warps and stages.

With --target the points are compiled for a GPU that is not here. Exit status: 0 measured, or compiled where that was
asked for; 1 the input is wrong; 2 nothing could be measured.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.analysis.landscape import BUDGET_S
from app.cli.options import budget_s, count
from app.cli.streams import json_text
from app.objects.landscape import LandscapeFigures, Point
from app.objects.task import LandscapeTask
from profiler.oracle.compiler.targets import TARGETS

OK, BAD_INPUT, NOT_MEASURED = 0, 1, 2
MOST_POINTS = 12
"""Points of each end that the text lists."""


def add_landscape(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `landscape` into the command line."""
    parser = commands.add_parser(
        "landscape",
        help="time of a Triton candidate over its tiles, warps and stages, on this host's GPU",
        description="Every point of the kernel's own tuning space, then a wider grid as far as the budget goes. Each is"
        " checked against float64 before it is timed.",
    )
    parser.add_argument("file", metavar="REGION", help="a region's text, or - for stdin")
    parser.add_argument("--candidate", metavar="NAME", required=True, help="triton:KERNEL, or triton:generated")
    parser.add_argument("--binding", metavar="JSON", help='sizes: {"N": 37}; by default the first of the region')
    parser.add_argument("--budget", type=budget_s, metavar="SECONDS", default=BUDGET_S, help="time for the points")
    parser.add_argument("--points", type=count(1, 1_000_000), metavar="COUNT", help="at most so many points")
    parser.add_argument(
        "--target", choices=sorted(TARGETS), help="compile the points for a GPU that is not here; nothing is measured"
    )
    parser.add_argument("--json", action="store_true", help="print the API's object")
    parser.set_defaults(run=_landscape)


def _landscape(arguments: argparse.Namespace) -> int:
    from app.analysis.landscape import survey
    from profiler.region.model import RegionError

    try:
        text = sys.stdin.read() if arguments.file == "-" else Path(arguments.file).read_text(encoding="utf-8")
        binding = _binding(arguments.binding)
        request: LandscapeTask = {
            "region": text, "candidate": arguments.candidate, "binding": binding, "budget_s": arguments.budget,
            "points": arguments.points, "target": arguments.target,
        }  # fmt: skip
        landscape = survey(request, on_progress=_show_progress)
    except OSError as error:
        print(f"{arguments.file}: {error.strerror}", file=sys.stderr)
        return BAD_INPUT
    except (RegionError, ValueError) as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    print(json_text(landscape) if arguments.json else landscape_text(landscape))
    return OK if landscape["outcome"] == ("compiled" if arguments.target else "measured") else NOT_MEASURED


def _binding(text: str | None) -> dict[str, int]:
    try:
        binding = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        raise ValueError("--binding: not JSON") from None
    whole = isinstance(binding, dict) and all(isinstance(v, int) and not isinstance(v, bool) for v in binding.values())
    if not isinstance(binding, dict) or not whole:
        raise ValueError('--binding takes an object of whole numbers, such as {"N": 37}')
    return binding


def _show_progress(progress: Mapping[str, object]) -> None:
    print(f"{progress['fraction']:4.0%} {progress['phase']} {progress['message']}", file=sys.stderr)


def landscape_text(landscape: LandscapeFigures) -> str:
    """For a terminal: what was chosen, the fastest and the slowest, why others were not run."""
    if landscape["outcome"] == "unmeasured":
        return f"{landscape['candidate']}: unmeasured. {landscape['reason']}"
    if landscape["outcome"] == "compiled":
        return _compiled_text(landscape)
    timed = sorted((p for p in landscape["points"] if p["time_us"]), key=_median_us)
    lines = [
        f"{landscape['candidate']}, kernel {landscape['kernel']}, on {landscape['device']}",
        f"{len(timed)} points timed; the slowest takes {landscape['worst_to_best']:.3g} times the fastest"
        if landscape["worst_to_best"]
        else f"{len(timed)} points timed",
    ]
    ratio = landscape["chosen_to_best"]
    if ratio:
        span = f"{ratio['low']:.3f} to {ratio['high']:.3f}"
        lines.append(f"in turns, what tuning chose takes {ratio['median']:.3f} ({span}) of the fastest's time")
    elif landscape["chosen"] == landscape["best"]:
        lines.append("what tuning chose is the fastest")
    order = landscape["order"]
    if order:
        lines.append(
            f"programs in groups of {order['group']} rows {order['grouped_us']['median']:.4g} µs, "
            f"in plain order {order['plain_us']['median']:.4g} µs"
        )
    lines += ["", f"{'µs':>10} {'ratio':>7} {'warps':>5} {'stages':>6} {'regs':>5} {'spill':>6} {'shared':>7}  tile"]
    listed = timed if len(timed) <= 2 * MOST_POINTS else [*timed[:MOST_POINTS], None, *timed[-MOST_POINTS:]]
    lines += [_point_text(p, landscape) if p else "       ..." for p in listed]
    lines += _left_out([p for p in landscape["points"] if not p["time_us"]])
    return "\n".join(lines).rstrip()


def _compiled_text(landscape: LandscapeFigures) -> str:
    """Points of a GPU that is not here."""
    done = [p for p in landscape["points"] if p["status"] == "compiled"]
    lines = [
        f"{landscape['candidate']}, kernel {landscape['kernel']}: {landscape['reason']}",
        "",
        f"{'warps':>5} {'stages':>6} {'regs':>5} {'spill':>6} {'shared':>7} {'occupancy':>9}  tile",
        *(f"{_figures(p)} {_figure(p['occupancy']):>9}  {p['kernel']} {p['tile']}" for p in done),
        *_left_out([p for p in landscape["points"] if p["status"] != "compiled"]),
    ]
    return "\n".join(lines).rstrip()


def _left_out(points: Sequence[Point]) -> list[str]:
    lines = ["", *(f"{p['status']}: {p['tile']}, {p['warps']} warps: {p['reason']}" for p in points[: 2 * MOST_POINTS])]
    return lines + ([f"... and {len(points) - 2 * MOST_POINTS} more"] if len(points) > 2 * MOST_POINTS else [])


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _figures(point: Point) -> str:
    return (
        f"{point['warps']:5} {_figure(point['stages']):>6} {_figure(point['registers']):>5} "
        f"{_figure(point['spill_bytes']):>6} {_figure(point['shared_bytes']):>7}"
    )


def _median_us(point: Point) -> float:
    """Of a point that was timed."""
    time_us = point["time_us"]
    return time_us["median"] if time_us else math.inf


def _point_text(point: Point, landscape: LandscapeFigures) -> str:
    mark = " (chosen)" if point["key"] == landscape["chosen"] else ""
    return (
        f"{_median_us(point):10.4g} {point.get('ratio_to_best') or 1.0:7.3f} {_figures(point)}  "
        f"{point['kernel']} {point['tile']}{mark}"
    )
