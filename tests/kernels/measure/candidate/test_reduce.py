"""Smaller sizes must leave the program the same program."""

from __future__ import annotations

import pytest

from kernels.measure.candidate.reduce import SMALL, reduced, with_sizes
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse, to_text

ATTENTION = """x: bf16[2, 512, 4096]
w: bf16[12288, 4096]
qkv = F.linear(x, w)
q, k, v = qkv.chunk(3, -1)
q = q.view(2, 512, 32, 128).transpose(1, 2)
k = k.view(2, 512, 32, 128).transpose(1, 2)
v = v.view(2, 512, 32, 128).transpose(1, 2)
o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
return o.transpose(1, 2).reshape(2, 512, 4096)"""
ROPE = """x: bf16[4, 32, 2048, 128]
cos: bf16[2048, 128]
sin: bf16[2048, 128]
a = x[..., :64]
b = x[..., 64:]
r = cat([-b, a], -1)
return x * cos + r * sin"""
CHAIN = """x: bf16[8192, 4096]
w: bf16[4096, 16384]
b: bf16[16384]
return gelu(x @ w + b)"""
EMBEDDING = "t: bf16[128256, 4096]\ni: i64[8192].below(128256)\nreturn F.embedding(i, t)"


def elements(region):
    total = 0
    for item in region.inputs:
        count = 1
        for size in item.shape:
            count *= size
        total += count
    return total


@pytest.mark.parametrize("text", [ATTENTION, ROPE, CHAIN, EMBEDDING], ids=["attention", "rope", "chain", "embedding"])
def test_the_same_operations_remain_at_a_hundredth_of_the_size(text):
    region = parse(text)
    small = reduced(region)
    assert [o.target for o in lower(small).operations] == [o.target for o in lower(region).operations]
    assert elements(small) < elements(region) / 100
    assert elements(small) < 1_000_000


def test_coupled_sizes_stay_coupled():
    small = reduced(parse(ATTENTION))
    heads, width = (int(n) for n in small.statements[2].split("view(")[1].split(")")[0].split(",")[2:])
    assert small.inputs[0].shape[-1] == heads * width
    assert small.inputs[1].shape == (3 * heads * width, heads * width)


def test_halves_stay_halves():
    small = reduced(parse(ROPE))
    half = int(small.statements[0].split(":")[1].rstrip("]"))
    assert small.inputs[0].shape[-1] == 2 * half


def test_indices_stay_inside_their_table():
    small = reduced(parse(EMBEDDING))
    assert small.inputs[1].below <= small.inputs[0].shape[0]


def test_odd_sizes_are_taken_where_nothing_forbids_them():
    small = reduced(parse(CHAIN))
    sizes = {s for i in small.inputs for s in i.shape}
    assert max(sizes) <= SMALL
    assert any(s % 2 for s in sizes)  # tails of every block size


def test_symbols_are_bound_and_layouts_kept():
    text = "N: sizes[8192, 64]\nx: f32[N, 4096].strides(1, 8192)\nreturn softmax(x, -1)"
    small = reduced(parse(text), {"N": 8192})
    assert small.symbols == ()
    (item,) = small.inputs
    assert item.strides == (1, item.shape[0])


def test_small_regions_stay_as_they_are():
    region = parse("x: f32[8, 40]\nreturn x * 2")
    assert reduced(region) == region


def test_types_are_exchanged_everywhere():
    region = parse("x: bf16[8]\ny = x.float().to(bf16)\nz = y.to(torch.bfloat16) + x.bfloat16()\nreturn z")
    assert "bf" not in to_text(with_sizes(region, {}, {}, {"bf16": "f32"}))
