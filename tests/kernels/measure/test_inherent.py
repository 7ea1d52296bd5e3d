"""Errors that are the inputs' doing: told from a candidate's own, and never enough to let a wrong result through."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch

from kernels.measure.correctness import OutputError
from kernels.measure.inputs import input_set, moved
from kernels.measure.judge import judge
from kernels.measure.worker import Worker
from profiler.region.text import parse

ADAM = """p: f32[64, 64]
g: f32[64, 64]
m: f32[64, 64]
v: f32[64, 64]
m2 = m * 0.9 + g * 0.1
v2 = v * 0.999 + g * g * 0.001
p2 = p - 1e-3 * m2 / (v2.sqrt() + 1e-8)
return p2, m2, v2
"""
EXACT = OutputError("float", "f32", 4096, 1e-8, 1e-7, 0)
OFF = replace(EXACT, error=5e-6)


class Silent:
    def send(self, message):
        pass


def case(output, distribution="normal"):
    return {"distribution": distribution, "precision": "float64", "outputs": [asdict(output)]}


def test_an_error_that_the_inputs_excuse_passes_and_the_same_without_excuse_does_not():
    assert not judge([case(OFF)], [case(EXACT)]).ok
    assert judge([case(replace(OFF, inherent=(4e-6, 1e-4, 0)))], [case(EXACT)]).ok
    assert not judge([case(replace(OFF, error=5e-4, inherent=(4e-6, 1e-4, 0)))], [case(EXACT)]).ok


@pytest.mark.parametrize("inherent", [(0.5, 1.0, 0), (float("inf"), float("inf"), 0), (float("nan"), 0.0, 0)])
def test_inputs_that_would_excuse_anything_excuse_nothing(inherent):
    assert not judge([case(replace(OFF, inherent=inherent))], [case(EXACT)]).ok


def test_moved_inputs_are_a_unit_in_the_last_place_of_float32_apart_and_integers_stay():
    values = [torch.randn(1000), torch.arange(5), torch.randn(1000, dtype=torch.bfloat16)]
    found = moved(values)
    for value, other in ((values[0], found[0]), (values[2], found[2])):
        apart = ((other - value.double()) / value.double()).abs()
        assert other.dtype == torch.float64
        assert torch.allclose(apart, torch.full_like(apart, 2**-23), rtol=1e-6)
    assert torch.equal(found[1], values[1])


def adam_errors(change):
    """The check's figures for Adam's step in float32, computed by `change`, on inputs of which half the v are < 0."""
    region = parse(ADAM)
    worker = Worker(Silent())
    task = worker._build(lambda *_: change, "any", region, {})
    values = input_set(region, {}, "cpu", 3)
    _, g, _, v = values
    v[0] = -(g[0] * g[0] * 0.001) / 0.999 * (1 - 1e-4)  # what is left of v2 there has four digits less
    expected, _ = worker._reference(task, values)
    return worker._against(task, change(*values), expected, values)


def by_text(p, g, m, v):
    m2 = m * 0.9 + g * 0.1
    v2 = v * 0.999 + g * g * 0.001
    return p - 1e-3 * m2 / (v2.sqrt() + 1e-8), m2, v2


def with_fused_multiply_add(p, g, m, v):
    """One rounding less in each sum, as a compiler has it."""
    m2 = (m.double() * 0.9 + (g * 0.1).double()).float()
    v2 = (v.double() * 0.999 + (g * g * 0.001).double()).float()
    return p - 1e-3 * m2 / (v2.sqrt() + 1e-8), m2, v2


def wrong_beta(p, g, m, v):
    m2, v2 = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.00102
    return p - 1e-3 * m2 / (v2.sqrt() + 1e-8), m2, v2


def test_adam_beside_a_zero_of_its_variance_is_held_to_what_float32_can_give():
    text, fused, wrong = (adam_errors(change) for change in (by_text, with_fused_multiply_add, wrong_beta))
    assert text[0].error > 5 * text[1].error  # the quotient beside the zero
    beside = {"distribution": "normal", "precision": "float64", "outputs": [asdict(e) for e in text]}
    for found, right in ((fused, True), (wrong, False)):
        mine = {"distribution": "normal", "precision": "float64", "outputs": [asdict(e) for e in found]}
        assert judge([mine], [beside]).ok is right
        assert judge([mine], None).ok is right


def random_output(mean, ref_mean):
    return OutputError("random", "bf16", 1_000_000, 0, 0, 0, (mean, 1.0, 0.0, ref_mean, 1.0, 0.0))


def test_a_random_output_of_other_inputs_than_eagers_is_held_to_its_own_mean():
    eager = case(random_output(0.3, 0.3), "after timing")
    assert judge([case(random_output(-0.2, -0.2), "after timing")], [eager]).ok
    assert not judge([case(random_output(0.3, -0.2), "after timing")], [eager]).ok
    assert not judge([case(random_output(-0.2, -0.2))], [case(random_output(0.3, 0.3))]).ok
