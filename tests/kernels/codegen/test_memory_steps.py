"""Steps in memory of what a kernel makes on its way: the operand's, through copies, casts and views."""

from __future__ import annotations

import pytest
import torch

from kernels.codegen.generated import generate
from kernels.codegen.graph.prepare import prepare
from kernels.codegen.memory_steps import memory_steps, reshaped
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

GROUPS = "x: f16[32, 64, 56, 56].channels_last\nw: f16[64]\nb: f16[64]\nreturn F.group_norm(x, 8, w, b)\n"
INSTANCES = "x: f16[32, 64, 56, 56].channels_last\nreturn F.instance_norm(x)\n"


@pytest.mark.parametrize(
    ("shape", "steps", "new"),
    [
        ((32, 64, 56, 56), (200704, 1, 3584, 64), (32, 8, 8, 3136)),
        ((6, 4), (4, 1), (2, 3, 2, 2)),
        ((4, 6), (1, 4), (4, 2, 3)),
        ((3, 1, 5), (5, 7, 1), (15,)),
        ((8,), (3,), (1, 2, 4, 1)),
    ],
)
def test_steps_of_a_view_are_its_strides(shape: tuple[int, ...], steps: tuple[int, ...], new: tuple[int, ...]) -> None:
    viewed = torch.empty_strided(shape, steps).view(new)
    wanted = [(n, s) for n, s in zip(new, viewed.stride(), strict=True) if n != 1]
    assert [(n, s) for n, s in zip(new, reshaped(shape, steps, new), strict=True) if n != 1] == wanted


def test_a_dimension_that_runs_through_several_has_its_first_step() -> None:
    assert reshaped((32, 64, 56, 56), (200704, 1, 3584, 64), (1, 2048, 56, 56))[1:] == (1, 3584, 64)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x: f32[4, 6].strides(1, 4)\ny = x.contiguous().view(24)[:24] + 1\nreturn y.sum()\n", (1,)),
        ("x: f32[4, 6].strides(1, 4)\nreturn (x.contiguous() * 2).bfloat16().sum(0)\n", (1, 4)),
        ("x: f32[4, 6]\nreturn (x.transpose(0, 1).contiguous() * 2).sum(0)\n", (1, 6)),
        ("x: f32[5, 5]\nreturn (x.transpose(0, 1).contiguous() * 2).sum(0)\n", (1, 5)),
        ("x: f32[5, 5, 5]\nreturn (x.permute(2, 0, 1).contiguous() * 2).sum(0)\n", (1, 25, 5)),
        ("x: f32[6]\nreturn (x.expand(4, 6).contiguous() * 2).sum(0)\n", (0, 1)),
    ],
)
def test_what_a_sum_reads_lies_as_the_input_lies(text: str, wanted: tuple[int, ...]) -> None:
    nodes = prepare(lower(parse(text))).module.graph.nodes
    (summed,) = [n for n in nodes if "sum" in str(n.target)]
    assert memory_steps(summed.args[0]) == wanted


def test_a_group_norm_of_channels_last_reads_a_groups_channels_together() -> None:
    (statistics, *_) = generate(lower(parse(GROUPS))).sources
    (line,) = [line for line in statistics.text.splitlines() if "tl.load(x_ptr" in line]
    assert statistics.outputs[0].shape == (32, 8, 4)
    assert "col % 8" in statistics.text and "+ d4" in line  # a column's neighbour is memory's


def test_an_instance_norm_of_channels_last_walks_channels_side_by_side_in_parts() -> None:
    (statistics, *_) = generate(lower(parse(INSTANCES))).sources
    assert statistics.outputs[0].shape == (2048, 8)
    assert "row % 64" in statistics.text
    assert all("ROWS" in dict(constants) for constants, _ in statistics.constants)
