"""Roundings in a wide type are those of the narrow types, and by chance they are right on average."""

from __future__ import annotations

import pytest
import torch

from kernels.measure.candidate.rounding import Rounding

NARROW = [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]


def numbers(scale: float) -> torch.Tensor:
    return torch.randn(4000, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * scale


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-7])
def test_to_the_nearest_is_what_torch_casts_to(dtype: torch.dtype, scale: float) -> None:
    """1e-7 is below the least normal number of float16."""
    value = numbers(scale)
    value = value.float().double()  # torch casts to 8 bits by way of float32
    assert torch.equal(Rounding().to(value, dtype), value.to(dtype).double())


@pytest.mark.parametrize("dtype", NARROW)
def test_by_chance_it_is_one_of_the_two_neighbours_and_the_value_on_average(dtype: torch.dtype) -> None:
    value = numbers(1.0)[:100]
    rounding = Rounding(torch.Generator().manual_seed(2))
    made = torch.stack([rounding.to(value, dtype) for _ in range(400)])
    assert torch.equal(made, made.to(dtype).double())
    assert all(len(column.unique()) <= 2 for column in made.T)
    info = torch.finfo(dtype)
    step = info.eps * value.abs().clamp_min(info.smallest_normal)
    assert ((made.mean(0) - value).abs() <= 5 * step / 400**0.5).all()


@pytest.mark.parametrize("dtype", NARROW)
def test_what_the_type_holds_stays_and_so_do_nan_and_infinities(dtype: torch.dtype) -> None:
    held = numbers(1.0).to(dtype).double()
    assert torch.equal(Rounding(torch.Generator().manual_seed(3)).to(held, dtype), held)
    odd = torch.tensor([float("inf"), -float("inf"), 0.0], dtype=torch.float64)
    for rounding in (Rounding(), Rounding(torch.Generator().manual_seed(4))):
        assert torch.equal(rounding.to(odd, dtype), odd)
        assert rounding.to(torch.full((3,), float("nan"), dtype=torch.float64), dtype).isnan().all()


def test_jitter_has_the_size_that_was_asked_for() -> None:
    value = numbers(1.0)
    moved = Rounding(torch.Generator().manual_seed(5)).jitter(value, 1e-6)
    assert ((moved - value) / value).square().mean().sqrt().item() == pytest.approx(1e-6, rel=0.05)
    assert torch.equal(Rounding().jitter(value, 1e-6), value)
    masked = torch.full((64,), -float("inf"), dtype=torch.float64)
    assert torch.equal(Rounding(torch.Generator().manual_seed(6)).jitter(masked, 1e-6), masked), (
        "infinity less infinity"
    )


def test_float32_serves_as_the_wide_type_of_16_bits() -> None:
    value = numbers(1.0).float()
    assert torch.equal(Rounding().to(value, torch.bfloat16), value.bfloat16().float())
    assert torch.equal(Rounding().to(value, torch.float32), value)
