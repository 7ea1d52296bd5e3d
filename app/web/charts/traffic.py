"""The traffic picture: every launch of a region with what it reads from and writes to the GPU's memory, as an SVG.

Memory (HBM) stands at the left, what is on the chip at the right; one arrow in and one out for each launch, as thick
as its bytes. Unfused and fused have one scale. The server draws it: it needs no script and prints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.objects.cost import Cost, Count
from app.units import percent
from app.web.charts.plotly import total_bytes
from app.web.long_lists import heaviest

WIDTH = 400
HBM, CHIP = 54, 214
"""Right edge of the memory's column, left edge of the launches' boxes."""
THICKEST, THINNEST = 15.0, 1.5
GAP, PAD, LABEL = 10.0, 9.0, 12.0
MOST = 14
"""Launches drawn one by one; beyond, the smallest are one box."""
CHARACTERS = 23
"""Of a box's label in a line."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. read, written: bytes, None where only their sum is known; moved: both together.

    count: launches that this stands for; operations: what it computes.
    """

    label: str
    read: int | None
    written: int | None
    moved: int
    count: int = 1
    operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrow:
    """A bar with a head, in the picture's units. way: "read" points to the chip, "write" to memory, "both"."""

    way: str
    path: str
    y: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Box:
    """A launch where it is drawn."""

    launch: Launch
    y: float
    height: float
    lines: tuple[str, ...]
    arrows: tuple[Arrow, ...]

    @property
    def first_line(self) -> float:
        """Baseline of the label's first line."""
        return self.y + self.height / 2 - (len(self.lines) - 1) * LABEL / 2 + 3.5


@dataclass(frozen=True, slots=True)
class Panel:
    """One way to run the region. height: of the drawing."""

    name: str
    title: str
    boxes: tuple[Box, ...]
    height: float
    bytes: int
    launches: int
    read: int | None
    written: int | None

    @property
    def width(self) -> int:
        return WIDTH


def unfused_launches(cost: Cost) -> list[Launch]:
    """Every operation that eager PyTorch launches or that touches memory, in order."""
    return [
        Launch(o["label"], o["bytes_read"], o["bytes_written"], total_bytes(o), o.get("launches") or 0)
        for o in cost["operations"]
        if total_bytes(o) or o.get("launches")
    ]


def fused_launches(cost: Cost) -> list[Launch]:
    """Every kernel that torch.compile makes of it, by Inductor's account or by its fusion rules."""
    return [
        Launch(k["label"], k["bytes_read"], k["bytes_written"], total_bytes(k), 1, tuple(k.get("operations") or ()))
        for k in cost["kernels"]
    ]


def make_panels(cost: Cost | None) -> list[Panel]:
    """Both panels on one scale; [] where nothing moves."""
    if not cost:
        return []
    ways = (
        ("unfused", "Unfused: one kernel for each operation", unfused_launches(cost), cost["unfused"]),
        ("fused", "Fused: as torch.compile would run it", fused_launches(cost), cost["fused"]),
    )
    most = max((_widest(launch) for _, _, launches, _ in ways for launch in launches), default=0)
    if not most:
        return []
    return [_panel(name, title, _fold_smallest(launches), total, most) for name, title, launches, total in ways]


def _widest(launch: Launch) -> int:
    return max(launch.read, launch.written) if launch.read is not None and launch.written is not None else launch.moved


def _fold_smallest(launches: Sequence[Launch]) -> list[Launch]:
    """At most MOST: those of the fewest bytes become one, at the end."""
    if len(launches) <= MOST:
        return list(launches)
    kept = heaviest(launches, lambda launch: launch.moved, MOST - 1)
    rest = kept.rest
    known = [r for r in rest if r.read is not None and r.written is not None]
    whole = len(known) == len(rest)
    folded = Launch(
        f"{len(rest)} smaller ones",
        sum(r.read or 0 for r in rest) if whole else None,
        sum(r.written or 0 for r in rest) if whole else None,
        sum(r.moved for r in rest),
        sum(r.count for r in rest),
        tuple(r.label for r in rest),
    )
    return [*kept.shown, folded]


def _panel(name: str, title: str, launches: Sequence[Launch], total: Count, most: int) -> Panel:
    boxes, y = [], PAD
    for launch in launches:
        boxes.append(box := _box(launch, y, most))
        y += box.height + GAP
    return Panel(
        name, title, tuple(boxes), y - GAP + PAD, total_bytes(total), int(total["launches"]), total.get("bytes_read"),
        total.get("bytes_written"),
    )  # fmt: skip


def _box(launch: Launch, y: float, most: int) -> Box:
    if launch.read is None or launch.written is None:
        flows = [("both", launch.moved)]
    else:
        flows = [(way, size) for way, size in (("read", launch.read), ("write", launch.written)) if size]
    lines = _lines(launch.label)
    thick = [max(THINNEST, THICKEST * size / most) for _, size in flows]
    # An arrow has a line of text above it, so it takes at least that.
    height = max(sum(t + LABEL for t in thick) + 8.0, LABEL * len(lines) + 10.0, 26.0)
    at = y + (height - sum(t + LABEL for t in thick)) / 2
    arrows = []
    for (way, size), wide in zip(flows, thick, strict=True):
        middle = at + LABEL + wide / 2
        arrows.append(Arrow(way, _arrow(way, middle, wide), at + LABEL - 3.0, size))
        at += wide + LABEL
    return Box(launch, y, height, lines, tuple(arrows))


def _arrow(way: str, y: float, wide: float) -> str:
    """A bar between memory and chip with a head at its end."""
    left, right, half = HBM + 3.0, CHIP - 3.0, wide / 2
    head = max(4.0, half + 2.5)
    length = head * 1.1
    start = left + (length if way in ("write", "both") else 0.0)
    end = right - (length if way in ("read", "both") else 0.0)
    points = [(start, y - half), (end, y - half)]
    if way in ("read", "both"):
        points += [(end, y - head), (right, y), (end, y + head)]
    points += [(end, y + half), (start, y + half)]
    if way in ("write", "both"):
        points += [(start, y + head), (left, y), (start, y - head)]
    return " ".join(f"{x:.1f},{v:.1f}" for x, v in points)


def _lines(label: str) -> tuple[str, ...]:
    """The label in up to three lines, broken at spaces."""
    lines: list[str] = []
    for word in label.split():
        if lines and len(lines[-1]) + 1 + len(word) <= CHARACTERS:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    cut = [line if len(line) <= CHARACTERS else line[: CHARACTERS - 1] + "…" for line in lines]
    if len(cut) > 3:
        cut = [cut[0], cut[1], cut[2][: CHARACTERS - 2].rstrip() + " …"]
    return tuple(cut or [""])


def summarize(panels: Sequence[Panel]) -> str:
    """What fusing changes, in a sentence; "" without both panels."""
    if len(panels) < 2 or not panels[0].bytes:
        return ""
    before, after = panels
    saved = 1 - after.bytes / before.bytes
    if saved < 0.005:
        return "Fusing saves next to no bytes here."
    times = before.bytes / after.bytes if after.bytes else math.inf
    return f"Fusing moves {percent(saved)} fewer bytes: 1/{times:.1f} of what goes through memory now."
