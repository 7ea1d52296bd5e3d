"""What a call costs the host, by the corpus's fit third: prints the numbers that `app.estimate.rates.Host` holds.

`python -m tools.corpus.fit_host`: of every program whose host sets the pace, wall time as a sum of a call, its launches
and its views. Launches of torch.compile are those that Inductor is asked for, of generated kernels those that today's
generator makes. Least error of the logarithm, large ones held down; no number below 0. The development third is not
looked at.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from app.accuracy.case import Case, cases
from app.accuracy.corpus.measured import load_measured
from app.accuracy.corpus.oracle_process import oracle_process
from app.accuracy.evaluation import Oracle
from app.accuracy.question import Question, question
from profiler.region import op_kinds

Floats = npt.NDArray[np.float64]
Row = tuple[str, float, tuple[float, ...]]
"""A program's name, µs by the wall clock, and what there is of each number."""

HOST_BOUND = 1.35
"""Wall time above this many times the device time is the host's."""
ROUNDS = 30
NEAR = 0.2
"""Errors of the logarithm below it weigh alike."""

NUMBERS: Mapping[str, tuple[str, ...]] = {
    "eager": ("call", "launch", "view"),
    "eager backward": ("engine", "engine_launch", "engine_view"),
    "compiled": ("compiled", "kernel"),
    "compiled backward": ("trained", "trained_kernel"),
    "generated": ("generated",),
    "generated backward": ("trained_generated",),
}
"""What is fitted together -> the host's numbers, in the order of the columns. With gradients eager pays the first
three besides: what is told of its engine is what is left over them."""


def rows(oracle: Oracle) -> Mapping[str, Sequence[Row]]:
    """By what is fitted together."""
    timed: dict[str, list[Row]] = defaultdict(list)
    for case in cases(load_measured("fit")):
        asked = question(case)
        columns = _columns(asked, oracle)
        backward = " backward" if asked.prepared.facts.requires_grad else ""
        for name, wall_us in _host_bound(case):
            together = TOGETHER.get(name)
            if together is not None and together in columns:
                timed[together + backward].append((case.name, wall_us, columns[together]))
    return timed


TOGETHER: Mapping[str, str] = {
    "eager": "eager", "compile": "compiled", "compile-max-autotune": "compiled", "triton:generated": "generated",
}  # fmt: skip
"""Candidate -> what it is fitted with."""


def _columns(asked: Question, oracle: Oracle) -> dict[str, tuple[float, ...]]:
    """By what is fitted together; without torch.compile where Inductor has no answer."""
    facts = asked.prepared.facts
    shape = facts.heaviest
    if shape is None:
        return {}
    launches = sum(o.launches for o in shape.cost.operations)
    views = sum(o.kind == op_kinds.VIEW for o in shape.cost.operations)
    columns: dict[str, tuple[float, ...]] = {
        "eager": (1.0, launches, views),
        "generated": (len(shape.generated(facts.taken)) + facts.apart.launches,),
    }
    answers = (p for p in oracle(asked).predictions if p.mode == "default" and not p.unavailable)
    if (answer := next(answers, None)) is not None:
        columns["compiled"] = (1.0, answer.launches)
    return columns


def _host_bound(case: Case) -> list[tuple[str, float]]:
    whole = [c for c in case.validation.candidates if c.status == "ok" and c.time_us and c.wall_us]
    return [
        (c.name, float(c.wall_us))
        for c in whole
        if c.wall_us and c.time_us and c.wall_us > HOST_BOUND * c.time_us.median
    ]


def fit_host() -> dict[str, float]:
    """The host's numbers in µs, to three figures."""
    with oracle_process(True) as oracle:
        assert oracle is not None
        timed = rows(oracle)
    solved = {together: solve(timed[together]) for together in NUMBERS}
    solved["eager backward"] = np.maximum(0.0, solved["eager backward"] - solved["eager"])
    return {
        name: float(f"{value:.3g}")
        for together, names in NUMBERS.items()
        for name, value in zip(names, solved[together], strict=True)
    }


def solve(timed: Sequence[Row]) -> Floats:
    """Numbers >= 0 by which the columns add up to the walls. A program counts once, however often it was timed."""
    often = Counter(name for name, _, _ in timed)
    walls = np.array([wall for _, wall, _ in timed])
    return least(
        np.array([c for _, _, c in timed], dtype=float), walls, np.array([often[n] ** -0.5 for n, _, _ in timed])
    )


def least(columns: Floats, walls: Floats, weights: Floats) -> Floats:
    """With the least error of the logarithm, outliers held down: Gauss's and Newton's steps, halved."""
    solved = _not_negative(columns / walls[:, None], np.ones(len(walls)))
    for _ in range(ROUNDS):
        predicted = np.maximum(1.0, columns @ solved)
        off = np.log(walls / predicted)
        held = weights / np.sqrt(np.maximum(np.abs(off), NEAR) / NEAR)
        step = _not_negative(columns / predicted[:, None] * held[:, None], (1 + off) * held)
        solved = (solved + step) / 2
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
