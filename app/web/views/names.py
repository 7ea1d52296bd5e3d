"""Names that fit beside a chart and stay distinct: cut in their middle, since candidates differ at either end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.web.charts.figure import escape

LEAST = 12
"""Of a name at least so many letters are kept, whatever the limit."""


def shorten(name: str, limit: int) -> str:
    """The name, its middle left out where it is longer than the limit: both ends tell candidates apart."""
    text = " ".join(str(name).replace("torch.nn.functional.", "F.").split())
    limit = max(limit, LEAST)
    if len(text) <= limit:
        return text
    front = (limit - 1) * 2 // 3
    return f"{text[:front]}…{text[len(text) - (limit - 1 - front) :]}"


def shorten_uniquely(names: Iterable[str], limit: int = 44) -> list[str]:
    """Names cut to the limit and escaped for Plotly, each once: more of the name where two would read the same.

    Equal names cannot be told apart by their letters: the later ones get a number.
    """
    whole = [" ".join(str(n).split()) for n in names]
    wanted, found = limit, [shorten(n, limit) for n in whole]
    while len(set(found)) < len(set(whole)) and wanted < max(map(len, whole), default=0):
        wanted += 8
        clash = {f for f in found if found.count(f) > 1}
        found = [shorten(n, wanted) if f in clash else f for n, f in zip(whole, found, strict=True)]
    return [escape(n, 2 * max(limit, wanted)) for n in number_equal(found)]


def number_equal(labels: Sequence[str]) -> list[str]:
    """Equal labels would fall on one row: the later ones get a number."""
    seen: dict[str, int] = {}
    rows = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        rows.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return rows
