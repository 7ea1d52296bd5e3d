"""Kernels of the fused region, against those that Inductor's CUDA code has for the same text (torch 2.13, H200)."""

from __future__ import annotations

import pytest

from profiler.region.graph.cost import cost
from profiler.region.graph.cost_model import Cost
from profiler.region.graph.fusion import groups
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.profiler.region import texts


def counted(text: str) -> Cost:
    return cost(lower(parse(text)))


SQUARE = "x: f32[4096, 4096]\n"
WIDE = "x: bf16[64, 262144]\n"
KERNELS = {
    # text -> kernels in Inductor's output code, a library call included
    "x: f32[8192, 4096]\nreturn x.sum(0)\n": 2,
    "x: f32[8192, 4096]\nreturn x.sum()\n": 2,
    "x: f32[8192, 4096]\nreturn x.sum(0), x.sum(1)\n": 2,  # the rows' kernel writes partial column sums
    "x: f32[512, 512]\nreturn x.sum(0), x.sum(1)\n": 3,  # too small for that
    "x: f32[32, 2097152]\nreturn x.pow(2).sum(-1).sqrt()\n": 2,
    "x: f32[64, 4096]\nreturn x.sum(-1).mean()\n": 2,
    "x: f32[4096, 1024]\ny: f32[4096, 1024]\nreturn (softmax(x, -1) * y).sum()\n": 2,
    "x: f32[64, 262144]\nreturn x.argmax(-1)\n": 1,
    SQUARE + "return x - x.mean(0, keepdim=True)\n": 3,
    SQUARE + "return x / x.abs().max()\n": 3,
    SQUARE + "y = gelu(x) * 2\nreturn y - y.mean(0, keepdim=True)\n": 3,
    SQUARE + "y: f32[4096, 4096]\nreturn F.mse_loss(x, y)\n": 2,
    "x: f32[64, 512, 512]\nreturn x / x.sum((1,2), keepdim=True)\n": 3,
    "x: bf16[8192, 4096]\ns = x.abs().amax()\nreturn (x / s).to(torch.float8_e4m3fn)\n": 3,
    "x: f32[32, 64, 56, 56]\nm = x.mean((0,2,3), keepdim=True)\nv = x.var((0,2,3), keepdim=True)\n"
    "return (x - m) * torch.rsqrt(v + 1e-5)\n": 4,
    "x: bf16[8, 256, 64, 64]\nreturn silu(F.group_norm(x, 32))\n": 3,
    WIDE + "return F.layer_norm(x, [262144])\n": 3,
    WIDE + "return F.rms_norm(x, [262144])\n": 3,
    WIDE + "return softmax(x, -1)\n": 3,
    WIDE + "return torch.logsumexp(x.float(), -1)\n": 4,
    "x: bf16[4096, 32000]\nt: i64[4096].below(32000)\nreturn F.cross_entropy(x.float(), t)\n": 2,
    # where splitting begins
    "x: f32[263, 16384]\nreturn x.sum(-1)\n": 2,
    "x: f32[264, 16384]\nreturn x.sum(-1)\n": 1,
    "x: f32[64, 8192]\nreturn x.sum(-1)\n": 1,
    "x: f32[128, 1024]\nreturn x.sum(0)\n": 1,
    "x: f32[256, 1024]\nreturn x.sum(0)\n": 2,
    "x: f32[4096, 8448]\nreturn x.sum(0)\n": 1,
    "x: f32[4096, 8440]\nreturn x.sum(0)\n": 2,
    # rows that are many enough stay whole
    "x: bf16[8192, 8192]\nreturn softmax(x.float(), -1).to(bf16)\n": 1,
    "x: bf16[8192, 4096]\nr: bf16[8192, 4096]\nreturn F.layer_norm(F.dropout(x, 0.1) + r, [4096])\n": 1,
    "x: bf16[4096, 4096]\na = x * 2\nb = gelu(x)\nc = x.sum(-1)\nreturn a, b, c\n": 1,
    "x: f32[4096, 4096]\nv, i = torch.topk(softmax(x, -1), 8)\nreturn v / v.sum(-1, keepdim=True), i\n": 3,
    "x: bf16[4096, 1024]\nw: bf16[1024, 4096]\nreturn (x @ w).sum(-1)\n": 2,
    # a sort of up to 512 elements goes over the rows, or the columns, as a reduction does
    "x: f32[512, 256]\nv, i = torch.sort(x)\nreturn v, x.sum(-1)\n": 1,
    "x: f32[512, 256]\nv, i = torch.sort(x, 0)\nreturn v, x.sum(-1)\n": 2,
    "x: f32[512, 256]\nv, i = torch.sort(softmax(x, -1), -1)\nreturn v.cumsum(-1)\n": 1,
}


@pytest.mark.parametrize("text", KERNELS)
def test_as_many_kernels_as_inductor(text: str) -> None:
    assert counted(text).fused.launches == KERNELS[text]


def test_a_split_reduction_taken_back_reads_its_input_again() -> None:
    region_cost = counted(SQUARE + "return x - x.mean(0, keepdim=True)\n")
    x, row = 4096 * 4096 * 4, 4096 * 4
    assert [k.stage for k in region_cost.kernels] == ["partial", "final", ""]
    assert [(k.bytes_read, k.bytes_written) for k in region_cost.kernels] == [(x, 0), (0, row), (x + row, x)]
    assert region_cost.ideal.bytes_moved == 2 * x


def test_arithmetic_in_front_of_a_split_reduction_is_computed_again_not_kept() -> None:
    region_cost = counted(SQUARE + "y = gelu(x) * 2\nreturn y - y.mean(0, keepdim=True)\n")
    assert region_cost.fused.bytes_written == 4096 * 4096 * 4 + 4096 * 4
    kept = counted(SQUARE + "y = gelu(x) * 2\nreturn y - y.mean(0, keepdim=True), y\n")
    assert kept.fused.bytes_written == 2 * 4096 * 4096 * 4 + 4096 * 4


def test_a_wide_norm_reads_twice_and_counts_its_arithmetic_once() -> None:
    region_cost = counted("x: bf16[64, 262144]\nr: bf16[64, 262144]\nreturn F.layer_norm(x + r, [262144])\n")
    x = 64 * 262144 * 2
    assert [k.bytes_read for k in region_cost.kernels] == [2 * x, 0, 2 * x]
    norm = next(o for o in region_cost.operations if o.label == "layer_norm")
    add = next(o for o in region_cost.operations if o.label == "add")
    assert region_cost.fused.flops == norm.flops + 2 * add.flops


@pytest.mark.parametrize("text", [*KERNELS, texts.LAYER_NORM, texts.ADAM, texts.ATTENTION])
def test_kernels_come_in_an_order_in_which_they_can_run(text: str) -> None:
    graph = lower(parse(text))
    found = groups(graph)
    done: set[str] = set()
    owners = {n for g in found for n in (g.owned or g.operations)}
    for group in found:
        for name in group.operations:
            if name in group.summed:
                continue
            assert all(s in done or s in group.operations for s in graph.operation(name).inputs if s in owners), (
                group.label
            )
        done |= set(group.owned or group.operations)
    for name in {n for g in found for n in g.summed}:
        stages = [g.stage for g in found if name in g.summed or (g.stage == "partial" and name in g.operations)]
        assert stages[0] == "partial"
        assert stages[-1] == "final"
