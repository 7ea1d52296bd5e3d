"""Dimensions that one number of a program runs through: where an address takes steps that nest, by the number itself.

`d0 * 196 + d1` with d0 = at // 196 and d1 = at % 196 is `at`: Triton then sees that neighbours are neighbours, and
reads several of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.codegen.index import Linear
from kernels.codegen.plan import Plan


@dataclass(frozen=True, slots=True)
class Run:
    """dims: neighbours in the domain, outermost first, with their sizes; source: the number that runs through them."""

    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    source: str


Part = tuple[int, str]
"""A step, and what takes it."""


def together(linear: Linear, runs: Sequence[Run]) -> tuple[list[Part], list[tuple[int, int]]]:
    """What is said by numbers of whole runs of dimensions, and the terms (dimension, step) that are left."""
    left, parts = dict(linear.terms), list[Part]()
    for run in runs:
        start = 0
        while start < len(run.dims):
            end = _nested(left, run, start)
            if end - start > 1:
                parts.append((left[run.dims[end - 1]], _number(run, start, end)))
                for dim in run.dims[start:end]:
                    del left[dim]
            start = end
    return parts, sorted(left.items())


def _nested(steps: dict[int, int], run: Run, start: int) -> int:
    """The end of the dimensions from `start` on whose steps nest, each that of the next times its size."""
    end = start + 1
    while end < len(run.dims) and run.dims[end - 1] in steps and run.dims[end] in steps:
        if steps[run.dims[end - 1]] != steps[run.dims[end]] * run.sizes[end]:
            break
        end += 1
    return end


def _number(run: Run, start: int, end: int) -> str:
    inner, own = math.prod(run.sizes[end:]), math.prod(run.sizes[start:end])
    text = run.source if inner == 1 else f"{run.source} // {inner}"
    return text if start == 0 else f"{text} % {own}"


def single_dims(plan: Plan, runs: Sequence[Run]) -> set[int]:
    """Domain dimensions that some address or position names by themselves."""
    return {dim for linear in plan.linears for dim, _ in together(linear, runs)[1]}


def split_axes(run: Run, used: set[int]) -> tuple[dict[int, str], list[str]]:
    """Names of the run's dimensions, and the statements that find those that are used."""
    if len(run.dims) == 1:
        return {run.dims[0]: run.source}, []
    places = range(len(run.dims))
    statements = [f"d{run.dims[i]} = {_number(run, i, i + 1)}" for i in places if run.dims[i] in used]
    return {dim: f"d{dim}" for dim in run.dims}, statements
