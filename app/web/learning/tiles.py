"""What a matrix product reads from HBM and holds on the chip as its tile grows. Formulas, no measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from app.units import amount
from app.web.charts.figure import COLOURS, Chart, Figure, bar, chart
from profiler.hardware import Device
from profiler.oracle.compiler.targets import TARGETS

TILES = (8, 16, 32, 64, 128, 256)
SIZES = (1024, 2048, 4096, 8192)
DEPTH, STAGES, ITEM = 64, 3, 2
"""Depth of a tile of an operand, tiles in flight, bytes of an element (bf16)."""


class Row(TypedDict):
    """One square tile of an n x n x n product in bf16.

    read: bytes from HBM without any cache: each of the (n/t)² programs reads t rows of a and t columns of b. written:
    the result, once. held: shared memory of one program; fits: within `limit`, what one block may have. accumulator:
    bytes of it. memory_us, compute_us: those bytes and the 2 n³ FLOPs at the device's ceilings.
    """

    tile: int
    programs: int
    read: int
    written: int
    held: int
    fits: bool
    limit: int | None
    accumulator: int
    memory_us: float
    compute_us: float


def tile_rows(n: int, device: Device) -> list[Row]:
    """One row for each of TILES."""
    target = TARGETS.get(device.arch)
    limit = target.shared_block_bytes if target else None
    rows: list[Row] = []
    for tile in TILES:
        read, written = 2 * n**3 // tile * ITEM, n * n * ITEM
        held = STAGES * 2 * tile * DEPTH * ITEM
        rows.append(
            {
                "tile": tile, "programs": (n // tile) ** 2, "read": read, "written": written, "held": held,
                "fits": limit is None or held <= limit, "limit": limit, "accumulator": tile * tile * 4,
                "memory_us": (read + written) / device.copy_rate * 1e6,
                "compute_us": 2 * n**3 / device.matmul_rate("bf16") * 1e6,
            }
        )  # fmt: skip
    return rows


def tile_chart(rows: Sequence[Row]) -> Chart:
    """Left: bytes from HBM by tile. Right: shared memory that one program holds, with the limit of a block."""
    names = [f"{r['tile']} × {r['tile']}" for r in rows]
    traces: list[Figure] = [
        {
            "type": "bar", "x": names, "y": [r["read"] / 1e9 for r in rows], "marker": bar("library"),
            "text": [amount(r["read"]) for r in rows], "textposition": "outside", "cliponaxis": False,
            "showlegend": False, "hovertemplate": "%{x}: %{text} read<extra></extra>",
        },
        {
            "type": "bar", "x": names, "y": [r["held"] / 1e3 for r in rows], "marker": bar("triton"),
            "text": [amount(r["held"]) for r in rows], "textposition": "outside", "cliponaxis": False, "xaxis": "x2",
            "yaxis": "y2", "showlegend": False, "hovertemplate": "%{x}: %{text} held<extra></extra>",
        },
    ]  # fmt: skip
    limit = rows[0]["limit"]
    shapes: list[Figure] = []
    notes: list[Figure] = []
    if limit:
        line = {"color": COLOURS["floor"], "width": 2, "dash": "dash"}
        shapes = [{"type": "line", "xref": "x2 domain", "x0": 0, "x1": 1, "yref": "y2", "y0": limit / 1e3,
                   "y1": limit / 1e3, "line": line}]  # fmt: skip
        notes = [{"xref": "x2 domain", "x": 0, "yref": "y2", "y": limit / 1e3, "xanchor": "left", "yanchor": "bottom",
                  "text": f"a block may have {amount(limit)}", "showarrow": False}]  # fmt: skip
    top = max([limit or 0, *(r["held"] for r in rows)]) / 1e3
    axis: Figure = {"type": "category", "title": {"text": "tile of the result"}, "tickangle": -45}
    layout = {
        "xaxis": axis | {"domain": [0, 0.45]},
        "yaxis": {"title": {"text": "read from HBM, GB"}, "range": [0, rows[0]["read"] / 1e9 * 1.15],
                  "automargin": True},
        "xaxis2": axis | {"domain": [0.57, 1], "anchor": "y2"},
        "yaxis2": {"title": {"text": "held in shared memory, kB"}, "anchor": "x2", "range": [0, top * 1.2],
                   "automargin": True},
        "shapes": shapes, "annotations": notes, "margin": {"l": 48, "r": 16, "t": 16, "b": 84},
    }  # fmt: skip
    return chart(traces, layout, 340, width=620)


def describe_balance(rows: Sequence[Row]) -> str:
    """From which tile on arithmetic takes longer than memory, in a sentence."""
    first = next((r for r in rows if r["memory_us"] <= r["compute_us"]), None)
    if first is None:
        return (
            "Even the largest of these tiles would wait for memory: the L2 cache, and an order of programs that uses "
            "it, do the rest."
        )
    return f"From {first['tile']} × {first['tile']} on the arithmetic takes longer than the reading."
