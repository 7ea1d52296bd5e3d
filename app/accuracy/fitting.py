"""Fitting: the shipped rates made again from what was measured. `tritonworthy accuracy fit` writes them.

Only the half of the Archive that may be tuned on is looked at, and those rows of the table of kernels that are at no
region's sizes of the other half.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from app.accuracy.fit import Left, fit, left_over, refit, touched_by
from app.accuracy.samples import Samples, samples
from app.accuracy.split import TEST, half
from app.accuracy.tables import fitted_rows
from app.estimate.rates import Rates, rates_to_json
from app.objects.accuracy import FittedRates, KernelTable, LeftOver
from profiler.hardware import find_device

if TYPE_CHECKING:
    from app.accuracy.case import Case
    from app.accuracy.question import Question

DEVICE = "NVIDIA H200"
"""The device that rates are fitted on: the one with measured ceilings whose records are shipped."""
TABLE_NAME = "tests/records/kernels-h200.json"
DIGITS = 4


def gather_samples(questions: Sequence[Question], table: KernelTable | None) -> Samples:
    """Everything measured on the device, of both halves."""
    device = find_device(DEVICE)
    assert device is not None
    return samples([q for q in questions if q.case.validation.device == DEVICE], table, device)


def tunable(gathered: Samples) -> Samples:
    """What may be tuned on."""
    return gathered.without(lambda program: half(program) == TEST)


def rates_json(questions: Sequence[Question], table: KernelTable | None, gathered: Samples) -> FittedRates:
    """The object of rates.json: rates, what they were fitted on, what they leave over."""
    chosen = tunable(gathered)
    rates = fit(chosen)
    cases = [q.case for q in questions if q.case.half != TEST and q.case.validation.device == DEVICE]
    rows = fitted_rows(table) if table else []
    runs = {row.get("run", "") for row in rows}
    body = {
        "date": max([*(c.validation.date for c in cases), *(day[:10] for day in runs)], default=""),
        "devices": [DEVICE],
        "torch": sorted({str(c.validation.software.get("torch", "")) for c in cases}),
        "sources": [
            f"app/archive/records: {len(cases)} records of {len({c.program for c in cases})} programs, the half that"
            " may be tuned on",
            f"{TABLE_NAME}: {len(rows)} rows, without those at the sizes of a program of the other half",
        ],
        "samples": {"times": len(chosen.timed), "calls": len(chosen.calls)},
        "left_over": {name: _round(left) for name, left in left_over(chosen, rates).items()},
        "rates": rates_to_json(rates),
    }
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8]
    return cast("FittedRates", {"schema": 1, "version": f"{body['date']}-{digest}", **body})


def _round(left: Left) -> LeftOver:
    return {
        "samples": left.samples,
        "within": _digits(left.within),
        "error_geomean": _digits(left.error_geomean),
        "low": _digits(left.low),
        "high": _digits(left.high),
    }


def _digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def text_of(rates: FittedRates) -> str:
    """As it is committed."""
    return json.dumps(rates, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


class LeaveOneOut:
    """Rates for cases from which one program is missing: an `evaluation.Fit`.

    everything: of both halves. A program's own times, and rows of the table at its sizes, are in no rate that it is
    scored with.
    """

    def __init__(self, everything: Samples) -> None:
        self.everything = everything
        self.touching = touched_by(everything.timed, Rates())
        self.fitted = fit(everything, touching=self.touching)
        self.programs = {t.program for t in everything.timed} - {""}

    def __call__(self, cases: Sequence[Case]) -> Rates:
        """ValueError unless exactly one program is missing."""
        missing = self.programs - {c.program for c in cases}
        if len(missing) != 1:
            raise ValueError(f"{len(missing)} programs are left out, not one")
        left_out = refit(self.everything, missing.pop(), self.fitted, self.touching)
        return replace(left_out, atlas=True)  # no program of the Archive is among its points
