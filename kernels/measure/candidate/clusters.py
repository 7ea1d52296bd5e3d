"""How far the figures of two samples of a random output lie apart by chance, whatever draws its elements share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations

import torch

from kernels.measure.messages import Spread

FEWEST_CLUSTERS = 32
"""Fewer say too little of how they scatter."""
MOST_AXES = 5  # leading ones beyond are taken as one


def spreads(out: torch.Tensor, ref: torch.Tensor) -> list[Spread]:
    """How mean, standard deviation and share of zeros differ between two samples of the same inputs, by clusters.

    out, ref: samples of one shape and any type, drawn apart; elements that are not finite in both are passed over.
    Clusters are the slices at each index of some of the axes, for every choice of axes with `FEWEST_CLUSTERS` slices.

    One dropped probability of attention empties a row, one dropped channel a plane, a dropped weight changes a column:
    elements are not independent, clusters are. The variance of a sum over independent clusters is estimated by the
    sum of squares of the clusters' own sums, whatever goes on within them: the cluster-robust variance (Liang and
    Zeger, Longitudinal data analysis using generalized linear models, Biometrika 73, 1986), for several axes at a time
    as by Cameron, Gelbach and Miller (Robust inference with multiway clustering, JBES 29, 2011). Each figure is a mean
    over elements of f(x), to first order: x, (x - mean)² / (2 standard deviations, the larger of both), [x = 0]. The
    clusters' sums are of f(out) - f(ref), so that what the inputs make of a row is in both and cancels, and with n of
    them of N elements

        Var(mean of f(out) - mean of f(ref)) = n / (n - 1) * sum over clusters of (own sum - mean sum)² / N².
    """
    a, b = (_axes(t.detach()).to(torch.float64) for t in (out, ref))
    finite = a.isfinite() & b.isfinite()
    if not a.numel() or not bool(finite.any()):
        return []
    if not bool(finite.all()):
        a, b = torch.where(finite, a, 0.0), torch.where(finite, b, 0.0)
    mean, deviation = b.mean(), _deviation(a, b, out.dtype if out.is_floating_point() else torch.float64)
    figures: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        lambda t: t,
        lambda t: (t - mean).square_().div_(2 * deviation),
        lambda t: (t == 0).to(torch.float64),
    )
    made = [list(_scatter(f(a) - f(b))) for f in figures]
    return [
        Spread(same[0][0], tuple(s[1] for s in same), tuple(s[2] for s in same)) for same in zip(*made, strict=True)
    ]


def _deviation(a: torch.Tensor, b: torch.Tensor, kept: torch.dtype) -> torch.Tensor:
    """The larger standard deviation of both, at least what rounding to the type that `a` was kept in makes of a
    constant: divided by nothing, squares of the least difference would be without end."""
    deviations = torch.stack([t.std(correction=0) for t in (a, b)])
    sizes = torch.stack([t.square().mean().sqrt() for t in (a, b)])
    return torch.maximum(deviations.max(), torch.finfo(kept).eps * sizes.max()).clamp_min(1e-300)


def _axes(values: torch.Tensor) -> torch.Tensor:
    """Without axes of one, the leading ones together where there are many."""
    values = values.squeeze()
    return values.reshape(-1, *values.shape[values.dim() - MOST_AXES + 1 :]) if values.dim() > MOST_AXES else values


def _scatter(difference: torch.Tensor) -> Iterator[tuple[tuple[int, ...], float, float]]:
    """(slices along each axis, 1 where they go across it; variance of the mean; standard error of that variance)."""
    for sums in _sums(difference):
        count = sums.numel()
        if count >= FEWEST_CLUSTERS:
            squares = (sums - sums.mean()).square_()
            variance = squares.sum().item() * count / (count - 1) / difference.numel() ** 2
            fourth = math.sqrt(squares.square_().sum().item()) / difference.numel() ** 2
            yield tuple(sums.shape), variance, fourth


def _sums(values: torch.Tensor) -> Iterator[torch.Tensor]:
    """Of the slices for each choice of axes that index them, from those of one axis more."""
    axes = tuple(range(values.dim()))
    known = {axes: values}
    yield values
    for size in range(len(axes) - 1, 0, -1):
        fewer = {}
        for kept in combinations(axes, size):
            over = min((a for a in axes if a not in kept), key=lambda a: values.shape[a])
            fewer[kept] = known[tuple(sorted((*kept, over)))].sum(over, keepdim=True)
            yield fewer[kept]
        known = fewer
