"""Windows as torch cuts them, one axis as two, whatever a thread takes; bad windows are refused."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from kernels.ops.pool.pool import Window, average_pool, launch, max_pool, max_pool_with_places, space
from tests.kernels.interpreted.checking import far

WINDOWS = (
    Window((2, 2)), Window((3, 3), (2, 2), (1, 1)), Window((3, 2), (1, 3), (1, 0), ceil=True),
    Window((2, 3), (3, 2), (1, 1), ceil=True, counted=False), Window((3, 3), (1, 1), (1, 1)),
    Window((5, 6), (2, 3), (2, 3)), Window((3, 5), (2, 2), (1, 2)), Window((4, 4), (2, 2), (1, 1), counted=False),
    Window((2, 1), (3, 4)), Window((27, 1), (2, 1), (13, 0)), Window((1, 26), (1, 2), (0, 13), ceil=True),
)  # fmt: skip
"""Overlapping, apart, of even and odd padding, over edges, and too large to unroll."""


def _image(last: bool) -> torch.Tensor:
    x = torch.randn(2, 5, 9, 10, generator=torch.Generator().manual_seed(1))
    return x.to(memory_format=torch.channels_last) if last else x


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("last", [False, True])
def test_results_are_torch_s(window: Window, last: bool) -> None:
    x = _image(last)
    y, places = max_pool_with_places(x, window)
    largest, wanted = F.max_pool2d(
        x, window.size, window.strides, window.padding, window.dilation, window.ceil, return_indices=True
    )
    torch.testing.assert_close(y, largest)
    assert y.stride() == places.stride() == largest.stride()
    row = torch.arange(y.shape[2])[:, None] * window.strides[0] - window.padding[0] + places // window.size[1]
    column = torch.arange(y.shape[3]) * window.strides[1] - window.padding[1] + places % window.size[1]
    assert torch.equal(row * x.shape[3] + column, wanted)
    mean = F.avg_pool2d(x, window.size, window.strides, window.padding, window.ceil, window.counted)
    torch.testing.assert_close(average_pool(x, window), mean)


@pytest.mark.parametrize("window", [Window((2, 2)), Window((3, 3), (2, 2), (1, 1)), Window((3, 3), (1, 1), (1, 1))])
@pytest.mark.parametrize("inner", [1, 5])
def test_every_variant_gives_the_same(window: Window, inner: int) -> None:
    """Rows that do not fill the last strip, programs over the end, channels that are no power of two."""
    x = torch.randn(3, 11, 10, inner, generator=torch.Generator().manual_seed(3)).permute(0, 3, 1, 2)
    wanted = F.max_pool2d(x, window.size, window.strides, window.padding)
    sizes = (11, 10, *wanted.shape[2:], inner)
    variants = space(window, 3, sizes, 4, (("MAX", True), ("PLACES", False), ("COUNTED", True)))
    assert len({v["ROWS"] for v in variants}) > 2
    for variant in (*variants, far(variants[0])):
        y = torch.full((3, *wanted.shape[2:], inner), -7.0)
        launch(variant, 3, x, y, y)
        assert torch.equal(y.permute(0, 3, 1, 2), wanted), variant


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
    ],
)  # fmt: skip
def test_bad_windows_and_shapes_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
