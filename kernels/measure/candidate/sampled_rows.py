"""A check of some rows where the whole region does not fit into memory in float64.

Only where the region treats its rows by themselves: that is found out, not believed. The same text is run in float64 at
a few rows and at some of these alone, and must give the same for them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernels.measure.candidate import inputs as tensors
from kernels.measure.candidate.reduce import with_sizes
from kernels.measure.candidate.reference import NoReferenceError, reference
from profiler.region.language.program import Program, program, shape_of
from profiler.region.model import Region, RegionError

FEW, PICKED = 13, (0, 2, 3, 7, 12)
"""Rows of the trial, and those of them that are run by themselves."""
LEAST_ROWS = 256  # a dimension with fewer is not worth sampling
FEW_ROWS = 4  # the same where only roundings are looked at, such as an attention's heads
ALIKE = 1e-9
"""Relative difference of two runs in float64 that compute the same, in whatever order they add."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Which dimension of each tensor has the rows; None for a tensor that has none, such as a weight.

    outputs: gradients behind the outputs proper.
    """

    region: Region
    count: int
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]

    def some(self, most: int, seed: int) -> list[int]:
        """At most so many numbers of rows, the first and the last among them; the same for a seed everywhere."""
        if most >= self.count:
            return list(range(self.count))
        drawn = random.Random(seed).sample(range(1, self.count - 1), max(0, min(most, self.count) - 2))
        return sorted({0, *drawn, self.count - 1})

    def program(self, count: int, device: str) -> Program:
        """The region at so many rows."""
        region = with_sizes(self.region, {}, {self.count: count})
        assert region is not None  # it was so at FEW
        return program(region, {}, device)


def rows_of(region: Region, sizes: dict[str, int], device: str, least: int = LEAST_ROWS) -> Rows | None:
    """The dimension along which the region treats everything by itself, of at least so many; None where there is none
    that can be shown. Where few are enough it is no result's last: that one is what figures of single rows are of."""
    bound = with_sizes(region, sizes, {})
    if bound is None:
        return None
    shapes = [shape_of(i, {}) for i in bound.inputs]
    largest = max(shapes, key=lambda s: torch.Size(s).numel(), default=())
    sizes_of_it = dict.fromkeys(largest)
    few = least < LEAST_ROWS
    for size in sorted(sizes_of_it, reverse=True) if few else sizes_of_it:  # of few the most
        if size >= least and (rows := _along(bound, size, device, few)) is not None:
            return rows
    return None


def _along(region: Region, size: int, device: str, but_the_last: bool) -> Rows | None:
    if any(size in (i.below, i.offsets) or tuple(i.shape).count(size) > 1 for i in region.inputs):
        return None
    known = {s for i in region.inputs for s in i.shape}
    if FEW in known or len(PICKED) in known:
        return None
    many, few = (with_sizes(region, {}, {size: n}) for n in (FEW, len(PICKED)))
    if many is None or few is None:
        return None
    try:
        wide, narrow = program(many, {}, device), program(few, {}, device)
    except RegionError:
        return None
    dims = tuple(i.shape.index(size) if size in i.shape else None for i in region.inputs)
    outputs = [_differs(a.shape, b.shape) for a, b in zip(wide.outputs, narrow.outputs, strict=True)]
    gradients = [dim for item, dim in zip(region.inputs, dims, strict=True) if item.requires_grad]
    results = [*outputs, *gradients]
    if any(dim is None for dim in results):  # a sum over the rows: a weight's gradient, a mean
        return None
    shapes = [*(o.shape for o in wide.outputs), *(i.shape for i in region.inputs if i.requires_grad)]
    if but_the_last and any(dim == len(shape) - 1 for dim, shape in zip(results, shapes, strict=True)):
        return None
    rows = Rows(region, size, dims, tuple(d for d in results if d is not None))
    return rows if _by_themselves(rows, wide, narrow, many, device) else None


def _differs(first: Sequence[int], second: Sequence[int]) -> int | None:
    """The one dimension that has the rows."""
    places = [n for n, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    alike = [n for n in places if (first[n], second[n]) == (FEW, len(PICKED))]
    return alike[0] if len(places) == len(alike) == 1 else None


def _by_themselves(rows: Rows, wide: Program, narrow: Program, region: Region, device: str) -> bool:
    """Whether some of a few rows come out the same alone."""
    picked = list(PICKED)
    needs = [i.requires_grad for i in region.inputs]
    scales = tensors.weight_scales(wide.module)
    values = tensors.input_set(region, {}, device, tensors.seed_of("rows"), scales=scales)
    upstream = [_upstream(tuple(o.shape), n, device) if any(needs) else None for n, o in enumerate(wide.outputs)]
    try:
        whole = reference(wide.module, values, needs, upstream)
        some = reference(
            narrow.module,
            [take(v, dim, picked) for v, dim in zip(values, rows.inputs, strict=True)],
            needs,
            [None if g is None else take(g, dim, picked) for g, dim in zip(upstream, rows.outputs, strict=False)],
            watched=whole.written,
        )
    except (NoReferenceError, torch.OutOfMemoryError):
        return False
    if whole.written != some.written:
        return False
    dims = [*rows.outputs, *(rows.inputs[n] for n in whole.written)]
    return all(
        _alike(take(all_of_them, dim, picked), alone)
        for all_of_them, alone, dim in zip(whole.outputs, some.outputs, dims, strict=True)
    )


def _upstream(shape: tuple[int, ...], number: int, device: str) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(tensors.seed_of("rows", number))
    return torch.randn(shape, generator=generator, device=device, dtype=torch.float64)


def _alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.shape != second.shape:
        return False
    if not first.dtype.is_floating_point:
        return bool(torch.equal(first, second))
    return bool(torch.allclose(first, second, rtol=ALIKE, atol=ALIKE * float(first.abs().max()), equal_nan=True))


def take(value: torch.Tensor, dim: int | None, rows: Sequence[int]) -> torch.Tensor:
    """These rows of a tensor, copied; all of one that has none."""
    if dim is None:
        return value.detach()
    return value.detach().index_select(dim, torch.tensor(rows, device=value.device))
