"""Calls that lay out their operands anew: a strided operand costs a copy, a contiguous one nothing."""

from __future__ import annotations

import pytest

from app.analysis.analyze import shape_of
from app.estimate.call_time import FLEX, FLEX_OVER_RATES, SDPA, by_hand_factor, library_us, own_us
from app.estimate.facts import ShapeFacts
from app.estimate.layout_copies import layout_copies_us
from app.estimate.rates import FITTED, WITHOUT_ATLAS
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.model import Binding
from tests.app.advice.cases import H200

NORM = "x: bf16[64, 196, 768]{}\nw: bf16[768]\nb: bf16[768]\nreturn layer_norm(x, [768], w, b)\n"
TRANSPOSED = ".strides(150528, 1, 196)"
GATE = "gate: bf16[16384, 768]{0}\nup: bf16[16384, 768]{0}\nreturn silu(gate) * up\n"


def shape(text: str) -> ShapeFacts:
    return shape_of(lower(parse(text)), Binding())


def test_a_transposed_operand_is_copied_first() -> None:
    """At [64, 196, 768] with the middle axis innermost liger_kernel's took 138 µs in a program that is 41 without."""
    there, lies_well = shape(NORM.format(TRANSPOSED)), shape(NORM.format(""))
    assert layout_copies_us(lies_well, H200, "liger_kernel.layer_norm", FITTED) == 0.0
    copied = layout_copies_us(there, H200, "liger_kernel.layer_norm", FITTED)
    moved_us = 2 * 1e6 * 64 * 196 * 768 * 2 / H200.copy_rate
    assert 2 * moved_us < copied < 15 * moved_us
    longer = library_us(there, H200, "liger_kernel.layer_norm", FITTED)
    assert longer - library_us(lies_well, H200, "liger_kernel.layer_norm", FITTED) == pytest.approx(copied, rel=0.1)


def test_each_of_two_strided_operands_is_copied_once() -> None:
    both = layout_copies_us(shape(GATE.format(".strides(1536, 1)")), H200, "liger_kernel.swiglu", FITTED)
    text = GATE.format(".strides(1536, 1)").replace("up: bf16[16384, 768].strides(1536, 1)", "up: bf16[16384, 768]")
    one = layout_copies_us(shape(text), H200, "liger_kernel.swiglu", FITTED)
    assert both == pytest.approx(2 * one) and one > 5


def test_this_projects_row_kernels_take_rows_with_gaps_as_they_lie() -> None:
    """liger_kernel copies what is not contiguous; `rows_of` only what has no neighbours along the last axis."""
    padded = shape(NORM.format(".strides(301056, 1536, 1)"))
    transposed = shape(NORM.format(TRANSPOSED))
    assert layout_copies_us(padded, H200, "liger_kernel.layer_norm", FITTED) > 0
    assert layout_copies_us(padded, H200, "triton:layer_norm", FITTED) == 0.0
    assert layout_copies_us(transposed, H200, "triton:layer_norm", FITTED) > 0
    least = own_us(shape(NORM.format("")), H200, "triton:layer_norm", FITTED)
    assert own_us(transposed, H200, "triton:layer_norm", FITTED) > 2 * least


def test_calls_of_torch_and_the_rates_alone_know_no_copies() -> None:
    there = shape(NORM.format(TRANSPOSED))
    assert layout_copies_us(there, H200, "torch.nn.functional.layer_norm", FITTED) == 0.0
    assert layout_copies_us(there, H200, "liger_kernel.layer_norm", WITHOUT_ATLAS) == 0.0


BY_HAND = """q: {2}[{0}, {1}, 64]
k: {2}[{0}, {1}, 64]
v: {2}[{0}, {1}, 64]
p = softmax(q @ k.transpose(-2, -1) * 0.125, -1)
return p @ v
"""


def test_attention_by_hand_of_short_rows_and_in_f32_takes_longer_than_rates_of_long_ones_say() -> None:
    long, short, wide = (by_hand_factor(shape(BY_HAND.format(*s)), H200, FITTED) for s in (
        (64, 4096, "bf16"), (128, 96, "bf16"), (96, 512, "f32"),
    ))  # fmt: skip
    assert long == 1.0  # the tables have it
    assert short > 1.1 and wide > 1.1
    assert by_hand_factor(shape("x: bf16[64, 512, 512]\nreturn softmax(x @ x, -1)\n"), H200, FITTED) == 1.0
    assert by_hand_factor(shape(BY_HAND.format(128, 96, "bf16")), H200, WITHOUT_ATLAS) == 1.0


def test_flexattention_on_few_queries_takes_a_multiple_and_on_many_none() -> None:
    few, many = shape(BY_HAND.format(384, 512, "bf16")), shape(BY_HAND.format(64, 4096, "bf16"))
    for where, factor in ((few, FLEX_OVER_RATES), (many, 1.0)):
        flex, sdpa = (library_us(where, H200, call, FITTED) for call in (FLEX, SDPA))
        plain = [library_us(where, H200, call, WITHOUT_ATLAS) for call in (FLEX, SDPA)]
        assert flex / sdpa == pytest.approx(factor * plain[0] / plain[1], rel=0.15)
