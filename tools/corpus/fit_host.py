"""What a call costs the host, by the corpus's fit third: prints the numbers that `app.estimate.rates.Host` holds.

`python -m tools.corpus.fit_host`: of every program whose host sets the pace, wall time as a sum of a call, its launches
and its views. Least relative error with weights against outliers; no number below 0. The development third is not
looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from app.accuracy.case import Case, cases
from app.accuracy.corpus.measured import load_measured
from app.accuracy.question import question
from app.estimate.facts import RegionFacts
from profiler.region import op_kinds

Floats = npt.NDArray[np.float64]
Rows = Mapping[str, list[tuple[float, tuple[float, ...]]]]

HOST_BOUND = 1.35
"""Wall time above this many times the device time is the host's."""
ROUNDS = 20
NEAR = 0.1
"""Relative errors below it weigh alike."""

NUMBERS: Mapping[str, tuple[str, ...]] = {
    "eager": ("call", "launch", "view"),
    "compiled": ("compiled", "kernel"),
    "compiled backward": ("trained", "trained_kernel"),
    "generated": ("generated",),
}
"""What is fitted together -> the host's numbers, in the order of the columns."""


def rows() -> Rows:
    """(µs by the wall clock, what there is of each number), by what is fitted together."""
    timed: dict[str, list[tuple[float, tuple[float, ...]]]] = defaultdict(list)
    for case in cases(load_measured("fit")):
        facts = question(case).prepared.facts
        shape = facts.heaviest
        if shape is None:
            continue
        launches = sum(o.launches for o in shape.cost.operations)
        views = sum(o.kind == op_kinds.VIEW for o in shape.cost.operations)
        fused = shape.cost.fused.launches
        columns: dict[str, tuple[float, ...]] = {
            "eager": (1.0, launches, views), "compile": (1.0, fused), "compile-max-autotune": (1.0, fused),
            "triton:generated": (fused,),
        }  # fmt: skip
        for name, wall_us in _host_bound(case):
            together = _together(name, facts)
            if together and name in columns:
                timed[together].append((wall_us, columns[name]))
    return timed


def _host_bound(case: Case) -> list[tuple[str, float]]:
    whole = [c for c in case.validation.candidates if c.status == "ok" and c.time_us and c.wall_us]
    return [
        (c.name, float(c.wall_us))
        for c in whole
        if c.wall_us and c.time_us and c.wall_us > HOST_BOUND * c.time_us.median
    ]


def _together(name: str, facts: RegionFacts) -> str:
    if name == "eager":
        return "eager backward" if facts.requires_grad else "eager"
    if name.startswith("compile"):
        return "compiled backward" if facts.requires_grad else "compiled"
    return "" if facts.requires_grad else "generated"


def fit_host() -> dict[str, float]:
    """The host's numbers in µs, to three figures."""
    timed = rows()
    fitted: dict[str, float] = {}
    for together, names in NUMBERS.items():
        walls, columns = zip(*timed[together], strict=True)
        solved = least(np.array(columns, dtype=float), np.array(walls))
        fitted |= {name: float(f"{value:.3g}") for name, value in zip(names, solved, strict=True)}
    # With gradients eager pays its engine besides: what is left of the median program.
    eager = [fitted[name] for name in NUMBERS["eager"]]
    left = [wall - float(np.dot(eager, columns)) for wall, columns in timed["eager backward"]]
    return fitted | {"engine": float(f"{np.median(left):.3g}")}


def least(columns: Floats, walls: Floats) -> Floats:
    """Numbers >= 0 by which the columns add up to the walls with the least relative error, outliers held down."""
    weights = 1.0 / walls
    solved = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        solved = _not_negative(columns * weights[:, None], walls * weights)
        weights = 1.0 / walls / np.sqrt(np.maximum(np.abs(columns @ solved / walls - 1.0), NEAR))
    return solved


def _not_negative(columns: Floats, values: Floats) -> Floats:
    """Least squares; the most negative number is left out until none is."""
    kept: list[int] = list(range(columns.shape[1]))
    while True:
        solved = np.asarray(np.linalg.lstsq(columns[:, kept], values, rcond=None)[0], dtype=np.float64)
        if not kept or (solved >= 0).all():
            result = np.zeros(columns.shape[1])
            result[kept] = solved
            return result
        kept.pop(int(np.argmin(solved)))


if __name__ == "__main__":
    for name, value in fit_host().items():
        print(f"{name}: float = {value}")
