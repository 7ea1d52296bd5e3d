"""Strided inputs written as they lie in memory: the views must lead back to the same sizes and strides."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.mining.mine import mine
from profiler.region.mining.symbolic_sizes import STRIDES, Sized, merge
from profiler.trace.read.reader import read_trace
from tests.profiler.region.recording import record


def drawn(draw: random.Random) -> torch.Tensor:
    rank = draw.randint(1, 4)
    x = torch.empty([draw.choice((1, 2, 3, 5)) for _ in range(rank)]).permute(draw.sample(range(rank), rank))
    if draw.random() < 0.4:
        x = x[..., : max(1, x.shape[-1] - 1)]
    return x.unsqueeze(0).expand(3, *x.shape) if draw.random() < 0.4 else x


@pytest.mark.parametrize("seed", range(200))
def test_a_layout_survives_being_written_as_memory(seed: int) -> None:
    """Two regions that differ in another input force the rewriting; its lines are run here."""
    x = drawn(random.Random(seed))
    sizes, strides = ", ".join(map(str, x.shape)), ", ".join(map(str, x.stride()))
    line = f"x: f32[{sizes}].strides({strides})\n"
    items = [Sized(f"{line}w: f32[{n}]\ny = x + 1\nreturn y\n", "pointwise", (), (n,)) for n in (3, 4)]
    merged = merge(items)
    for one in merged:
        declared, *rest = (one.text or "").replace("N: sizes[3, 4]\n", "").splitlines()
        if STRIDES.match(declared):
            assert not any(r.startswith("x = ") for r in rest)  # rows with gaps inside stay as they are
            continue
        views = [r for r in rest if r.startswith("x = ")]
        built = program(parse("\n".join([declared, *views, "y = x.view(x.shape)", "return y"]) + "\n"))
        (y,) = built.module(torch.empty(tuple(built.inputs[0].shape)))
        assert y.shape == x.shape
        assert all(a == b for a, b, n in zip(y.stride(), x.stride(), x.shape, strict=True) if n > 1)


def test_rows_of_longer_tensors_are_one_region(tmp_path: Path) -> None:
    inputs = [torch.randn(8, n)[:, :4] for n in (16, 24, 40)]

    def run() -> None:
        for x in inputs:
            torch.exp(x) + 1

    (region,) = mine(read_trace(record(tmp_path / "t.json", run))).regions
    assert region.text is not None
    assert len(region.shapes) == 3
    assert "[..., :4]" in region.text
