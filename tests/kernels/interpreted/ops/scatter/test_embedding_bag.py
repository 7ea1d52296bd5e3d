"""Bags, segments and their gradients are torch's own, autograd's included; what does not fit together is refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernels.ops.scatter.embedding_bag import (
    NOWHERE,
    embedding_bag,
    embedding_bag_backward,
    embedding_bag_with_places,
)
from kernels.ops.scatter.segment_reduce import segment_reduce, segment_reduce_backward

OFFSETS = torch.tensor([0, 0, 3, 40, 41, 41, 90])


def _table() -> torch.Tensor:
    return torch.randn(12, 20, generator=torch.Generator().manual_seed(1))


def _indices() -> torch.Tensor:
    return torch.randint(12, (90,), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_gradient_of_the_table_is_autograd_s(mode: str) -> None:
    table, indices = _table().requires_grad_(), _indices()
    y = F.embedding_bag(indices, table, OFFSETS, mode=mode, include_last_offset=True)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    wanted = torch.autograd.grad(y, table, dy)[0]
    plain = table.detach()
    places = None
    if mode == "max":
        ours, places = embedding_bag_with_places(plain, indices, OFFSETS)
        torch.testing.assert_close(ours, y.detach())
        assert bool((places[0] == NOWHERE).all())
    got = embedding_bag_backward(dy, plain, indices, OFFSETS, None, places, mode)[0]
    torch.testing.assert_close(got, wanted)


def test_the_gradient_of_sample_weights_is_autograd_s() -> None:
    table, indices = _table(), _indices()
    weights = torch.randn(90, generator=torch.Generator().manual_seed(4)).requires_grad_()
    y = F.embedding_bag(indices, table, OFFSETS, mode="sum", per_sample_weights=weights, include_last_offset=True)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    wanted = torch.autograd.grad(y, weights, dy)[0]
    got = embedding_bag_backward(dy, table, indices, OFFSETS, weights.detach(), None, "sum")[1]
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_gradient_of_a_segment_is_autograd_s_ties_included(mode: str) -> None:
    x = (torch.randn(90, 20, generator=torch.Generator().manual_seed(5)) * 2).round().requires_grad_()
    y = torch.segment_reduce(x, mode, offsets=OFFSETS, axis=0, unsafe=True)
    dy = torch.rand(y.shape, generator=torch.Generator().manual_seed(6))  # torch shares none that are negative
    wanted = torch.autograd.grad(y, x, dy)[0]
    ours = segment_reduce(x.detach(), OFFSETS, mode)
    torch.testing.assert_close(ours, y.detach(), equal_nan=True)
    torch.testing.assert_close(segment_reduce_backward(dy, x.detach(), ours, OFFSETS, mode), wanted)


def test_what_does_not_fit_together_is_refused() -> None:
    table, indices = _table(), _indices()
    with pytest.raises(ValueError, match='for "sum" alone'):
        embedding_bag(table, indices, OFFSETS, torch.ones(90), "mean")
    with pytest.raises(ValueError, match="mode is one of"):
        embedding_bag(table, indices, OFFSETS, None, "median")
    with pytest.raises(TypeError, match="integers in i32 or i64"):
        embedding_bag(table, indices.short(), OFFSETS)
    with pytest.raises(ValueError, match="places of shape"):
        embedding_bag_backward(torch.zeros(6, 20), table, indices, OFFSETS, None, None, "max")
    with pytest.raises(ValueError, match="mode is one of"):
        segment_reduce(table, OFFSETS, "prod")
    with pytest.raises(ValueError, match="y is"):
        segment_reduce_backward(torch.zeros(6, 20), torch.zeros(90, 20), torch.zeros(5, 20), OFFSETS, "sum")
