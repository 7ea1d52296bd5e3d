"""A treemap as nested boxes in per cent of the box around them, for HTML: text stays text at every width.

Squarified: M. Bruls, K. Huizing, J. van Wijk, "Squarified Treemaps", 2000. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, HEAD, EDGE = 1200.0, 420.0, 20.0, 2.0
"""Pixels that the layout is made for: of the whole, of a group's name, of its border."""
SMALLEST = (58.0, 44.0)
"""A group narrower or lower than this is one box."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the whole. look: class of its colour; detail: what stands behind its label; nodes: its own parts."""

    label: str
    value: float
    look: str = ""
    detail: str = ""
    title: str = ""
    href: str = ""
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Tile:
    """A node with its place in the box around it, 0 to 100 each way. tiles: of its own parts, under its name."""

    node: Node
    left: float
    top: float
    width: float
    height: float
    tiles: tuple[Tile, ...] = ()

    @property
    def place(self) -> str:
        """For the style sheet, which turns the picture on its side where the page is narrow."""
        return f"--x:{self.left:.4g}%;--y:{self.top:.4g}%;--dx:{self.width:.4g}%;--dy:{self.height:.4g}%"


def lay_out(nodes: Sequence[Node], width: float = WIDTH, height: float = HEIGHT) -> tuple[Tile, ...]:
    """Tiles that fill a box of so many pixels, the largest first. Nodes without value have none."""
    ranked = sorted((n for n in nodes if n.value > 0.0), key=lambda n: -n.value)
    total = sum(n.value for n in ranked)
    if not total or width <= 0.0 or height <= 0.0:
        return ()
    areas = [n.value / total * width * height for n in ranked]
    tiles: list[Tile] = []
    at, left, top = 0, 0.0, 0.0
    free_width, free_height = width, height
    while at < len(areas):
        side = min(free_width, free_height)
        end = _row(areas, at, side)
        thick = sum(areas[at:end]) / side
        along = 0.0
        for area, node in zip(areas[at:end], ranked[at:end], strict=True):
            long = area / thick
            upright = free_width >= free_height
            box = (left, top + along, thick, long) if upright else (left + along, top, long, thick)
            tiles.append(_tile(node, box, width, height))
            along += long
        if free_width >= free_height:
            left, free_width = left + thick, max(1e-9, free_width - thick)
        else:
            top, free_height = top + thick, max(1e-9, free_height - thick)
        at = end
    return tuple(tiles)


def _row(areas: Sequence[float], at: int, side: float) -> int:
    """Up to where the row beginning at `at` goes: as long as its worst box gets no longer drawn out."""
    end, best = at + 1, _worst(areas[at : at + 1], side)
    while end < len(areas) and (worst := _worst(areas[at : end + 1], side)) <= best:
        end, best = end + 1, worst
    return end


def _worst(row: Sequence[float], side: float) -> float:
    """The largest ratio of the sides of a row's boxes."""
    total = sum(row)
    return max(side * side * max(row) / total**2, total**2 / (side * side * min(row)))


def _tile(node: Node, box: tuple[float, float, float, float], width: float, height: float) -> Tile:
    left, top, wide, high = box
    tiles: tuple[Tile, ...] = ()
    if node.nodes and wide >= SMALLEST[0] and high >= SMALLEST[1]:
        tiles = lay_out(node.nodes, wide - 2 * EDGE, high - HEAD - EDGE)
    place = (100 * left / width, 100 * top / height, 100 * wide / width, 100 * high / height)
    return Tile(node, *place, tiles)
