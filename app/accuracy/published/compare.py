"""Predicts every published row by the estimate that advice rests on, for the row's own device."""

from __future__ import annotations

from collections import Counter

from app.accuracy.published.liger import candidate_of, region_of
from app.accuracy.published.model import Compared, Comparison, Row, Table
from app.analysis.service import advise_region
from profiler.hardware import find_device


def compare(table: Table) -> Comparison:
    """Seconds a row. A row that cannot be predicted is counted with the reason."""
    rows: list[Compared] = []
    left_out: Counter[str] = Counter()
    predicted: dict[tuple[str, str], dict[str, float]] = {}
    for row in table.rows:
        made = predicted_row(row, predicted)
        if isinstance(made, str):
            left_out[made] += 1
        else:
            rows.append(made)
    return Comparison(table.source, table.commit, table.file, table.licence, tuple(rows), dict(left_out))


def predicted_row(row: Row, known: dict[tuple[str, str], dict[str, float]]) -> Compared | str:
    """The row with its prediction, or why it has none. known: candidates' times by region and device, kept."""
    candidate, text = candidate_of(row), region_of(row)
    if not text:
        return "the kernel is not written in the region language here"
    if not candidate:
        return "no candidate of this project is that provider's kernel"
    if row.kernel == "cross_entropy" and row.provider == "liger" and row.mode == "forward":
        return "Liger's forward of a loss makes the gradient too, which a region without one does not ask for"
    if find_device(row.device) is None:
        return f"{row.device} is not in the device table"
    key = (text, row.device)
    if key not in known:
        advice = advise_region(text, device=row.device)["advice"]
        alternatives = advice["alternatives"] if advice is not None else []
        known[key] = {a["candidate"]: a["time_us"]["mid"] for a in alternatives if a["time_us"] is not None}
    time_us = known[key].get(candidate)
    if time_us is None:
        return "the estimate gives that candidate no time"
    return Compared(row.kernel, row.provider, row.mode, row.size, row.device, candidate, row.time_us, time_us)
