"""Errors that are the inputs' doing: told from a candidate's own, and never enough to let a wrong result through."""

from __future__ import annotations

import torch

from kernels.measure.candidate.inputs import input_set
from kernels.measure.candidate.worker import Worker
from kernels.measure.judge import judge
from kernels.measure.messages import Case, OutputError
from profiler.region.language.text import parse

ADAM = """p: f32[64, 64]
g: f32[64, 64]
m: f32[64, 64]
v: f32[64, 64]
m2 = m * 0.9 + g * 0.1
v2 = v * 0.999 + g * g * 0.001
p2 = p - 1e-3 * m2 / (v2.sqrt() + 1e-8)
return p2, m2, v2
"""


class Silent:
    def send(self, message):
        pass


def case(*outputs, distribution="normal"):
    return Case(distribution, "float64", list(outputs))


def adam_errors(change):
    """The check's figures for Adam's step in float32, computed by `change`, on inputs of which half the v are < 0."""
    region = parse(ADAM)
    worker = Worker(Silent())
    task = worker._build(lambda *_: change, "any", region, {})
    values = input_set(region, {}, "cpu", 3)
    _, g, _, v = values
    v[0] = -(g[0] * g[0] * 0.001) / 0.999 * (1 - 1e-4)  # what is left of v2 there has four digits less
    seen = worker.checker.reference(task, values)
    outputs = change(*values)
    return worker.checker.against(seen, outputs)


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


POLE = "x: f32[64, 64]\nreturn 1 / (x - 0.5)\n"


def test_one_ill_conditioned_element_excuses_no_other():
    """A pole among ordinary numbers: an 8-bit result everywhere else is found by the room of each element."""
    region = parse(POLE)
    worker = Worker(Silent())
    task = worker._build(lambda *_: lambda x: (1 / (x - 0.5),), "any", region, {})
    (x,) = values = input_set(region, {}, "cpu", 3)
    x[0, 0] = 0.5 + 2e-6
    seen = worker.checker.reference(task, values)
    exact = 1 / (x - 0.5)
    coarse = torch.where((x - 0.5).abs() < 1e-3, exact, exact.to(torch.float8_e4m3fn).float())
    other = case(*worker.checker.against(seen, (exact,)))
    for result, right in ((exact, True), (coarse, False)):
        mine = case(*worker.checker.against(seen, (result,)))
        assert judge([mine], [other]).ok is right


def test_adam_next_to_a_zero_of_its_variance_is_held_to_what_float32_can_give():
    text, fused, wrong = map(adam_errors, (by_text, with_fused_multiply_add, wrong_beta))
    assert text[0].error > 100 * text[1].error  # the quotient next to the zero
    assert max(text[0].in_room.error, fused[0].in_room.error) < 1 < wrong[0].in_room.error
    other = case(*text)
    for found, right in ((fused, True), (wrong, False)):
        mine = case(*found)
        assert judge([mine], [other]).ok is right
        assert judge([mine], None).ok is right


def random_output(mean, ref_mean):
    return OutputError("random", "bf16", 1_000_000, 0, 0, 0, (mean, 1.0, 0.0, ref_mean, 1.0, 0.0))


def test_a_random_output_of_other_inputs_than_eagers_is_held_to_its_own_mean():
    eager = case(random_output(0.3, 0.3), distribution="after timing")
    assert judge([case(random_output(-0.2, -0.2), distribution="after timing")], [eager]).ok
    assert not judge([case(random_output(0.3, -0.2), distribution="after timing")], [eager]).ok
    assert not judge([case(random_output(-0.2, -0.2))], [case(random_output(0.3, 0.3))]).ok
