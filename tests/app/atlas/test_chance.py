"""Kernels whose configuration Inductor takes by chance: which they are, and what that does to a prediction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advice.expected_regret import expected_regrets
from app.atlas.chance import DEVIATION, TAIL, chosen_by_chance
from app.atlas.price import Part, Total
from app.estimate.range import Range
from profiler.oracle.kernel_traits import read_traits
from profiler.oracle.traits_model import KernelTraits


@pytest.fixture
def short_rows() -> KernelTraits:
    """Of a text that nothing can be read of, with the traits that tell."""
    return replace(
        read_traits(""), kind="persistent_reduction", sizes=(("x", 786432), ("r0", 16)), mutated=("in_out_ptr0",)
    )


def test_short_rows_that_are_written_over_are_chosen_by_chance(short_rows: KernelTraits) -> None:
    assert chosen_by_chance(short_rows)
    assert not chosen_by_chance(replace(short_rows, mutated=()))
    assert not chosen_by_chance(replace(short_rows, kind="reduction"))
    assert not chosen_by_chance(replace(short_rows, reduction_hint="OUTER"))
    for columns in (4, 256):
        assert not chosen_by_chance(replace(short_rows, sizes=(("x", 4096), ("r0", columns))))


def test_the_rare_slow_outcome_weighs_by_its_share_of_the_time() -> None:
    total = Total((Part("by chance", 30.0, 0.1, tail=TAIL), Part("sure", 10.0, 0.1)))
    assert total.tail == pytest.approx(1 + 0.75 * (TAIL - 1))
    assert Total(()).tail == 1.0
    assert DEVIATION > 0.1


def test_of_two_ways_alike_the_one_without_the_rare_outcome_is_expected_to_cost_less() -> None:
    sure, lottery = Range(18.0, 20.0, 22.0), Range(18.0, 20.0, 22.0, TAIL)
    one, other = expected_regrets((sure, lottery))
    assert other / one == pytest.approx(TAIL, rel=0.01)


def test_a_range_that_is_scaled_keeps_its_rare_outcome() -> None:
    assert Range(1.0, 2.0, 3.0, 1.1).times(2.0) == Range(2.0, 4.0, 6.0, 1.1)
