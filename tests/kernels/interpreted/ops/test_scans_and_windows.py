"""cumsum, two_axis_reduction, depthwise_conv: every variant of their spaces, layouts and wrong arguments."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernels.ops.reduction import two_axis_reduction as sums
from kernels.ops.scan import cumsum as scans
from kernels.ops.scan import depthwise_conv as windows

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def _integers(*shape: int) -> torch.Tensor:
    """Small integers: their sums are exact in f32, in any order."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(4)).float()


@pytest.mark.parametrize("columns", [700, 20_000])
def test_every_variant_of_cumsum_carries_over_its_pieces(columns: int) -> None:
    x = _integers(2, columns)
    for variant in scans.space(2, columns):
        y = torch.full_like(x, 7.0)
        scans.launch(variant, x, y)
        assert torch.equal(y, x.cumsum(-1)), str(variant)


def test_nan_and_infinity_in_a_piece_reach_what_follows_and_nothing_before() -> None:
    x = torch.ones(1, 3 * scans.HELD)
    x[0, scans.HELD + 5] = float("inf")
    x[0, 2 * scans.HELD + 9] = float("nan")
    y = scans.cumsum(x)[0]
    assert bool(torch.isfinite(y[: scans.HELD + 5]).all())
    assert bool(torch.isinf(y[scans.HELD + 5 : 2 * scans.HELD + 9]).all())
    assert bool(torch.isnan(y[2 * scans.HELD + 9 :]).all())


def test_every_variant_of_both_sums_adds_every_element_once() -> None:
    x = _integers(300, 530)
    for variant in sums.space(300, 530, 2) + sums.space(300, 530, 4):
        over_rows, over_columns = torch.full((530,), 7.0), torch.full((300,), 7.0)
        sums.launch(variant, x, over_rows, over_columns)
        assert torch.equal(over_rows, x.sum(0)), str(variant)
        assert torch.equal(over_columns, x.sum(1)), str(variant)


@pytest.mark.parametrize("last", [False, True], ids=["planes", "channels_last"])
@pytest.mark.parametrize(("k", "padding", "rows"), [(1, 0, 3), (2, 1, 3), (3, 2, 3), (3, 1, 19), (5, 2, 17)])
def test_every_variant_of_depthwise_conv_pads_with_zeros(last: bool, k: int, padding: int, rows: int) -> None:
    x, w, bias = _integers(2, 17, rows, 4), _integers(17, 1, k, k), _integers(17)
    wanted = F.conv2d(x, w, bias, padding=padding, groups=17)
    height, width = wanted.shape[2:]
    if last:
        x = x.to(memory_format=torch.channels_last)
        variants = windows.space_strips(2, height, width, 17, 17, k, padding, bias=True)
        variants += windows.space_pixels(height * width, 17, k, padding, bias=True, itemsize=4)
    else:
        variants = windows.space_planes(height, width, k, padding, bias=True)
    for variant in variants:
        y = torch.full_like(wanted, 7.0)
        y = y.to(memory_format=torch.channels_last) if last else y
        flat = w.view(17, k * k)
        windows.launch(variant, x, flat.t().contiguous() if last else flat, bias, y)
        assert torch.equal(y, wanted), str(variant)


def test_the_result_of_channels_last_is_channels_last() -> None:
    x = _integers(2, 16, 5, 5).to(memory_format=torch.channels_last)
    y = windows.depthwise_conv(x, _integers(16, 1, 3, 3), None, 1)
    assert y.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("x", "w", "padding"),
    [((1, 4, 8, 8), (4, 1, 9, 9), 0), ((1, 4, 8, 8), (4, 1, 3, 3), 3), ((1, 4, 8, 8), (4, 1, 3, 5), 0),
     ((1, 4, 8, 8), (8, 1, 3, 3), 0), ((1, 4, 8, 8), (4, 2, 3, 3), 0), ((4, 8, 8), (4, 1, 3, 3), 0),
     ((1, 4, 2, 8), (4, 1, 3, 3), 0), ((1, 4, 8, 8), (4, 1, 3, 3), -1)],
)  # fmt: skip
def test_other_convolutions_are_refused(x: tuple[int, ...], w: tuple[int, ...], padding: int) -> None:
    with pytest.raises(ValueError, match="depthwise_conv takes"):
        windows.depthwise_conv(torch.zeros(x), torch.zeros(w), None, padding)


def test_other_dtypes_and_shapes_are_refused() -> None:
    with pytest.raises(TypeError, match="cumsum takes"):
        scans.cumsum(torch.zeros(3, dtype=torch.float64))
    with pytest.raises(TypeError, match="two_axis_reduction takes"):
        sums.two_axis_reduction(torch.zeros(3, 3, dtype=torch.int32))
    with pytest.raises(ValueError, match="takes a matrix"):
        sums.two_axis_reduction(torch.zeros(3, 3, 3))
    with pytest.raises(TypeError, match="depthwise_conv takes"):
        windows.depthwise_conv(torch.zeros(1, 1, 3, 3, dtype=torch.float64), torch.zeros(1, 1, 3, 3))
    with pytest.raises(ValueError, match="bias is"):
        windows.depthwise_conv(torch.zeros(1, 2, 3, 3), torch.zeros(2, 1, 3, 3), torch.zeros(3))
