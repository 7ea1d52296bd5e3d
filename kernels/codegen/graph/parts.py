"""Operations in the parts that the generator knows, where PyTorch has no decomposition that suits it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

aten = torch.ops.aten

WRITTEN_OUT = 16
"""Elements of a window that is a whole part of the image from which on its mean is a reduction and no list of taps."""


def _largest(values: Any, places: Any) -> Callable[..., Any]:
    def parts(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
        if not x.dim() or x.dtype == torch.bool:
            return NotImplemented
        return values(x, [dim], keepdim), places(x, dim, keepdim)

    return parts


def _largest_of_all(values: Any) -> Callable[..., Any]:
    def parts(x: torch.Tensor) -> Any:
        return NotImplemented if x.dtype == torch.bool else values(x, list(range(x.dim())))

    return parts


def _both_ends(x: torch.Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    dims = list(range(x.dim())) if dim is None else [dim]
    return aten.amin.default(x, dims, keepdim), aten.amax.default(x, dims, keepdim)


def _counted(x: torch.Tensor, dim: Sequence[int] | int | None = None) -> Any:
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return aten.sum.dim_IntList(aten.ne.Scalar(x, 0), dims)


def _first(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """topk of one is the largest element; of the smallest one NaN would be the last and not the first."""
    if k != 1 or not x.dim() or not (largest or not x.is_floating_point()) or x.dtype == torch.bool:
        return NotImplemented
    values, places = (aten.amax, aten.argmax) if largest else (aten.amin, aten.argmin)
    return values.default(x, [dim], True), places.default(x, dim, True)


def _equal_windows(x: torch.Tensor, output_size: Sequence[int]) -> Any:
    """An adaptive average of windows that divide the image."""
    sizes = x.shape[-len(output_size) :]
    if any(not parts or size % parts for size, parts in zip(sizes, output_size, strict=True)):
        return NotImplemented
    kernel = [size // parts for size, parts in zip(sizes, output_size, strict=True)]
    if math.prod(kernel) <= WRITTEN_OUT:
        return (aten.avg_pool3d if len(kernel) == 3 else aten.avg_pool2d).default(x, kernel)
    return _tiled(x, kernel)


def _tiled(x: torch.Tensor, kernel: Sequence[int]) -> torch.Tensor:
    """The mean of windows that lie side by side, as a reduction over their dimensions."""
    rank, lead = len(kernel), list(x.shape[: -len(kernel)])
    shape = lead + [n for size, k in zip(x.shape[-rank:], kernel, strict=True) for n in (size // k, k)]
    inner = [len(lead) + 2 * d + 1 for d in range(rank)]
    mean: torch.Tensor = aten.mean.dim(aten.view.default(x, shape), inner)
    return mean


def _averaged(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """An average pool of many elements whose windows lie side by side."""
    rank = min(x.dim(), 3) if len(kernel_size) == 1 else len(kernel_size)
    kernel = list(kernel_size) * (rank if len(kernel_size) == 1 else 1)
    apart = not stride or list(stride) * (rank if len(stride) == 1 else 1) == kernel
    whole = not any(padding) and not any(n % k for n, k in zip(x.shape[-rank:], kernel, strict=True))
    if not apart or not whole or divisor_override or math.prod(kernel) <= WRITTEN_OUT:
        return NotImplemented
    return _tiled(x, kernel)


PARTS_OF_OUR_OWN: Mapping[Any, Callable[..., Any]] = {
    aten.max.dim: _largest(aten.amax.default, aten.argmax.default),
    aten.min.dim: _largest(aten.amin.default, aten.argmin.default),
    aten.max.default: _largest_of_all(aten.amax.default),
    aten.min.default: _largest_of_all(aten.amin.default),
    aten.aminmax.default: _both_ends,
    aten.count_nonzero.default: _counted,
    aten.count_nonzero.dim_IntList: _counted,
    aten.topk.default: _first,
    aten._adaptive_avg_pool2d.default: _equal_windows,
    aten._adaptive_avg_pool3d.default: _equal_windows,
    aten.avg_pool2d.default: _averaged,
    aten.avg_pool3d.default: _averaged,
}
"""What each is taken apart into; NotImplemented where it stays whole."""
