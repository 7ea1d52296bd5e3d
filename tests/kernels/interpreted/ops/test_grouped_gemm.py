"""Products of groups of rows: every variant, experts without rows, a whole layer of experts and its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.agreement import disagreement
from kernels.ops.matmul.grouped_gemm import (
    OPERATIONS,
    gradient_space,
    grouped_gemm,
    grouped_gemm_backward,
    inputs,
    inputs_backward,
    launch,
    launch_gradient,
    space,
)
from kernels.spec import Maker, case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

GROUPED, BACKWARD = OPERATIONS
MODES = ("plain", "gather", "scatter")


def flags(mode: str) -> tuple[tuple[str, Any], ...]:
    return (("GATHER", mode == "gather"), ("SCATTER", mode == "scatter"), ("WEIGHTED", mode == "scatter"))


@pytest.mark.parametrize(
    ("mode", "turned", "k"), [("plain", 1, 72), ("plain", 0, 128), ("gather", 0, 72), ("scatter", 1, 128)]
)
@pytest.mark.parametrize("each", [10, 1000])
def test_every_variant_agrees(mode: str, turned: int, k: int, each: int) -> None:
    """Those that are offered for so many rows an expert; one expert has none, and K is whole tiles or none."""
    arguments = inputs(case("f16", t=50, k=k, n=72, e=4, mode=mode, top=2, turned=turned), Maker(seed=5))
    x, w, offsets, source, target, weight = arguments
    offsets = torch.tensor([0, 18, 18, 35, 50], dtype=torch.int32)
    arguments = (x, w, offsets, source, target, weight)
    wide = torch.empty((4, k, 512), dtype=torch.float16, device="meta")
    wide = torch.empty((4, 512, k), dtype=torch.float16, device="meta").mT if turned else wide
    for variant in space(4 * each, wide, flags(mode), True):
        y = torch.full((50, 72), torch.nan, dtype=torch.float16)
        launch(variant, x, w, y, offsets, source, target, weight)
        assert disagreement(GROUPED, y, arguments) == "", str(variant)


@pytest.mark.parametrize("mode", MODES)
def test_every_variant_of_the_weights_gradient_agrees(mode: str) -> None:
    arguments = inputs_backward(case("f16", t=50, k=40, n=72, e=3, mode=mode, top=2), Maker(seed=5))
    dy, x, w, offsets, source, target, weight = arguments
    dx, _ = grouped_gemm_backward(*arguments)
    for variant in gradient_space(3, 4096, 4096, 50, 2, flags(mode)):
        dw = torch.full(w.shape, torch.nan, dtype=torch.float16)
        launch_gradient(variant, x, dy, dw, offsets, source, target, weight)
        assert disagreement(BACKWARD, (dx, dw), arguments) == "", str(variant)


def test_what_lies_behind_one_experts_weights_does_not_leak_into_it() -> None:
    """K that is no whole tile: the next expert's NaN times 0 would show."""
    x, w, offsets, *_ = inputs(case("f16", t=40, k=72, n=64, e=2), Maker())
    offsets = torch.tensor([0, 40, 40], dtype=torch.int32)
    w[1] = torch.nan
    assert torch.isfinite(grouped_gemm(x, w, offsets)).all()
    assert torch.isfinite(grouped_gemm(x, w.mT.contiguous().mT, offsets)).all()


def test_a_layer_of_experts_and_its_gradients_are_those_of_a_loop_over_tokens() -> None:
    """Gate, up and down with top 2 of 4 experts, from tokens to tokens, against autograd."""
    torch.manual_seed(0)
    tokens, k, h, e, top = 12, 20, 24, 4, 2
    x = torch.randn(tokens, k, requires_grad=True)
    up, down = (torch.randn(s, requires_grad=True) for s in ((e, k, h), (e, h, k)))
    chosen = torch.stack([torch.randperm(e)[:top] for _ in range(tokens)])
    share = torch.rand(tokens, top)

    def expert(t: int, s: int) -> torch.Tensor:
        return share[t, s] * (torch.relu(x[t] @ up[chosen[t, s]]) @ down[chosen[t, s]])

    wanted = torch.stack([sum((expert(t, s) for s in range(top)), torch.zeros(k)) for t in range(tokens)])
    dy = torch.randn(tokens, k)
    wanted.backward(dy)

    pairs = chosen.flatten().argsort(stable=True)
    counts = torch.bincount(chosen.flatten(), minlength=e)
    offsets = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    with torch.no_grad():
        hidden = grouped_gemm(x, up, offsets, pairs // top)
        weight = share.flatten()[pairs]
        y = grouped_gemm(torch.relu(hidden), down, offsets, None, pairs, weight).view(tokens, top, k).sum(1)
        assert torch.allclose(y, wanted, atol=1e-4)
        each = dy.repeat_interleave(top, 0)
        d_hidden, d_down = grouped_gemm_backward(each, torch.relu(hidden), down, offsets, None, pairs, weight)
        dx, d_up = grouped_gemm_backward(d_hidden * (hidden > 0), x, up, offsets, pairs // top)
        d_tokens = torch.zeros(tokens, k).index_add_(0, pairs // top, dx)
    assert up.grad is not None and down.grad is not None and x.grad is not None
    for mine, theirs in ((d_down, down.grad), (d_up, up.grad), (d_tokens, x.grad)):
        assert torch.allclose(mine, theirs, atol=1e-4)


X, W, ENDS = torch.zeros((6, 8)), torch.zeros((2, 8, 5)), torch.tensor([0, 4, 6])


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: grouped_gemm(X, W.half(), ENDS), TypeError, "alike"),
        (lambda: grouped_gemm(X, W[0], ENDS), ValueError, r"\[E, K, N\]"),
        (lambda: grouped_gemm(X, W.mT, ENDS), ValueError, r"\[2, 5, 8\]"),
        (lambda: grouped_gemm(X, W, ENDS[:2]), ValueError, "one offset more"),
        (lambda: grouped_gemm(X, W, ENDS.float()), TypeError, "float32"),
        (lambda: grouped_gemm(X, W, ENDS, None, torch.arange(5)), ValueError, "each of 6 rows"),
        (lambda: grouped_gemm(X, W, ENDS, torch.arange(4), None, torch.ones(6)), ValueError, "each of 4 rows"),
        (lambda: grouped_gemm(X, W, ENDS, weight=torch.ones(6, dtype=torch.float64)), TypeError, "weight is"),
        (lambda: grouped_gemm_backward(torch.zeros((6, 4)), X, W, ENDS), ValueError, r"dy is"),
    ],
)
def test_what_is_refused_says_why(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
