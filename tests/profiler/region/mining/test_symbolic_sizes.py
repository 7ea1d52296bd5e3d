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


@pytest.mark.parametrize(
    "lines",
    [
        ("x: f32[0, 8]\nz = x + 1\nreturn z\n", "x: f32[86, 8]\nz = x + 1\nreturn z\n"),
        (
            "ids: i64[8, 128].below(100)\nz = ids + 1\nreturn z\n",
            "ids: i64[8, 128].below(512)\nz = ids + 1\nreturn z\n",
        ),
    ],
    ids=["an empty size", "a bound"],
)
def test_what_cannot_vary_in_one_text_is_written_as_two(lines: tuple[str, str]) -> None:
    merged = merge([Sized(text, "pointwise", (), (text,)) for text in lines])
    assert sorted(m.text or "" for m in merged) == sorted(lines)
    assert [m.bindings for m in merged] == [((),), ((),)]
    for one in merged:
        parse(one.text or "")


def test_a_number_to_the_power_of_a_tensor_is_a_text_that_parses(tmp_path: Path) -> None:
    """The frequencies of a rotary embedding: written as a method of a number they were no text at all."""
    x = torch.rand(64, 32)
    trace = read_trace(record(tmp_path / "t.json", lambda: 1.0 / (10000.0**x)))
    texts = [region.text for region in mine(trace).regions if region.text and "pow" in region.text]
    assert texts
    for text in texts:
        assert "torch.pow(10000" in text
        program(parse(text))
