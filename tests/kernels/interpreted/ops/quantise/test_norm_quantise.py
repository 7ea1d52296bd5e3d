"""Codes of 8-bit floats are torch's, number for number, and arguments that do not belong together are refused."""

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl

from kernels.ops.quantise.norm_quantise import norm_quantise, reference
from kernels.ops.shared.float8 import code_of


@triton.jit
def _codes(x_ptr, q_ptr, n, BLOCK: tl.constexpr):  # noqa: N803 - a constant
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(q_ptr + at, code_of(tl.load(x_ptr + at, mask=at < n, other=0.0)), mask=at < n)


def test_every_code_its_neighbours_and_the_ties_between_are_rounded_as_torch_does() -> None:
    every = torch.arange(256, dtype=torch.int16).to(torch.uint8).view(torch.float8_e4m3fn).float()
    every = every[~every.isnan()].sort().values.unique()
    ties = (every[1:] + every[:-1]) / 2
    up, down = (torch.nextafter(ties, torch.full_like(ties, sign * math.inf)) for sign in (1, -1))
    some = torch.randn(4096, generator=torch.Generator().manual_seed(1)) * 100
    x = torch.cat((every, ties, up, down, some, torch.tensor([0.0, -0.0, 1e-30, math.inf, -math.inf, math.nan, 1e9])))
    codes = torch.empty(len(x), dtype=torch.uint8)
    _codes[(triton.cdiv(len(x), 1024),)](x, codes, len(x), BLOCK=1024)
    wanted = x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    assert torch.equal(codes[~x.isnan()], wanted[~x.isnan()])
    assert bool((codes[x.isnan()] & 0x7F == 0x7F).all())


@pytest.mark.parametrize("scales", ["row", "block", "tensor"])
def test_hardly_a_code_is_another_than_the_reference_s(scales: str) -> None:
    x = torch.randn(8, 1200, generator=torch.Generator().manual_seed(2))
    weight = torch.randn(1200, generator=torch.Generator().manual_seed(3))
    scale = torch.tensor([0.01]) if scales == "tensor" else None
    got = norm_quantise(x, None, weight, None, scale, 1e-6, False, scales)
    wanted = reference(x, None, weight, None, scale, 1e-6, False, scales)
    differ = (got[0].view(torch.uint8) != wanted[0].view(torch.uint8)).float().mean()
    assert float(differ) < 0.002


def test_a_row_of_zeros_has_a_scale_and_codes_of_zero() -> None:
    q, scale, _ = norm_quantise(torch.zeros(2, 256))
    assert not q.view(torch.uint8).any()
    assert bool((scale > 0).all())


def test_what_does_not_belong_together_is_refused() -> None:
    x = torch.zeros(2, 8)
    with pytest.raises(TypeError, match=r"not torch\.float64"):
        norm_quantise(x.double())
    with pytest.raises(ValueError, match="the weight has shape"):
        norm_quantise(x, weight=torch.zeros(7))
    with pytest.raises(ValueError, match="the residual"):
        norm_quantise(x, torch.zeros(2, 9))
    with pytest.raises(ValueError, match="a scale is given for the last alone"):
        norm_quantise(x, scale=torch.ones(1))
    with pytest.raises(ValueError, match="a scale is given for the last alone"):
        norm_quantise(x, scales="tensor")
