"""Whether a result agrees: what the reference's own error allows, and where NaN and infinity have to be."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.agreement import disagreement, fault_of
from kernels.operations import operation
from kernels.spec import Maker

WANTED = torch.linspace(-2, 2, 4096, dtype=torch.float64)
PLAIN = WANTED.half()
BEYOND = 1e6
"""More than float16 holds."""


def at(place: int, number: float, of: torch.Tensor = PLAIN) -> torch.Tensor:
    """These numbers, one of them another."""
    found = of.clone()
    found[place] = number
    return found


def test_what_is_rounded_as_the_reference_agrees() -> None:
    assert fault_of(PLAIN.clone(), PLAIN, WANTED) == ""


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (at(7, -1.98), "an element is off"),
        (PLAIN * 1.01, "error"),
        (at(7, math.nan), "NaN in 1 places, not 0"),
        (at(7, math.inf), "infinite where the exact result is not"),
    ],
)
def test_what_is_not_is_named(got: torch.Tensor, words: str) -> None:
    assert words in fault_of(got, PLAIN, WANTED)


def test_an_infinite_result_is_infinite_whatever_the_reference_makes_of_it() -> None:
    """torch's float16 GELU of infinity is NaN on some processors."""
    wanted = at(7, math.inf, WANTED)
    for plain in (at(7, math.inf), at(7, math.nan)):
        assert fault_of(at(7, math.inf), plain, wanted) == ""
        assert fault_of(at(7, -math.inf), plain, wanted) == "other infinities"
        assert fault_of(at(7, math.nan), plain, wanted) == "NaN in 1 places, not 0"


def test_what_the_dtype_cannot_hold_is_infinite_in_it() -> None:
    wanted = at(7, BEYOND, WANTED)
    assert fault_of(at(7, math.inf), at(7, math.inf), wanted) == ""
    assert fault_of(at(7, 1.0), at(7, math.inf), wanted) == "other infinities"


def test_a_result_at_the_border_of_the_dtype_may_be_infinite() -> None:
    """65,510 rounds to the largest number of f16 or, with a rounding before, to infinity."""
    wanted = at(7, 65510.0, WANTED * 100)
    plain = wanted.half()
    assert fault_of(at(7, math.inf, plain), plain, wanted) == ""
    assert fault_of(at(7, -math.inf, plain), plain, wanted) == "infinite where the exact result is not"
    assert fault_of(plain, at(7, math.inf, plain), wanted) == ""
    assert fault_of(at(7, 60000.0, plain), at(7, math.inf, plain), wanted) != ""


def test_a_reference_that_overflows_on_its_way_excuses_nothing() -> None:
    """Where eager is infinite and the exact result is not, its error would allow any."""
    assert fault_of(PLAIN.clone(), at(7, math.inf), WANTED) == ""
    assert "error" in fault_of(PLAIN * 1.01, at(7, math.inf), WANTED)


def test_what_cancels_is_held_to_a_rounding_of_what_was_added() -> None:
    """Of terms of 1 that cancel to nothing, their last digit is left; without the terms any of it is too much."""
    nothing = torch.zeros(64, dtype=torch.float64)
    left, ones = torch.full((64,), 1e-7), torch.ones(64)
    assert fault_of(left, nothing.float(), nothing).startswith("error")
    assert fault_of(left, nothing.float(), nothing, terms=ones) == ""
    assert fault_of(left * 10, nothing.float(), nothing, terms=ones).startswith("error")
    assert fault_of(at(7, 1e-5, left), nothing.float(), nothing, terms=ones) != ""


def test_integers_are_counted() -> None:
    ones = torch.ones(8, dtype=torch.int64)
    assert fault_of(ones, ones, ones.double()) == ""
    assert fault_of(at(3, 2, ones), ones, ones.double()) == "1 of 8 integers differ"


SPREAD = torch.randn(20, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 60
EIGHT = (torch.float8_e4m3fn, torch.float8_e5m2)


def codes(dtype: torch.dtype) -> torch.Tensor:
    """The right ones, as bytes."""
    return SPREAD.clamp(-448, 448).to(dtype).view(torch.uint8).clone()


def fault(found: torch.Tensor, dtype: torch.dtype) -> str:
    right = codes(dtype).view(dtype)
    return fault_of(found.view(dtype), right, right.double())


@pytest.mark.parametrize("dtype", EIGHT)
def test_codes_that_are_cut_instead_of_rounded_are_wrong(dtype: torch.dtype) -> None:
    found = codes(dtype)
    larger = (found.view(dtype).double().abs() > SPREAD.clamp(-448, 448).abs()) & (found & 0x7F > 0)
    assert "by one" in fault(torch.where(larger, found - 1, found), dtype)


@pytest.mark.parametrize("dtype", EIGHT)
def test_a_few_codes_may_be_a_step_off_and_none_two(dtype: torch.dtype) -> None:
    found = codes(dtype)
    found[3, :90] ^= 1  # a neighbour
    assert fault(found, dtype) == ""
    found[4, :20] ^= 1
    assert fault(found, dtype) == "0 of 20000 numbers more than a step off, 110 by one"
    found = codes(dtype)
    found[3, ::7] = torch.where(found[3, ::7] & 0x7F > 2, found[3, ::7] - 2, found[3, ::7] + 2)
    assert "143 of 20000 numbers more than a step off" in fault(found, dtype)
    found = codes(dtype)
    found[0, 0] = 0x7F
    assert fault(found, dtype) == "NaN in 1 places, not 0"


def test_a_code_of_either_reference_is_right() -> None:
    """float64 adds a residual that the kernel's dtype rounds: most codes near a border are then others."""
    plain, exact = codes(EIGHT[0]), codes(EIGHT[0])
    plain[:, ::5] ^= 1
    assert fault_of(plain.view(EIGHT[0]), plain.view(EIGHT[0]), exact.view(EIGHT[0]).double()) == ""


def test_a_rounding_that_one_output_costs_is_allowed_to_that_one_alone() -> None:
    """Gated linear attention's final state, for which keys are rounded once more: not its results."""
    attention = operation("gated_linear_attention")
    case = next(c for c in attention.checks if c.dtype == "f16" and c.get("final") and c.get("size") is None)
    arguments = attention.inputs(case, Maker(device="cpu", seed=1))
    results, state = attention.reference(*arguments)
    assert disagreement(attention, (results, state * (1 + 2e-4)), arguments) == ""
    assert disagreement(attention, (results, state * 1.002), arguments).startswith("output 1")
    assert disagreement(attention, (results * 1.01, state), arguments).startswith("output 0")
