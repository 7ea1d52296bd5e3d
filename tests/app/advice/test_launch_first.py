"""No kernel is to be written where one is generated: of one that nobody wrote the prediction has no known error."""

from __future__ import annotations

import pytest

from app.accuracy.corpus.programs import DEVELOPMENT, FIT, load_programs
from app.advice.model import Advice
from app.advice.options import LAUNCH_FIRST
from tests.app.advice.test_own_in_training import advice_on

UNPROVEN_ONCE = ("made-matmul-0007", "made-attention-0025")
"""Advised a kernel to write at 8 and 10 times as fast, though the generator takes them."""


def advice_of(program: str) -> Advice:
    (text,) = (p.text for p in load_programs(FIT, DEVELOPMENT) if p.name == program)
    return advice_on(text)


@pytest.mark.parametrize("program", UNPROVEN_ONCE)
def test_a_region_that_is_generated_is_never_advised_a_kernel_to_write(program: str) -> None:
    advice = advice_of(program)
    assert (advice.tool, advice.mode) != ("triton", "custom")
    named = {a.candidate: a for a in advice.alternatives}
    assert named["triton:generated"].admitted
    assert not named["triton:custom"].admitted
    assert LAUNCH_FIRST in named["triton:custom"].note
    assert named["triton:custom"].time_us is not None, "what it could save stays to be seen"


def test_a_region_that_is_not_generated_may_be_advised_a_kernel_to_write() -> None:
    advice = advice_of("made-convolution-0001")
    assert "triton:generated" not in {a.candidate for a in advice.alternatives}
    assert next(a for a in advice.alternatives if a.candidate == "triton:custom").admitted
