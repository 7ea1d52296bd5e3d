"""The float64 reference: casts in the text must not round it, and special outputs are found."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernels.measure.candidate import inputs
from kernels.measure.candidate.random_values import random_outputs
from kernels.measure.candidate.reference import NoReferenceError, reference, selections
from profiler.region.language.program import program
from profiler.region.language.text import parse


def run(text, seed=0):
    region = parse(text)
    built = program(region)
    values = inputs.input_set(region, region.bindings[0], "cpu", seed)
    needs = [i.requires_grad for i in region.inputs]
    upstream = [torch.ones(tuple(o.shape)) if o.dtype.is_floating_point else None for o in built.outputs]
    return values, reference(built.module, values, needs, upstream), built


def test_casts_in_the_text_do_not_round_the_reference():
    values, expected, _ = run(
        "x: bf16[8, 64]\nw: bf16[64]\nh = x.float()\nn = (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))\n"
        "y = n.to(bf16) * w\nz = softmax(x, -1, dtype=torch.float32).half()\nreturn y, z"
    )
    x, w = (v.double() for v in values)
    exact = x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * w
    assert (expected.outputs[0] - exact).abs().max() < 1e-14
    assert (expected.outputs[1] - x.softmax(-1)).abs().max() < 1e-15
    assert expected.outputs[0].dtype == torch.float64


def test_gradients_equal_a_hand_written_backward():
    values, expected, _ = run("x: f32[16, 32].requires_grad\nw: f32[32].requires_grad\nreturn tanh(x) * w")
    x, w = (v.double() for v in values)
    t = x.tanh()
    assert (expected.outputs[1] - (1 - t * t) * w).abs().max() < 1e-14
    assert (expected.outputs[2] - t.sum(0)).abs().max() < 1e-13


def test_inputs_are_not_changed_by_a_program_that_writes_into_them():
    region = parse("x: f32[8]\nx += 1\nreturn x * 2")
    built = program(region)
    (x,) = values = inputs.input_set(region, {}, "cpu", 0)
    before = x.clone()
    expected = reference(built.module, values, [False], [None])
    assert torch.equal(x, before)
    assert (expected.outputs[0] - (before.double() + 1) * 2).abs().max() < 1e-15


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("v, i = torch.topk(x, 4, dim=-1)\nreturn v, i", 1),
        ("v, i = torch.sort(x, dim=-1)\nreturn v, i", 1),
        ("i = torch.argmax(x, dim=-1)\nreturn i", 0),
        ("v, i = torch.max(x, dim=1)\nreturn v, i", 1),
    ],
)
def test_index_outputs_are_found_with_what_they_select_from(statement, number):
    module = program(parse(f"x: f32[8, 32]\n{statement}")).module
    source, dim, _ = selections(module)[number]
    assert source.name == "x"
    assert dim % 2 == 1


def test_dropout_taints_what_depends_on_it_and_nothing_else():
    module = program(parse("x: f32[8, 32]\ny = F.dropout(gelu(x), 0.1)\nreturn y * 2, x + 1")).module
    assert random_outputs(module) == frozenset({0})
    still = program(parse("x: f32[8, 32]\nreturn F.dropout(x, 0.1, False)")).module
    assert random_outputs(still) == frozenset()


def test_a_scaled_product_in_fp8_has_a_reference():
    region = parse(
        "a: f8e4m3[16, 32]\nb: f8e4m3[32, 16].strides(1, 32)\ns: f32[()]\n"
        "return _scaled_mm(a, b, s, s, out_dtype=torch.bfloat16)"
    )
    built = program(region)
    values = inputs.input_set(region, {}, "cpu", 0)
    expected = reference(built.module, values, [False] * 3, [None])
    a, b, s = (v.double() for v in values)
    assert (expected.outputs[0] - a @ b * s * s).abs().max() < 1e-12


def test_what_looks_at_bits_has_no_reference():
    built = program(parse("x: f32[8, 8]\nreturn (x.view(torch.int32) & 255).float()"))
    with pytest.raises(NoReferenceError, match="bits"):
        reference(built.module, [torch.ones(8, 8)], [False], [None])


def test_attention_reference_equals_the_formula():
    values, expected, _ = run("q: f16[2, 16, 8]\nk: f16[2, 16, 8]\nv: f16[2, 16, 8]\n"
                              "return scaled_dot_product_attention(q, k, v)")  # fmt: skip
    q, k, v = (t.double() for t in values)
    assert (expected.outputs[0] - F.softmax(q @ k.mT / 8**0.5, -1) @ v).abs().max() < 1e-12
