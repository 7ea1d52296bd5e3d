"""What is answered where a result depends on values, which nothing here has: the most it can be, and words for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

aten = torch.ops.aten
READS = "a value is read from the device"
SIZED = "the result's size depends on values"

Guess: TypeAlias = Callable[..., tuple[Any, str]]
"""Called as the operation is: its result without memory, and what was assumed."""


def guess_of(func: object) -> Guess | None:
    """For an operation that needs values; None for another."""
    return GUESSES.get(func)


def _equal(one: torch.Tensor, other: torch.Tensor) -> tuple[Any, str]:
    return True, f"{READS} (torch.equal); assumed True"


def _allclose(one: torch.Tensor, other: torch.Tensor, *_: object, **__: object) -> tuple[Any, str]:
    return True, f"{READS} (torch.allclose); assumed True"


def _nonzero(values: torch.Tensor) -> tuple[Any, str]:
    return nonzero_of(values, values.numel()), f"{SIZED} (nonzero); {all_true(values)}"


def _masked_select(values: torch.Tensor, mask: torch.Tensor) -> tuple[Any, str]:
    both = torch.empty_like(values * mask)
    made = torch.empty((both.numel(),), dtype=values.dtype, device="meta")
    return made, f"{SIZED} (masked_select); {all_true(both)}"


def nonzero_of(values: torch.Tensor, true: int) -> torch.Tensor:
    """The positions of so many."""
    return torch.empty((true, values.dim()), dtype=torch.int64, device="meta")


def all_true(mask: torch.Tensor) -> str:
    """The assumption in words."""
    return f"assumed that all {mask.numel():,} are true"


def _different(values: torch.Tensor, shape: Sequence[int], count: int, inverse: Sequence[int]) -> tuple[Any, str]:
    """What torch.unique gives: the values, where each of them went, how many there are of each."""
    results = (
        torch.empty(shape, dtype=values.dtype, device="meta"),
        torch.empty(inverse, dtype=torch.int64, device="meta"),
        torch.empty((count,), dtype=torch.int64, device="meta"),
    )
    return results, f"{SIZED} (torch.unique); assumed that no two of {count:,} are alike"


def _unique(
    values: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Any, str]:
    size = values.numel()
    return _different(values, (size,), size if return_counts else 0, values.shape if return_inverse else (0,))


def _unique_along(values: torch.Tensor, dim: int, *_: object, **__: object) -> tuple[Any, str]:
    return _different(values, values.shape, values.size(dim), (values.size(dim),))


def _unique_consecutive(
    values: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Any, str]:
    if dim is not None:
        return _unique_along(values, dim)
    return _unique(values, True, return_inverse, return_counts)


def _bincount(values: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> tuple[Any, str]:
    size = minlength or values.numel()
    told = "minlength" if minlength else "as many as there are values"
    kind = torch.int64 if weights is None else weights.dtype if weights.dtype == torch.float32 else torch.float64
    return torch.empty((size,), dtype=kind, device="meta"), f"{SIZED} (bincount); assumed {told}: {size:,}"


def _repeat_interleave(repeats: torch.Tensor, output_size: int | None = None) -> tuple[Any, str]:
    told = "" if output_size is not None else f"{SIZED} (repeat_interleave); assumed that each is there once"
    size = repeats.numel() if output_size is None else output_size
    return torch.empty((size,), dtype=torch.int64, device="meta"), told


GUESSES: Mapping[object, Guess] = {
    aten.equal.default: _equal,
    aten.allclose.default: _allclose,
    aten.nonzero.default: _nonzero,
    aten.masked_select.default: _masked_select,
    aten._unique2.default: _unique,
    aten.unique_dim.default: _unique_along,
    aten.unique_consecutive.default: _unique_consecutive,
    aten.unique_dim_consecutive.default: _unique_along,
    aten.bincount.default: _bincount,
    aten.repeat_interleave.Tensor: _repeat_interleave,
}
