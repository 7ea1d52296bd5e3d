"""Rows added by index: every way to do it, targets with most of the edges, orders that are given or made."""

from __future__ import annotations

import pytest
import torch

from kernels.ops.scatter import scatter_add as ops
from kernels.tuning import Variant


def graph(edges: int = 90) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Messages, targets of which one has most, sources, weights."""
    generator = torch.Generator().manual_seed(6)
    target = torch.randint(11, (edges,), generator=generator)
    target[edges // 4 :] = 4
    x = torch.randn(13, 10, generator=generator)
    return x, target, torch.randint(13, (edges,), generator=generator), torch.randn(edges, generator=generator)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_target_with_most_of_the_edges_gets_them_all(ordered: bool, deterministic: bool) -> None:
    x, target, source, weight = graph()
    if ordered:
        target = target.sort().values
    y = torch.full((11, 10), 7.0)
    names = ("LIMIT", "EDGES", "BLOCK", "ORDERED", "GATHERED", "WEIGHTED")
    values = (16, 4, 8, not ordered, True, True)
    variant = Variant(ops.sum_kernel, tuple(zip(names, values, strict=True)), 1)
    ops.launch(variant, x, target, source, weight, y, 1.0, deterministic)
    torch.testing.assert_close(y, ops.reference(x, target, 11, source, weight))


def test_the_atomic_way_gives_the_same_sums() -> None:
    x, target, source, weight = graph()
    variant = next(v for v in ops.space(10, True, True, True) if v.kernel is ops.atomic_kernel)
    y = torch.full((11, 10), 7.0)
    ops.launch(variant, x, target, source, weight, y, 3.0, False)
    torch.testing.assert_close(y, ops.reference(x, target, 11, source, weight, 3.0))


def test_a_sorted_index_needs_no_order_of_its_own() -> None:
    x, target, _, _ = graph(13)
    target = target.sort().values.to(torch.int32)
    got = ops.scatter_add(x, target, 11, ordered=True)
    torch.testing.assert_close(got, torch.zeros(11, 10).index_add(0, target, x))


@pytest.mark.parametrize("deterministic", [True, False])
def test_targets_out_of_range_are_left_out(deterministic: bool) -> None:
    x = torch.ones(4, 3)
    target = torch.tensor([0, -1, 2, 1])
    got = ops.scatter_add(x, target, 2, deterministic=deterministic)
    assert torch.equal(got, torch.ones(2, 3))


def test_wrong_shapes_and_dtypes_are_refused() -> None:
    x, target, source, weight = graph()
    with pytest.raises(ValueError, match="others are"):
        ops.scatter_add(x, target, 11)
    with pytest.raises(TypeError, match="alike"):
        ops.scatter_add(x, target, 11, source, weight.half())
    with pytest.raises(TypeError, match="i64 or i32"):
        ops.scatter_add(x, target.float(), 11, source)
