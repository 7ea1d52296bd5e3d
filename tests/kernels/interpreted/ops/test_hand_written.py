"""Hand-written kernels: every variant of their tuning space, at lengths that fill tiles and that do not."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.ops.norm import forward as norms
from kernels.ops.norm import rms_norm
from kernels.ops.norm.forward import Form
from kernels.ops.shared.rows import held_dtype
from kernels.ops.softmax import softmax
from kernels.tuning import Variant

# numpy, which interprets the kernels, warns of the NaN that masked-out rows compute and nobody stores
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SHAPES = [(5, 1000), (3, 4096), (1, 1), (7, 130), (2, 2054), (3, 16384)]
LONG = [(2, 40000), (1, 65536), (2, 33000)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
PACKED = (softmax.softmax_packed, softmax.softmax_ahead, rms_norm.rms_norm_packed)


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got.double() - exact).norm() / exact.norm())


def into(variant: Variant, x: torch.Tensor) -> torch.Tensor:
    """Poisoned memory of the dtype that the variant stores here."""
    dtype = x.dtype if variant.kernel in PACKED else held_dtype(x.dtype)
    return torch.full(x.shape, math.nan, dtype=dtype)


def packable(x: torch.Tensor) -> bool:
    return x.element_size() == 2 and x.shape[1] % 2 == 0


def pairs(x: torch.Tensor) -> int:
    """Numbers in a word that a norm's kernel may load at once: 0 where rows are no whole words."""
    return 1 if x.element_size() == 4 else 2 * packable(x)


def sample(variants: list[Variant]) -> list[Variant]:
    """One of each kernel: warps do not exist in the interpreter."""
    return list({v.kernel: v for v in variants}.values())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES + LONG, ids=str)
def test_softmax_is_as_exact_as_torch(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = (torch.randn(shape) * 3).to(dtype)
    exact = torch.softmax(x.double(), -1)
    for variant in sample(softmax.space(*shape, dtype, packable(x))):
        y = into(variant, x)
        softmax.launch(variant, x, y)
        assert error(y.to(dtype), exact) <= 2 * error(softmax.reference(x), exact) + 1e-7, variant


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES + LONG, ids=str)
def test_rms_norm_is_as_exact_as_torch(shape: tuple[int, int], dtype: torch.dtype, weighted: bool) -> None:
    torch.manual_seed(2)
    x = (torch.randn(shape) * 3 + 1).to(dtype)
    w = torch.randn(shape[1]).to(dtype)
    wide = x.double()
    exact = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6) * (w.double() if weighted else 1.0)
    plain = rms_norm.reference(x, w if weighted else None, 1e-6)
    for variant in sample(norms.space(*shape, dtype, pairs(x), Form(weight=weighted))):
        y = into(variant, x)
        norms.launch(variant, x, x, w, x, y, y, y, y, 1e-6)
        assert error(y.to(dtype), exact) <= 2 * error(plain, exact) + 1e-7, variant


def test_long_rows_of_16_bits_are_offered_packed_and_those_that_are_no_pairs_walked() -> None:
    kernels = {v.kernel for v in softmax.space(8, 65536, torch.bfloat16, True)}
    assert kernels == {softmax.softmax_packed, softmax.softmax_ahead}
    assert {v.kernel for v in softmax.space(8, 200000, torch.bfloat16, True)} == {softmax.softmax_packed}
    assert {v.kernel for v in softmax.space(8, 65537, torch.bfloat16, False)} == {softmax.softmax_loop}
    assert {v.kernel for v in norms.space(8, 200000, torch.bfloat16, 2, Form(weight=True))} == {rms_norm.rms_norm_loop}


def test_rows_of_minus_infinity_and_nan_stay_in_their_rows() -> None:
    x = torch.randn(4, 40000)
    x[1] = -math.inf
    x[2, 5] = math.nan
    x[3, :20000] = -math.inf
    for width in (1000, 40000):
        part = x[:, :width].contiguous()
        if width == 1000:
            part[3, 500:] = 0.5
        torch.testing.assert_close(softmax.softmax(part), torch.softmax(part, -1), equal_nan=True)


def test_views_and_batches() -> None:
    x = torch.randn(3, 5, 96)
    torch.testing.assert_close(softmax.softmax(x), torch.softmax(x, -1))
    w = torch.randn(48)
    torch.testing.assert_close(rms_norm.rms_norm(x[..., ::2], w), rms_norm.reference(x[..., ::2], w, 1e-6))
    part = x[:, :, 16:64]
    torch.testing.assert_close(rms_norm.rms_norm(part, w), rms_norm.reference(part, w, 1e-6))
    assert softmax.softmax(x[:0]).shape == (0, 5, 96)


def test_what_it_does_not_take_is_said() -> None:
    with pytest.raises(TypeError, match="float64"):
        softmax.softmax(torch.zeros(2, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="weight has shape"):
        rms_norm.rms_norm(torch.zeros(2, 4), torch.zeros(3))
