"""Predicts every published row by the estimate that advice rests on, for the row's own device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from app.accuracy.published import liger, tracelens
from app.accuracy.published.model import Compared, Comparison, Row, Table
from app.accuracy.samples import lower_text
from app.analysis.service import advise_region
from app.estimate.eager_time import eager_us
from app.estimate.rates import TRACED
from profiler.hardware import find_device

UNWRITTEN = "the kernel is not written in the region language here"


def compare(table: Table) -> Comparison:
    """Seconds a row. A row that cannot be predicted is counted with the reason."""
    predicted = predictor(table.source)
    rows: list[Compared] = []
    left_out: Counter[str] = Counter()
    for row in table.rows:
        made = predicted(row)
        if isinstance(made, str):
            left_out[made] += 1
        else:
            rows.append(made)
    return Comparison(table.source, table.commit, table.file, table.licence, tuple(rows), dict(left_out))


def predictor(source: str) -> Callable[[Row], Compared | str]:
    """Row -> the row with its prediction, or why it has none. ValueError for a source that is not known."""
    if source == "TraceLens":
        return predicted_kernels
    if source == "Liger-Kernel":
        known: dict[tuple[str, str], dict[str, float]] = {}
        return lambda row: predicted_row(row, known)
    raise ValueError(f"no published table is from {source!r}")


def predicted_row(row: Row, known: dict[tuple[str, str], dict[str, float]]) -> Compared | str:
    """A row of Liger's: a timed call. known: candidates' times by region and device, kept."""
    candidate, text = liger.candidate_of(row), liger.region_of(row)
    if not text:
        return UNWRITTEN
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


def predicted_kernels(row: Row) -> Compared | str:
    """A row of TraceLens's: the kernels of one operation of eager PyTorch."""
    text, device = tracelens.region_of(row), find_device(row.device)
    if not text:
        return UNWRITTEN
    if device is None:
        return f"{row.device} is not in the device table"
    shape = lower_text(text).heaviest
    if shape is None:
        return "the estimate gives that candidate no time"
    time_us = eager_us(shape, device, TRACED)
    return Compared(row.kernel, row.provider, row.mode, row.size, row.device, "eager", row.time_us, time_us)
