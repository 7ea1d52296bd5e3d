"""Windows as torch cuts them, gradients as autograd has them, one axis as two; bad windows are refused."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from kernels.ops.pool.pool import (
    Window,
    average_pool,
    average_pool_backward,
    divisor,
    max_pool,
    max_pool_backward,
    max_pool_with_places,
)

WINDOWS = (
    Window((2, 2)), Window((3, 3), (2, 2), (1, 1)), Window((3, 2), (1, 3), (1, 0), ceil=True),
    Window((2, 3), (3, 2), (1, 1), ceil=True, counted=False), Window((3, 3), (1, 1), (1, 1)),
    Window((5, 6), (2, 3), (2, 3)),
)  # fmt: skip


def _image(last: bool) -> torch.Tensor:
    x = torch.randn(2, 5, 9, 10, generator=torch.Generator().manual_seed(1))
    return x.to(memory_format=torch.channels_last) if last else x


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("last", [False, True])
def test_forward_and_gradient_are_autograd_s(window: Window, last: bool) -> None:
    x = _image(last).requires_grad_()
    largest = F.max_pool2d(x, window.size, window.strides, window.padding, window.dilation, window.ceil)
    mean = F.avg_pool2d(x, window.size, window.strides, window.padding, window.ceil, window.counted)
    plain = x.detach()
    y, places = max_pool_with_places(plain, window)
    torch.testing.assert_close(y, largest.detach())
    torch.testing.assert_close(average_pool(plain, window), mean.detach())
    dy = torch.randn_like(y)
    got, wanted = max_pool_backward(dy, places, plain.shape, window), torch.autograd.grad(largest, x, dy)[0]
    torch.testing.assert_close(got, wanted)
    assert got.stride() == plain.stride()
    wanted = torch.autograd.grad(mean, x, dy)[0]
    torch.testing.assert_close(average_pool_backward(dy, plain.shape, window), wanted)


def test_divisions_by_multiplication_are_exact() -> None:
    last = (1 << 31) - 1
    for d in (1, 2, 3, 7, 56, 112, 113, 641, 65537, 12544, 802816, (1 << 29) + 1, (1 << 30) - 1, 1 << 30):
        factor, shift = divisor(d)
        for n in {0, 1, d - 1, d, d + 1, last, last - 1, *(k * d + e for k in (2, 3, last // d) for e in (-1, 0, 1))}:
            if 0 <= n <= last:
                assert ((n * (factor % (1 << 32)) >> 32) + n) >> shift == n // d


def test_tiny_planes_of_results_of_huge_images_are_addressed_in_64_bits() -> None:
    """A block of 256 results goes over 256 images; of 2^24 numbers each, from the 128th on they are beyond 2^31."""
    x = torch.empty((140, 1, 4096, 4096), dtype=torch.float16)  # of its memory a page each is touched
    x[:, 0, 0, 0] = torch.arange(140)
    assert torch.equal(max_pool(x, Window((1, 1), (4096, 4096))).flatten(), torch.arange(140).half())


def test_one_axis_is_two_of_which_one_has_one_position() -> None:
    x = torch.randn(2, 3, 30, generator=torch.Generator().manual_seed(2))
    window = Window((1, 4), (1, 3), (0, 2))
    torch.testing.assert_close(max_pool(x[:, :, None], window)[:, :, 0], F.max_pool1d(x, 4, 3, 2))
    torch.testing.assert_close(average_pool(x[:, :, None], window)[:, :, 0], F.avg_pool1d(x, 4, 3, 2))


def test_a_window_of_minus_infinity_and_one_with_nan() -> None:
    x = torch.full((1, 1, 2, 4), -math.inf)
    x[0, 0, 1, 2] = math.nan
    y, places = max_pool_with_places(x, Window((2, 2)))
    assert float(y[0, 0, 0, 0]) == -math.inf
    assert math.isnan(float(y[0, 0, 0, 1]))
    assert places.flatten().tolist() == [0, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Window((2, 2), padding=(2, 0)), "at most half the window"),
        (lambda: Window((0, 2)), "sizes from 1 on"),
        (lambda: Window((16, 16)), "at most 255 positions"),
        (lambda: max_pool(torch.zeros(1, 1, 2, 2), Window((3, 3))), "hold no window"),
        (lambda: average_pool(torch.zeros(1, 1, 9, 9), Window((2, 2), dilation=(2, 2))), "no dilation"),
        (lambda: max_pool(torch.zeros(1, 2, 2), Window((2, 2))), r"takes \[N, C, H, W\]"),
        (lambda: max_pool_backward(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2), (1, 1, 4, 4), Window((2, 2))),
         "places are"),
        (lambda: average_pool_backward(torch.zeros(1, 1, 3, 2), (1, 1, 4, 4), Window((2, 2))), "dy has shape"),
    ],
)  # fmt: skip
def test_bad_windows_and_shapes_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
