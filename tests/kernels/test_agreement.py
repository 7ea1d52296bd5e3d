"""Whether a result agrees: what the reference's own error allows, and where NaN and infinity have to be."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.agreement import fault_of

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


def test_integers_are_counted() -> None:
    ones = torch.ones(8, dtype=torch.int64)
    assert fault_of(ones, ones, ones.double()) == ""
    assert fault_of(at(3, 2, ones), ones, ones.double()) == "1 of 8 integers differ"
