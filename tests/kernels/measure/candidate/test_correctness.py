"""Errors against float64, as numpy computes them; NaN and infinities told from rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kernels.measure.candidate.correctness import compare
from kernels.measure.candidate.reference import Reference
from profiler.region.language.vocabulary import DTYPES

FEW, MORE_THAN_A_STEP = (37, 41), (4097, 4099)


def error_of(out: torch.Tensor, ref: torch.Tensor) -> tuple[float, float, int]:
    (error_of_output,) = compare([out], Reference((ref,), {}, "float64"))
    return error_of_output.error, error_of_output.outlier, error_of_output.misfits


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f8e4m3"])
@pytest.mark.parametrize("shape", [FEW, MORE_THAN_A_STEP])
def test_finite_outputs_have_the_error_that_numpy_finds(dtype: str, shape: tuple[int, int]) -> None:
    ref = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    out = ref.to(DTYPES[dtype])
    a, b = out.double().numpy(), ref.numpy()
    wanted = np.linalg.norm(a - b) / np.linalg.norm(b)
    outlier = np.abs(a - b).max() / np.sqrt(np.mean(b * b))
    assert error_of(out, ref) == (pytest.approx(wanted, rel=1e-9), pytest.approx(outlier, rel=1e-9), 0)


@pytest.mark.parametrize(("mine", "right", "misfits"), [
    (math.nan, 1.0, 1), (math.inf, 1.0, 1), (1.0, math.nan, 1), (1.0, -math.inf, 1),
    (math.nan, math.nan, 0), (math.inf, math.inf, 0), (-math.inf, math.inf, 1),
])  # fmt: skip
def test_what_is_not_finite_in_one_alone_is_a_misfit(mine: float, right: float, misfits: int) -> None:
    ref = torch.ones(64, dtype=torch.float64)
    out = ref.float()
    out[5], ref[5] = mine, right
    assert error_of(out, ref) == (0.0, 0.0, misfits)


def test_a_number_beyond_the_type_is_an_infinity_there() -> None:
    ref = torch.tensor([1.0, 7e4, -7e4], dtype=torch.float64)
    assert error_of(ref.half(), ref)[2] == 0
    assert error_of(torch.tensor([1.0, 65504.0, -65504.0]).half(), ref)[2] == 2


def test_zeros_are_right_only_where_zeros_are_expected() -> None:
    zeros, ones = torch.zeros(9), torch.ones(9, dtype=torch.float64)
    assert error_of(zeros, ones)[:2] == (1.0, 1.0)
    assert error_of(zeros, 0 * ones)[:2] == (0.0, 0.0)
    assert error_of(zeros + 1e-30, 0 * ones)[:2] == (math.inf, math.inf)
    assert error_of(zeros[:0], ones[:0]) == (0.0, 0.0, 0)
