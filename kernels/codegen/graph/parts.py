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
        if not x.dim():
            return NotImplemented
        if x.dtype == torch.bool:
            x = aten._to_copy.default(x, dtype=torch.uint8)
            return aten._to_copy.default(values(x, [dim], keepdim), dtype=torch.bool), places(x, dim, keepdim)
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
    kernel = _side_by_side(x, kernel_size, stride, padding)
    if kernel is None or divisor_override or math.prod(kernel) <= WRITTEN_OUT:
        return NotImplemented
    return _tiled(x, kernel)


def _side_by_side(
    x: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> list[int] | None:
    """The sizes of windows that together are the whole image; None where they overlap, or leave some of it out."""
    rank = max(2, len(kernel_size))
    kernel, steps = (list(n) * (rank if len(n) == 1 else 1) for n in (kernel_size, stride or kernel_size))
    whole = not any(padding) and not any(n % k for n, k in zip(x.shape[-rank:], kernel, strict=True))
    return kernel if steps == kernel and whole else None


def repeated(x: torch.Tensor, kernel: Sequence[int]) -> torch.Tensor:
    """Each element as often as its window has elements, in their places."""
    rank, lead = len(kernel), list(x.shape[: -len(kernel)])
    sizes = list(zip(x.shape[-rank:], kernel, strict=True))
    thin = aten.view.default(x, lead + [n for size, _ in sizes for n in (size, 1)])
    wide = aten.expand.default(thin, lead + [n for pair in sizes for n in pair])
    dense = aten.clone.default(wide, memory_format=torch.contiguous_format)
    repeated: torch.Tensor = aten.view.default(dense, lead + [size * k for size, k in sizes])
    return repeated


def _averaged_back(
    gradient: torch.Tensor,
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """The gradient of an average pool whose windows lie side by side."""
    kernel = _side_by_side(x, kernel_size, stride, padding)
    if kernel is None:
        return NotImplemented
    return aten.div.Tensor(repeated(gradient.contiguous(), kernel), divisor_override or math.prod(kernel))


def _largest_back(
    gradient: torch.Tensor,
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: torch.Tensor,
) -> Any:
    """The gradient of a max pool whose windows lie side by side: an element's where it was the largest, else 0."""
    kernel = _side_by_side(x, kernel_size, stride, padding)
    if kernel is None or any(d != 1 for d in dilation):
        return NotImplemented
    sizes = x.shape[-len(kernel) :]
    places = aten.view.default(aten.arange.default(math.prod(sizes), device=x.device), list(sizes))
    hit = aten.eq.Tensor(repeated(indices.contiguous(), kernel), places)
    nothing = aten.full.default([], 0.0, dtype=gradient.dtype, device=x.device)
    return aten.where.self(hit, repeated(gradient.contiguous(), kernel), nothing)


def _copies(x: torch.Tensor, repeats: Sequence[int]) -> torch.Tensor:
    """repeat: the whole tensor so often in each dimension."""
    shape = [*([1] * (len(repeats) - x.dim())), *x.shape]
    pairs = list(zip(repeats, shape, strict=True))
    thin = aten.view.default(x, [n for _, size in pairs for n in (1, size)])
    wide = aten.expand.default(thin, [n for pair in pairs for n in pair])
    dense = aten.clone.default(wide, memory_format=torch.contiguous_format)
    copies: torch.Tensor = aten.view.default(dense, [count * size for count, size in pairs])
    return copies


def _rolled(x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """roll without a dimension: of all elements in a row."""
    if dims or not x.numel():
        return NotImplemented
    flat = aten.roll.default(aten.view.default(x.contiguous(), [x.numel()]), shifts, [0])
    return aten.view.default(flat, list(x.shape))


PARTS_OF_OUR_OWN: Mapping[Any, Callable[..., Any]] = {
    aten.repeat.default: _copies,
    aten.roll.default: _rolled,
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
    aten.avg_pool2d_backward.default: _averaged_back,
    aten.avg_pool3d_backward.default: _averaged_back,
    aten.max_pool2d_with_indices_backward.default: _largest_back,
    aten.max_pool3d_with_indices_backward.default: _largest_back,
}
"""What each is taken apart into; NotImplemented where it stays whole."""
