"""Dropout: its words are Philox's, as published and as Triton has them; what it drops depends on nothing else."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from kernels.ops.elementwise.dropout import dropout, dropout_backward, philox, reference


@triton.jit
def _words(out_ptr, seed, offset, COUNT: tl.constexpr):  # noqa: N803 - a constant
    """What Triton's own generator gives."""
    at = tl.arange(0, COUNT)
    a, b, c, d = tl.randint4x(seed, offset + at)
    tl.store(out_ptr + 4 * at, a)
    tl.store(out_ptr + 4 * at + 1, b)
    tl.store(out_ptr + 4 * at + 2, c)
    tl.store(out_ptr + 4 * at + 3, d)


def test_the_words_are_the_published_ones() -> None:
    """Known answers of Random123's kat_vectors, philox4x32 with 10 rounds, for keys and counters of zeros."""
    words = philox(0, torch.zeros(1, dtype=torch.int64))[0].tolist()
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("seed", [1, 2**31 + 7, 2**61 + 3])
def test_the_words_are_those_of_tritons_generator(seed: int) -> None:
    got = torch.empty(64, 4, dtype=torch.int32)
    _words[(1,)](got, seed, 2**31 - 20, COUNT=64)
    wanted = philox(seed, torch.arange(2**31 - 20, 2**31 - 20 + 64))
    assert torch.equal(got.long() & 0xFFFFFFFF, wanted)


def test_the_same_elements_are_dropped_at_every_length_and_in_the_backward() -> None:
    x = torch.ones(5000)
    y = dropout(x, 0.3, seed=9)
    assert torch.equal(dropout(x[:777], 0.3, seed=9), y[:777])
    assert torch.equal(dropout(x[:4000], 0.3, seed=9, offset=250), y[1000:])
    assert torch.equal(dropout_backward(torch.full((5000,), 2.0), 0.3, seed=9), 2 * y)
    assert not torch.equal(dropout(x, 0.3, seed=10), y)


def test_the_share_that_is_dropped() -> None:
    for p in (0.1, 0.5, 0.9):
        kept = float((dropout(torch.ones(40_000), p, seed=3) != 0).float().mean())
        assert abs(kept - (1 - p)) < 0.01


def test_results_are_equal_to_the_last_bit() -> None:
    x = torch.randn(3001)
    assert torch.equal(dropout(x, 0.2, seed=4, offset=17), reference(x, 0.2, 4, 17))


def test_none_and_all() -> None:
    x = torch.randn(100)
    assert torch.equal(dropout(x, 0.0, seed=1), x)
    assert torch.equal(dropout(x, 1.0, seed=1), torch.zeros(100))


@pytest.mark.parametrize(("p", "seed", "offset"), [(-0.1, 0, 0), (1.5, 0, 0), (0.5, -1, 0), (0.5, 0, 2**31)])
def test_numbers_out_of_range_are_refused(p: float, seed: int, offset: int) -> None:
    with pytest.raises(ValueError, match="dropout takes"):
        dropout(torch.ones(4), p, seed, offset)
    with pytest.raises(TypeError, match="dropout takes f32"):
        dropout(torch.ones(4, dtype=torch.float64), 0.5, 1)
