"""Causal convolution: every variant, states that join calls, no step at all, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.agreement import disagreement
from kernels.ops.scan.causal_conv1d import (
    OPERATIONS,
    backward_inputs,
    causal_conv1d,
    causal_conv1d_backward,
    inputs,
    launch,
    launch_backward,
    space,
)
from kernels.spec import Maker, case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

FORWARD, BACKWARD = OPERATIONS
SETTINGS = (("WIDTH", 4), ("BIAS", True), ("STATE", True), ("FINAL", True), ("ACT", True))


@pytest.mark.parametrize("last", [False, True])
def test_every_variant_agrees_forward_and_backward(last: bool) -> None:
    c = case("f32", b=2, c=5, t=70, w=4, bias=True, state=True, final=True, act="silu", last=last)
    arguments = x, w, bias, _, initial, _ = inputs(c, Maker())
    for variant in space((2, 5, 70), last, SETTINGS, True):
        y, end = torch.full_like(x, torch.nan), torch.full_like(initial, torch.nan)
        launch(variant, x, w, bias, initial, y, end)
        assert disagreement(FORWARD, (y, end), arguments) == "", str(variant)
    arguments = dy, x, w, bias, _, initial, dfinal = backward_inputs(c, Maker())
    for variant in space((2, 5, 70), last, (*SETTINGS, ("ALONG", True), ("SUMS", True)), False):
        dx, dinitial, sums = torch.full_like(x, torch.nan), torch.full_like(initial, torch.nan), torch.empty((5, 5))
        launch_backward(variant, dy, x, w, bias, initial, dfinal, dx, dinitial, sums)
        made = (dx, sums[:4].t(), sums[4], dinitial)
        assert disagreement(BACKWARD, made, arguments) == "", str(variant)


def test_the_backward_is_offered_long_tiles_whose_sums_are_few_bytes() -> None:
    for last in (True, False):
        variants = space((8, 4096, 4096), last, (*SETTINGS, ("ALONG", True), ("SUMS", True)), False)
        assert max(v["STEPS"] * v["SEGMENTS"] for v in variants) >= 128


@pytest.mark.parametrize("cut", [1, 2, 5, 19])
def test_two_calls_joined_by_the_state_are_one(cut: int) -> None:
    x, w, bias, *_ = inputs(case("f32", b=2, c=6, t=20, w=4, bias=True), Maker())
    whole = causal_conv1d(x, w, bias, "silu")
    first, state = causal_conv1d(x[..., :cut], w, bias, "silu", None, True)
    second = causal_conv1d(x[..., cut:], w, bias, "silu", state)
    assert isinstance(whole, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    torch.testing.assert_close(torch.cat((first, second), 2), whole, rtol=1e-6, atol=1e-6)


def test_no_step_leaves_the_state_and_its_gradient_as_they_are() -> None:
    x, w, state = torch.empty((2, 3, 0)), torch.ones((3, 4)), torch.arange(18.0).reshape(2, 3, 3)
    y, end = causal_conv1d(x, w, None, None, state, True)
    assert y.shape == x.shape
    assert torch.equal(end, state)
    assert torch.equal(causal_conv1d(x, w, None, None, None, True)[1], torch.zeros_like(state))
    dx, dw, dstate = causal_conv1d_backward(x, x, w, None, None, state, state * 2)
    assert dx.shape == x.shape
    assert not dw.any()
    assert torch.equal(dstate, state * 2)


def test_the_result_is_laid_out_as_the_input_is() -> None:
    x = torch.randn(2, 20, 6).transpose(1, 2)
    y = causal_conv1d(x, torch.randn(6, 3))
    assert isinstance(y, torch.Tensor)
    assert y.stride() == x.stride()
    spread = torch.randn(1, 6, 1).expand(2, 6, 20)
    assert disagreement(FORWARD, causal_conv1d(spread, torch.ones(6, 3)), (spread, torch.ones(6, 3))) == ""


X, W = torch.zeros((2, 6, 20)), torch.zeros((6, 4))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: causal_conv1d(X.double(), W), TypeError, "float64"),
        (lambda: causal_conv1d(X[0], W), ValueError, r"\[B, C, T\]"),
        (lambda: causal_conv1d(X, torch.zeros((6, 5))), ValueError, r"\[6, 5\]"),
        (lambda: causal_conv1d(X, torch.zeros((6, 1))), ValueError, r"2 to 4"),
        (lambda: causal_conv1d(X, torch.zeros((5, 4))), ValueError, r"\[5, 4\]"),
        (lambda: causal_conv1d(X, W, torch.zeros(5)), ValueError, r"bias is \[6\]"),
        (lambda: causal_conv1d(X, W, None, "gelu"), ValueError, "'gelu'"),
        (lambda: causal_conv1d(X, W, None, None, X[..., :2]), ValueError, r"a state is \[2, 6, 3\]"),
        (lambda: causal_conv1d(X, W, None, None, X[..., :3].half()), TypeError, "a state has"),
        (lambda: causal_conv1d_backward(X.half(), X, W), TypeError, "dy has"),
        (lambda: causal_conv1d_backward(X[..., :3], X, W), ValueError, "dy is"),
    ],
)
def test_what_is_refused_says_why(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
