"""Rotations written with complex numbers, as Llama's reference does: one region, whose text computes the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.mining.mine import MinedRegion, mine
from profiler.trace.read.reader import read_trace
from tests.profiler.region.recording import record

Pair = tuple[torch.Tensor, torch.Tensor]


def pairs(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))


def rotate_both(q: torch.Tensor, k: torch.Tensor, freqs: torch.Tensor) -> Pair:
    q_, k_ = pairs(q), pairs(k)
    turn = freqs.view(1, q_.shape[1], 1, q_.shape[-1])
    q_out = torch.view_as_real(q_ * turn).flatten(3)
    k_out = torch.view_as_real(k_ * turn).flatten(3)
    return q_out.type_as(q), k_out.type_as(k)


def rotate(x: torch.Tensor, freqs: torch.Tensor) -> torch.Tensor:
    turned = pairs(x) * freqs.view(1, x.shape[1], 1, -1)
    return torch.view_as_real(turned).flatten(3).to(x.dtype)


def tensors(dtype: torch.dtype) -> list[torch.Tensor]:
    q, k = torch.randn(2, 16, 4, 64).to(dtype), torch.randn(2, 16, 2, 64).to(dtype)
    return [q, k, torch.polar(torch.ones(16, 32), torch.randn(16, 32))]


def regions(path: Path, function: Callable[..., object], *args: torch.Tensor, shapes: bool = True) -> list[MinedRegion]:
    return list(mine(read_trace(record(path, function, *args, shapes=shapes))).regions)


def as_declared(region: MinedRegion, given: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors as the text's inputs: by their number of values, complex ones as pairs of real ones."""
    real = [torch.view_as_real(t) if t.is_complex() else t for t in given]
    made = []
    for item in parse(region.text or "").inputs:
        shape = [int(s) for s in item.shape]
        made.append(next(t for t in real if t.numel() == torch.Size(shape).numel()).reshape(shape))
    return made


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_queries_and_keys_turned_at_once_are_one_region(dtype: torch.dtype, tmp_path: Path) -> None:
    q, k, freqs = tensors(dtype)
    (region,) = regions(tmp_path / "t.json", rotate_both, q, k, freqs)
    casts = dtype != torch.float32
    assert (region.title, region.kind, region.by_hand) == ("RoPE", "rope", True)
    assert region.operations == (("to", "to", "mul", "mul", "type_as", "type_as") if casts else ("mul", "mul"))
    assert region.text is not None, region.missing
    assert "freqs: f32[1, 16, 1, 32, 2]" in region.text
    got = program(parse(region.text)).module(*as_declared(region, [q, k, freqs]))
    for made, want in zip(got, rotate_both(q, k, freqs), strict=True):
        torch.testing.assert_close(made.reshape(want.shape), want, rtol=0, atol=0)


def test_tensors_turned_one_after_the_other_are_a_call_each(tmp_path: Path) -> None:
    q, _, freqs = tensors(torch.bfloat16)

    def both(q: torch.Tensor, k: torch.Tensor, freqs: torch.Tensor) -> Pair:
        return rotate(q, freqs), rotate(k, freqs)

    (region,) = regions(tmp_path / "t.json", both, q, q.clone(), freqs)
    assert region.operations == ("to", "mul", "to")
    assert region.calls_per_step == 2
    assert region.text is not None, region.missing
    (got,) = program(parse(region.text)).module(*as_declared(region, [q, freqs]))
    torch.testing.assert_close(got, rotate(q, freqs), rtol=0, atol=0)


def test_without_shapes_it_is_named_and_what_is_missing_is_said(tmp_path: Path) -> None:
    (region,) = regions(tmp_path / "t.json", rotate_both, *tensors(torch.bfloat16), shapes=False)
    assert region.title == "RoPE"
    assert region.operations == ("to", "to", "mul", "mul", "type_as", "type_as")
    assert region.text is None
    assert "record_shapes=True" in region.missing


def test_casts_of_other_tensors_beside_it_stay_outside(tmp_path: Path) -> None:
    """The cast of the values before, and of a mask behind, are no part of the rotation."""
    q, k, freqs = tensors(torch.bfloat16)
    v, mask = torch.randn(2, 16, 3, 64).bfloat16(), torch.randn(2, 16)

    def block(q: torch.Tensor, k: torch.Tensor, freqs: torch.Tensor) -> object:
        return v.float(), rotate_both(q, k, freqs), mask.bfloat16()

    mined_regions = regions(tmp_path / "t.json", block, q, k, freqs)
    rope = next(r for r in mined_regions if r.title == "RoPE")
    assert rope.operations == ("to", "to", "mul", "mul", "type_as", "type_as")
    assert sorted(r.operations for r in mined_regions if r is not rope) == [("to",), ("to",)]


def test_a_training_step_turns_the_gradients_in_the_same_region(tmp_path: Path) -> None:
    q, k, freqs = tensors(torch.bfloat16)
    q.requires_grad_()
    k.requires_grad_()

    def train() -> None:
        a, b = rotate_both(q, k, freqs)
        torch.autograd.backward([a, b], [torch.ones_like(a), torch.ones_like(b)])

    region = max(regions(tmp_path / "t.json", train), key=lambda r: r.time_us_per_step)
    assert region.title == "RoPE"
    assert region.backward
    assert region.backward_time_us_per_step > 0
    assert region.text is not None
    assert region.text.count(".requires_grad") == 2  # the table has no gradient


def test_another_complex_product_is_no_loss_of_time(tmp_path: Path) -> None:
    """A filter in the frequency domain: its product is complex too."""

    def filtered(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.fft.irfft(torch.fft.rfft(x) * w)
        return result.relu()

    x, w = torch.randn(8, 64), torch.randn(33, dtype=torch.complex64)
    mined_regions = regions(tmp_path / "t.json", filtered, x, w)
    product = next(r for r in mined_regions if "mul" in r.operations)
    assert product.title != "RoPE"
    assert product.text is not None
    assert "view_as_complex" in product.text
