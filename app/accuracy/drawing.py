"""The charts of docs/accuracy.md as SVG. Pure functions; colours are told apart with every common colour blindness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from app.accuracy.score import SHARE
from app.accuracy.totals import BAND
from app.objects.accuracy import ScoreFigures

COLOURS = {"eager": "#8a8f94", "library": "#0072b2", "compile": "#009e73", "triton": "#e69f00", "cuda": "#d55e00"}
WORDS = {"eager": "leave it", "library": "library", "compile": "torch.compile", "triton": "Triton", "cuda": "CUDA"}
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
INK, GRID = "#444b52", "#d5d9dd"


REGRETS = (1, 1.03, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100)
APART = 0.05
"""Least distance of two marks on an axis, as a share of it: their figures would run into each other."""


def marks(ticks: Sequence[float], low: float, high: float) -> list[float]:
    """Those of the ticks that a logarithmic axis from low to high has room for."""
    kept: list[float] = []
    for tick in ticks:
        free = not kept or math.log(tick / kept[-1]) >= APART * math.log(high / low)
        if low <= tick <= high and free:
            kept.append(tick)
    return kept


def tool_of(candidate: str) -> str:
    """`library:torch.mm` -> `library`; `compile-max-autotune` -> `compile`."""
    return candidate.partition(":")[0].partition("-")[0]


def _text(x: float, y: float, words: str, anchor: str = "start", **more: str) -> str:
    extra = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashed}/>'


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img" font-family="sans-serif" font-size="12" fill="{INK}">'
    )
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *parts, "</svg>"]) + "\n"


def _legend(x: float, y: float, tools: Sequence[str]) -> list[str]:
    parts = []
    for tool in tools:
        parts.append(f'<circle cx="{x:.1f}" cy="{y - 4:.1f}" r="5" fill="{COLOURS[tool]}"/>')
        parts.append(_text(x + 10, y, WORDS[tool]))
        x += 30 + 7 * len(WORDS[tool])
    return parts


def calibration(scores: Sequence[ScoreFigures]) -> str:
    """Predicted (across) against measured (up) speed-up over eager, both logarithmic, with the band of 20 %.

    Filled: the candidate that the advice comes to. Hollow: the other candidates that were predicted.
    """
    points = [(s["counted"] == n, tool_of(n), p, m) for s in scores for n, p, m in s["calibration"]]
    size, left, top = 560, 56, 40
    if not points:
        return _svg(size, 80, "No prediction to compare yet", [_text(16, 40, "No prediction to compare yet")])
    values = [v for *_, p, m in points for v in (p, m)]
    low, high = math.log(min(values) / 1.3), math.log(max(values) * 1.3)
    span = size - left - 16

    def x(value: float) -> float:
        return left + span * (math.log(value) - low) / (high - low)

    def y(value: float) -> float:
        return top + span - span * (math.log(value) - low) / (high - low)

    parts = []
    for tick in marks(TICKS, math.exp(low), math.exp(high)):
        parts += [_line(x(tick), top, x(tick), top + span), _line(left, y(tick), left + span, y(tick))]
        parts += [
            _text(x(tick), top + span + 16, f"{tick:g}×", "middle"),
            _text(left - 6, y(tick) + 4, f"{tick:g}×", "end"),
        ]
    for scale, dash in ((1.0, ""), (1 - BAND, "5 4"), (1 + BAND, "5 4")):
        # predicted = scale x measured
        first, last = math.exp(max(low, low - math.log(scale))), math.exp(min(high, high - math.log(scale)))
        parts.append(_line(x(first * scale), y(first), x(last * scale), y(last), INK, dash))
    for chosen, tool, predicted, measured in sorted(points, key=lambda p: p[0]):
        fill = COLOURS[tool] if chosen else "none"
        parts.append(
            f'<circle cx="{x(predicted):.1f}" cy="{y(measured):.1f}" r="{5 if chosen else 4}" fill="{fill}"'
            f' stroke="{COLOURS[tool]}" stroke-width="1.5"/>'
        )
    parts += _legend(left, 20, [t for t in COLOURS if any(p[1] == t for p in points)])
    parts.append(_text(left + span / 2, top + span + 36, "predicted speed-up over eager", "middle"))
    up = f"rotate(-90 14 {top + span / 2:.0f})"
    parts.append(_text(14, top + span / 2, "measured speed-up over eager", "middle", transform=up))
    return _svg(size, top + span + 48, "Predicted against measured speed-up", parts)


def regrets(scores: Sequence[ScoreFigures]) -> str:
    """A bar for each record, the worst first: what was advised over the best, on a logarithmic axis from 1."""
    rows = sorted((s for s in scores if s["column"] != SHARE), key=lambda s: -s["regret"])
    left, right, row, top = 240, 96, 20, 44
    width = 760
    if not rows:
        return _svg(width, 80, "No region scored yet", [_text(16, 40, "No region scored yet")])
    high = math.log(max(1.5, rows[0]["regret"] * 1.05))
    span = width - left - right

    def x(value: float) -> float:
        return left + span * math.log(value) / high

    bottom = top + row * len(rows)
    parts = []
    for tick in marks(REGRETS, 1, math.exp(high)):
        parts.append(_line(x(tick), top - 4, x(tick), bottom, GRID))
        parts.append(_text(x(tick), bottom + 16, f"{tick:g}", "middle"))
    for place, s in enumerate(rows):
        y = top + row * place
        wide = max(2.0, x(s["regret"]) - left)
        mark = "" if s["right"] else "  not right"
        parts.append(_text(left - 8, y + 13, s["name"][:34], "end"))
        parts.append(
            f'<rect x="{left}" y="{y + 3}" width="{wide:.1f}" height="{row - 7}" fill="{COLOURS[s["counted_tool"]]}"/>'
        )
        parts.append(_text(left + wide + 6, y + 13, f"{s['regret']:.3f}{mark}"))
    parts += _legend(left, 20, [t for t in COLOURS if any(s["counted_tool"] == t for s in rows)])
    parts.append(_text(left + span / 2, bottom + 36, "regret: figure of the advised over the best measured", "middle"))
    return _svg(width, bottom + 48, "Regret of each region", parts)
