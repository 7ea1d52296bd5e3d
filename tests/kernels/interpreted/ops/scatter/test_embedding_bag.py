"""Bags, segments and their gradients are torch's own, autograd's included; what does not fit together is refused."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from kernels.ops.scatter import embedding_bag as bags
from kernels.ops.scatter import segment_reduce as segments
from kernels.ops.scatter.embedding_bag import (
    NOWHERE,
    embedding_bag,
    embedding_bag_backward,
    embedding_bag_with_places,
    launch,
    space,
)
from kernels.ops.scatter.segment_reduce import segment_reduce, segment_reduce_backward
from kernels.tuning import Variant

EMPTY = {"sum": 0.0, "mean": float("nan"), "max": float("-inf")}
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


BEHIND = torch.tensor([[torch.nan, 1.0], [1.0, torch.nan], [5.0, 5.0], [-torch.inf, 2.0]])


@pytest.mark.parametrize("variant", space(2, "max", False, True), ids=lambda v: f"{v['ROWS']} rows, {v.warps} warps")
def test_nan_is_passed_over_unless_it_is_a_bag_s_first_number_as_in_torch(variant: Variant) -> None:
    indices = torch.tensor([0, *[1] * 31, 2, 1, 0, 2, 0, 0, 1, 1, 3, 3, 3, 0, 3, 0])
    offsets = torch.tensor([0, 33, 36, 38, 40, 42, 44, 46])
    wanted = F.embedding_bag(indices, BEHIND, offsets, mode="max", include_last_offset=True)
    y = torch.empty(7, 2)
    places = torch.empty(7, 2, dtype=torch.int32)
    launch(variant, BEHIND, indices, offsets, BEHIND, y, places)
    torch.testing.assert_close(y, wanted, equal_nan=True)
    for bag, column in itertools.product(range(7), range(2)):
        place = places[bag, column]
        assert int(offsets[bag]) <= int(place) < int(offsets[bag + 1])
        torch.testing.assert_close(BEHIND[indices[place], column], y[bag, column], equal_nan=True)


def test_indices_that_are_not_in_the_table_add_nothing() -> None:
    table, offsets = _table(), torch.tensor([0, 2, 4])
    indices = torch.tensor([12, -1, 99, 3])
    for mode in ("sum", "max"):
        y = embedding_bag(table, indices, offsets, None, mode)
        assert torch.equal(y, torch.stack((torch.zeros(20), table[3])))
    assert bool((embedding_bag_with_places(table, indices, offsets)[1] == torch.tensor([[NOWHERE], [3]])).all())


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_rows_of_no_segment_at_all_have_no_gradient(mode: str) -> None:
    """One offset is no segment: nothing behind it may be read."""
    x, none = torch.ones(300, 5), torch.empty(0, 5)
    assert not segment_reduce_backward(none, x, none, torch.tensor([7]), mode).any()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("ends", [(3, 5, 10), (37, 37, 80), (0, 4, 90), (6, 6, 6)])
def test_rows_outside_of_all_segments_are_left_out(mode: str, ends: tuple[int, ...]) -> None:
    x, offsets = torch.randn(90, 5, generator=torch.Generator().manual_seed(5)).requires_grad_(), torch.tensor(ends)
    parts = [x[a:b] for a, b in itertools.pairwise(ends)]
    made = {"sum": lambda p: p.sum(0), "mean": lambda p: p.mean(0), "max": lambda p: p.amax(0)}[mode]
    wanted = torch.stack([made(p) if len(p) else torch.full((5,), EMPTY[mode]) for p in parts])
    got = segment_reduce(x.detach(), offsets, mode)
    torch.testing.assert_close(got, wanted.detach(), equal_nan=True)
    dy = torch.randn(2, 5, generator=torch.Generator().manual_seed(6))
    slope = torch.autograd.grad(wanted, x, dy)[0] if wanted.requires_grad else torch.zeros_like(x)
    torch.testing.assert_close(segment_reduce_backward(dy, x.detach(), got, offsets, mode), slope)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("ends", [(0, 90), (3, 4, 60, 60, 85), (10, 26, 43, 90), (0, 2, 3, 89, 90)])
def test_long_segments_are_joined_from_their_parts(
    mode: str, ends: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SPLIT", 1)  # what is longer than 16 rows
    for tuner in (segments.tuner, segments.backward_tuner):
        monkeypatch.setattr(tuner, "chosen", {})
    x, offsets = (torch.randn(90, 20, generator=torch.Generator().manual_seed(5)) * 2).round(), torch.tensor(ends)
    assert any(b - a > 16 for a, b in itertools.pairwise(ends))
    parts = [x[a:b] for a, b in itertools.pairwise(ends)]
    made = {"sum": lambda p: p.sum(0), "mean": lambda p: p.mean(0), "max": lambda p: p.amax(0)}[mode]
    wanted = torch.stack([made(p) if len(p) else torch.full((20,), EMPTY[mode]) for p in parts])
    got = segment_reduce(x, offsets, mode)
    torch.testing.assert_close(got, wanted, equal_nan=True)
    dy = torch.randn(len(parts), 20, generator=torch.Generator().manual_seed(6))
    slope = torch.zeros_like(x)
    for (a, b), part, y, g in zip(itertools.pairwise(ends), parts, wanted, dy, strict=True):
        shares = torch.ones_like(part) if mode == "sum" else torch.full_like(part, 1 / max(1, b - a))
        if mode == "max":
            shares = (part == y) / (part == y).sum(0).clamp(min=1)
        slope[a:b] = g * shares
    torch.testing.assert_close(segment_reduce_backward(dy, x, got, offsets, mode), slope)


@pytest.mark.parametrize("columns", [20, 300])
def test_an_index_of_most_bags_has_its_gradients_joined_from_parts(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SPLIT", 1)
    monkeypatch.setattr(bags.backward_tuner, "chosen", {})
    table = torch.randn(12, columns, generator=torch.Generator().manual_seed(1)).requires_grad_()
    indices = _indices()
    indices[20:80] = 7
    weights = torch.randn(90, generator=torch.Generator().manual_seed(4)).requires_grad_()
    y = F.embedding_bag(indices, table, OFFSETS, mode="sum", per_sample_weights=weights, include_last_offset=True)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    wanted = torch.autograd.grad(y, (table, weights), dy)
    got = embedding_bag_backward(dy, table.detach(), indices, OFFSETS, weights.detach(), None, "sum")
    torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-5)


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
