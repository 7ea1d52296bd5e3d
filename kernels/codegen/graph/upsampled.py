"""Nearest upsampling by whole factors as views, and its gradient as sums over the blocks that an element became.

What has other factors stays whole: the forward has a rule (`expressions/upsampling.py`), the backward is a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._prims_common import suggest_memory_format

from kernels.codegen.expressions.upsampling import nearest_places
from kernels.codegen.graph.parts import WRITTEN_OUT, repeated

aten = torch.ops.aten


def _factors(sizes: Sequence[int], new: Sequence[int], scales: Sequence[float | None]) -> list[int] | None:
    """How often each element is there in each dimension; None where some are more often than others."""
    factors = []
    for size, count, scale in zip(sizes, new, scales, strict=True):
        if not size or count % size:
            return None
        factor = count // size
        if bool((nearest_places(size, count, scale) != np.arange(count) // factor).any()):
            return None
        factors.append(factor)
    return factors


def _nearest(x: torch.Tensor, output_size: Sequence[int], *scales: float | None) -> Any:
    rank = len(output_size)
    given = [*scales, *([None] * (rank - len(scales)))]
    factors = _factors(x.shape[-rank:], output_size, given) if x.numel() else None
    if factors is None:
        return NotImplemented
    return aten.clone.default(repeated(x, factors), memory_format=suggest_memory_format(x))


def _nearest_back(
    gradient: torch.Tensor, output_size: Sequence[int], input_size: Sequence[int], *scales: float | None
) -> Any:
    rank, lead = len(output_size), list(input_size[: -len(output_size)])
    sizes = list(input_size[-rank:])
    given = [*scales, *([None] * (rank - len(scales)))]
    factors = _factors(sizes, output_size, given) if gradient.numel() else None
    if factors is None:
        return NotImplemented
    if math.prod(factors) <= WRITTEN_OUT:
        if rank == 1:
            flat = aten.view.default(gradient.contiguous(), [*lead, 1, gradient.shape[-1]])
            return aten.view.default(aten.avg_pool2d.default(flat, [1, *factors], divisor_override=1), input_size)
        pool = aten.avg_pool2d.default if rank == 2 else aten.avg_pool3d.default
        return pool(gradient, factors, divisor_override=1)
    layout = suggest_memory_format(gradient)
    blocks = lead + [n for size, factor in zip(sizes, factors, strict=True) for n in (size, factor)]
    inner = [len(lead) + 2 * d + 1 for d in range(rank)]
    summed = aten.sum.dim_IntList(aten.view.default(gradient.contiguous(), blocks), inner)
    return aten.clone.default(summed, memory_format=layout)


UPSAMPLED: Mapping[Any, Callable[..., Any]] = {
    **dict.fromkeys(
        (aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default), _nearest
    ),
    aten.upsample_nearest1d_backward.default: _nearest_back,
    aten.upsample_nearest2d_backward.default: _nearest_back,
    aten.upsample_nearest3d_backward.default: _nearest_back,
}
"""What each is taken apart into; NotImplemented where it stays whole."""
