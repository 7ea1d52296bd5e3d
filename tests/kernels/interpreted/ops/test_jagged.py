"""Jagged operations: every variant, segments of every length, rows that no float can sum."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.ops.scatter import jagged_mean, jagged_softmax
from kernels.tuning import Variant

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

OFFSETS = {
    "one segment over many programs": [0, 150],
    "empty ones in front, between and behind": [0, 0, 0, 3, 3, 147, 147, 150, 150],
    "cut where programs are cut": [0, 16, 32, 64, 128, 150],
    "one row each, then many": [*range(20), 150],
}


@pytest.fixture
def values() -> torch.Tensor:
    torch.manual_seed(4)
    return torch.randn(150, 5)


@pytest.mark.parametrize("name", OFFSETS)
def test_means_of_segments_of_every_length(name: str, values: torch.Tensor) -> None:
    offsets = torch.tensor(OFFSETS[name])
    for rows in (16, 64):
        y = torch.full((len(offsets) - 1, 5), 7.0)
        variant = Variant(jagged_mean.jagged_mean_parts, (("ROWS", rows), ("BLOCK", 8), ("WHOLE", False)), 4)
        jagged_mean.launch(variant, values, offsets, y)
        torch.testing.assert_close(y, jagged_mean.reference(values, offsets), equal_nan=True)


@pytest.mark.parametrize("name", OFFSETS)
def test_softmax_of_segments_of_every_length(name: str, values: torch.Tensor) -> None:
    offsets = torch.tensor(OFFSETS[name])
    values[20:120, 1] = -math.inf  # whole programs have nothing above it
    values[:, 2] = -math.inf
    values[130, 3] = math.nan
    values[131, 4] = math.inf
    wanted = jagged_softmax.reference(values, offsets)
    ways = (
        (jagged_softmax.jagged_softmax_segments, (("ROWS", 32), ("BLOCK", 8))),
        (jagged_softmax.jagged_softmax_segments, (("ROWS", 256), ("BLOCK", 4))),
        (jagged_softmax.jagged_softmax_blocks, (("ROWS", 16), ("BLOCK", 8), ("LAST", False))),
        (jagged_softmax.jagged_softmax_blocks, (("ROWS", 64), ("BLOCK", 4), ("LAST", False))),
    )
    for kernel, constants in ways:
        y = torch.full_like(values, 7.0)
        jagged_softmax.launch(Variant(kernel, constants, 4), values, offsets, y)
        torch.testing.assert_close(y, wanted, equal_nan=True)


def test_what_is_not_jagged_is_refused() -> None:
    with pytest.raises(ValueError, match="offsets"):
        jagged_mean.jagged_mean(torch.zeros(3, 4), torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(TypeError, match="jagged_softmax takes"):
        jagged_softmax.jagged_softmax(torch.zeros(3, 4), torch.zeros(2))
