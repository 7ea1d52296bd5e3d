"""A trace's statements folded into fewer lines compute what they did, and read as a person's."""

from __future__ import annotations

import pytest
import torch

from profiler.region.language.program import program
from profiler.region.language.text import parse, to_text
from profiler.region.mining.inline import LONGEST, fold
from tests.profiler.region.language.test_functions import NAMES, inputs_of, small

RMS_NORM = """\
x: f32[4, 8]
w: f32[8]
z = x.to(f32)
z2 = z.pow(2)
mean = z2.mean(-1, keepdim=True)
z2 = mean + 1e-06
inv = rsqrt(z2)
z = z * inv
z = z.to(bf16)
y = w * z
return y
"""

FOLDED = {
    RMS_NORM: """\
x: f32[4, 8]
w: f32[8]
z = x.to(f32)
mean = z.pow(2).mean(-1, keepdim=True)
inv = rsqrt(mean + 1e-06)
y = w * (z * inv).to(bf16)
return y
""",
    # a value read twice stays; an input's new meaning goes where it is read
    "x: f32[4, 8]\nw: f32[4, 8]\nw = w.T\nz = x @ w\nz2 = relu(z)\ny = z * z2\nreturn y\n": """\
x: f32[4, 8]
w: f32[4, 8]
z = x @ w.T
y = z * relu(z)
return y
""",
    # the input is read again after it got a new meaning: two values of one name stay apart
    "x: f32[4, 4]\nz = x + 1\nx = x * 2\nz2 = x * z\nx = x - z2\nreturn x, z2\n": """\
x: f32[4, 4]
x2 = x * 2
z = x2 * (x + 1)
x = x2 - z
return x, z
""",
    # brackets where the grammar needs them
    "x: f32[4, 4]\nz = x - 1\nz2 = -z\nz2 = z2 ** 2\nz2 = x - z2\ny = z2 @ x\nreturn y\n": """\
x: f32[4, 4]
y = (x - (-(x - 1)) ** 2) @ x
return y
""",
    # in place: nothing moves
    "x: f32[4]\nz = x + 1\nx.add_(1.0)\ny = z * 2\nreturn y\n": (
        "x: f32[4]\nz = x + 1\nx.add_(1.0)\ny = z * 2\nreturn y\n"
    ),
    "x: f32[4]\nz = x.add_(1.0)\nz2 = x * 2\ny = z2 + z\nreturn y\n": (
        "x: f32[4]\nz = x.add_(1.0)\nz2 = x * 2\ny = z2 + z\nreturn y\n"
    ),
}


@pytest.mark.parametrize("text", FOLDED)
def test_statements_are_folded_as_a_person_writes_them(text: str) -> None:
    assert fold(text) == FOLDED[text]
    parse(FOLDED[text])


@pytest.mark.parametrize("text", FOLDED)
def test_folded_text_computes_the_same(text: str) -> None:
    torch.manual_seed(0)
    region = parse(text)
    inputs = [torch.rand([int(s) for s in i.shape]) for i in region.inputs]
    want = program(region).module(*[x.clone() for x in inputs])
    got = program(parse(fold(text))).module(*inputs)
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_folded_regions_compute_the_same(name: str) -> None:
    region = small(name)
    folded = fold(to_text(region))
    before = to_text(region).splitlines()
    after = folded.splitlines()
    assert len(after) <= len(before)
    assert all(len(line) <= max(LONGEST + 3, *map(len, before)) for line in after)
    torch.manual_seed(0)
    inputs = inputs_of(region)
    torch.manual_seed(1)
    want = program(region).module(*inputs)
    torch.manual_seed(1)
    got = program(parse(folded)).module(*inputs)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.float(), w.float(), rtol=0, atol=0)
