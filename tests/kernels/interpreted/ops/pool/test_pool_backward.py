"""Gradients as autograd has them, whatever a thread takes; other shapes and places are refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernels.ops.pool.pool import Window, max_pool_with_places
from kernels.ops.pool.pool_backward import (
    average_pool_backward,
    launch,
    max_pool_backward,
    pool_patches,
    pool_visits,
    space,
)
from tests.kernels.interpreted.checking import far

WINDOWS = (
    Window((2, 2)), Window((3, 3), (2, 2), (1, 1)), Window((3, 2), (1, 3), (1, 0), ceil=True),
    Window((2, 3), (3, 2), (1, 1), ceil=True, counted=False), Window((3, 3), (1, 1), (1, 1)),
    Window((5, 6), (2, 3), (2, 3)), Window((3, 5), (2, 2), (1, 2)), Window((4, 4), (2, 2), (1, 1), counted=False),
    Window((2, 1), (3, 4)), Window((1, 2), (6, 5)), Window((27, 1), (2, 1), (13, 0)),
    Window((1, 26), (1, 2), (0, 13), ceil=True),
)  # fmt: skip
"""Overlapping, apart, of even and odd padding, over edges, and windows or patches too large to unroll."""


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("last", [False, True])
def test_gradients_are_autograd_s(window: Window, last: bool) -> None:
    x = torch.randn(2, 5, 9, 10, generator=torch.Generator().manual_seed(1))
    x = (x.to(memory_format=torch.channels_last) if last else x).requires_grad_()
    largest = F.max_pool2d(x, window.size, window.strides, window.padding, window.dilation, window.ceil)
    mean = F.avg_pool2d(x, window.size, window.strides, window.padding, window.ceil, window.counted)
    dy = torch.randn_like(mean)
    _, places = max_pool_with_places(x.detach(), window)
    got, wanted = max_pool_backward(dy, places, x.shape, window), torch.autograd.grad(largest, x, dy)[0]
    torch.testing.assert_close(got, wanted)
    assert got.stride() == x.stride()
    wanted = torch.autograd.grad(mean, x, dy)[0]
    torch.testing.assert_close(average_pool_backward(dy, x.shape, window), wanted)


@pytest.mark.parametrize("size", [(3, 2), (26, 1)])
def test_a_dilated_window_gives_to_its_own_positions(size: tuple[int, int]) -> None:
    window = Window(size, (2, 1), (1, 0), (3, 2))
    x = torch.randn(2, 3, 90, 7, generator=torch.Generator().manual_seed(4)).requires_grad_()
    y = F.max_pool2d(x, window.size, window.strides, window.padding, window.dilation)
    dy = torch.randn_like(y)
    _, places = max_pool_with_places(x.detach(), window)
    wanted = torch.autograd.grad(y, x, dy)[0]
    torch.testing.assert_close(max_pool_backward(dy, places, x.shape, window), wanted)


@pytest.mark.parametrize("window", [Window((2, 2)), Window((3, 3), (2, 2), (1, 1)), Window((3, 3), (1, 1), (1, 1))])
@pytest.mark.parametrize("inner", [1, 5])
def test_every_variant_gives_the_same(window: Window, inner: int) -> None:
    """Patches that do not fill the last strip or stand out of the plane, programs over the end."""
    x = torch.randn(3, 11, 10, inner, generator=torch.Generator().manual_seed(3)).permute(0, 3, 1, 2).requires_grad_()
    y = F.avg_pool2d(x, window.size, window.strides, window.padding)
    dy = torch.randn(3, *y.shape[2:], inner, generator=torch.Generator().manual_seed(5))
    wanted = torch.autograd.grad(y, x, dy.permute(0, 3, 1, 2))[0]
    variants = space(window, 3, (11, 10, *y.shape[2:], inner), 4, (("MAX", False), ("COUNTED", True)))
    assert len({v["ROWS"] for v in variants}) > 2
    for variant in (*variants, far(variants[0])):
        dx = torch.full((3, 11, 10, inner), 7.0)
        launch(variant, 3, dy, dy, dx)
        torch.testing.assert_close(dx.permute(0, 3, 1, 2), wanted, msg=str(variant))


def test_large_windows_and_patches_are_visited_and_small_ones_unrolled() -> None:
    constants = (("MAX", False), ("COUNTED", True))
    for window, kernel in ((Window((2, 2)), pool_patches), (Window((27, 1)), pool_visits),
                           (Window((1, 1), (6, 5)), pool_visits)):  # fmt: skip
        sizes = (34, 34, window.of(34, 0), window.of(34, 1), 1)
        assert {v.kernel for v in space(window, 3, sizes, 4, constants)} == {kernel}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: max_pool_backward(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2), (1, 1, 4, 4), Window((2, 2))),
         "places are"),
        (lambda: average_pool_backward(torch.zeros(1, 1, 3, 2), (1, 1, 4, 4), Window((2, 2))), "dy has shape"),
        (lambda: average_pool_backward(torch.zeros(1, 1, 2, 2), (1, 1, 4, 4), Window((2, 2), dilation=(2, 2))),
         "no dilation"),
    ],
)  # fmt: skip
def test_other_shapes_and_places_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
