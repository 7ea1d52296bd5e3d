"""Reductions, scans and patches of the interpreter are what Triton's own make of the same kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from tests.kernels.interpreted.interpreter import REDUCE, SCAN, reduce_in_pairs, scan_by_slices


@triton.jit
def least(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def either(a, b):
    return a | b


@triton.jit
def first(a, b):
    return a


@triton.jit
def last(a, b):
    return b


@triton.jit
def smaller_with_place(value, place, other, other_place):
    """Not commutative where values are equal: the place on the left stays."""
    left = value <= other
    return tl.where(left, value, other), tl.where(left, place, other_place)


@triton.jit
def chained(scale, shift, next_scale, next_shift):
    """One affine step after another: associative, and the order of its operands counts."""
    return scale * next_scale, shift * next_scale + next_shift


SHAPES = [((1,), 0), ((64,), 0), ((8, 16), 0), ((8, 16), 1), ((2, 4, 8), 1), ((2, 1, 4), 1)]
PAIRS = {"smaller with its place": smaller_with_place, "affine steps": chained}
SINGLES = {
    "least": (least, np.float32),
    "either": (either, np.int32),
    "first": (first, np.int32),
    "last": (last, np.int32),
}


def blocks(shape: tuple[int, ...], *dtypes: type) -> tuple[Any, ...]:
    """Small whole numbers, some of them equal: every order of sums and products of them is exact."""
    rng = np.random.default_rng(len(shape) + sum(shape))
    op = interpreter.ReduceOps(0, None, False)
    return tuple(
        op.to_tensor(rng.integers(-2, 3, shape).astype(d), tl.float32 if d is np.float32 else tl.int32) for d in dtypes
    )


def within_a_launch(compute: Callable[[], Any]) -> Any:
    """The language as a kernel sees it."""
    scope = interpreter._patch_lang(least.fn)
    try:
        return compute()
    finally:
        scope.restore()


def assert_same(made: list[Any], expected: list[Any]) -> None:
    assert len(made) == len(expected)
    for mine, other in zip(made, expected, strict=True):
        assert (mine.type, mine.handle.data.dtype) == (other.type, other.handle.data.dtype)
        np.testing.assert_array_equal(mine.handle.data, other.handle.data)


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("name", [*SINGLES, *PAIRS])
def test_a_reduction_in_pairs_is_the_one_by_elements(
    name: str, shape: tuple[int, ...], axis: int, keep_dims: bool
) -> None:
    combine, dtypes = (SINGLES[name][0], SINGLES[name][1:]) if name in SINGLES else (PAIRS[name], (np.float32,) * 2)
    values = blocks(shape, *dtypes)
    op = interpreter.ReduceOps(axis, combine, keep_dims)
    made = within_a_launch(lambda: (reduce_in_pairs(op, values), REDUCE(op, values)))
    assert_same(*made)


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("shape", [(4, 8), (8,)])
@pytest.mark.parametrize("name", SINGLES)
def test_a_reduction_over_every_axis_is_the_one_by_elements(name: str, shape: tuple[int, ...], keep_dims: bool) -> None:
    combine, dtype = SINGLES[name]
    values = blocks(shape, dtype)
    op = interpreter.ReduceOps(None, combine, keep_dims)
    made = within_a_launch(lambda: (reduce_in_pairs(op, values), REDUCE(op, values)))
    assert_same(*made)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("name", [*SINGLES, *PAIRS])
def test_a_scan_by_slices_is_the_one_by_elements(name: str, shape: tuple[int, ...], axis: int) -> None:
    combine, dtypes = (SINGLES[name][0], SINGLES[name][1:]) if name in SINGLES else (PAIRS[name], (np.float32,) * 2)
    values = blocks(shape, *dtypes)
    op = interpreter.ScanOps(axis, combine, False)
    made = within_a_launch(lambda: (scan_by_slices(op, values), SCAN(op, values)))
    assert_same(*made)


def test_nan_is_kept_in_its_row() -> None:
    rows = np.array([[1.0, 2.0, 3.0, 0.5], [1.0, np.nan, 0.5, 2.0]], dtype=np.float32)
    op = interpreter.ReduceOps(1, least, False)
    values = (op.to_tensor(rows, tl.float32),)
    (made,), (expected,) = within_a_launch(lambda: (reduce_in_pairs(op, values), REDUCE(op, values)))
    assert_same([made], [expected])
    np.testing.assert_array_equal(made.handle.data, [0.5, np.nan])


@triton.jit
def double(x):
    return tl.sum(x, 0) * 2


@triton.jit
def doubled_sum(x_ptr, y_ptr, SIZE: tl.constexpr):  # noqa: N803 - a constant
    tl.store(y_ptr, double(tl.load(x_ptr + tl.arange(0, SIZE))))


def test_a_launch_leaves_the_language_as_it_was() -> None:
    """Triton's own leaves what a device function's call patched."""
    before = {module: dict(vars(module)) for module in (tl, tl.core, tl.core.tensor, tl.math)}
    y = torch.zeros(1)
    for _ in range(2):
        doubled_sum[(1,)](torch.arange(8.0), y, 8)
        assert y.item() == 56
    after = {module: dict(vars(module)) for module in before}
    assert [name for m, names in after.items() for name in names if names[name] is not before[m].get(name)] == []


def test_a_launch_after_one_that_failed_is_patched_again() -> None:
    y = torch.zeros(1)
    with pytest.raises(interpreter.InterpreterError):
        doubled_sum[(1,)](torch.arange(8.0), y, 7)  # no power of two
    doubled_sum[(1,)](torch.arange(8.0), y, 8)
    assert y.item() == 56
