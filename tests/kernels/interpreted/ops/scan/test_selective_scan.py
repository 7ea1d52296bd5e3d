"""Selective scan: every variant, chunks, states, gradients as autograd has them, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels.agreement import disagreement
from kernels.ops import trained
from kernels.ops.scan.selective_scan import (
    ALL,
    OPERATIONS,
    backward_inputs,
    inputs,
    launch,
    launch_backward,
    selective_scan,
    selective_scan_backward,
    space,
)
from kernels.spec import Maker, case, exact
from kernels.tuning import Limits, Variant, misfit

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

FORWARD, BACKWARD = OPERATIONS
SETTINGS = (("SKIP", True), ("GATE", True), ("BIAS", True), ("SOFT", True))
Tensor = torch.Tensor


def loop(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor, z: Tensor, bias: Tensor) -> Tensor:
    """Step by step, as the paper writes it."""
    delta = F.softplus(dt + bias[:, None])
    h, ys = x.new_zeros((*x.shape[:2], a.shape[1])), []
    for t in range(x.shape[2]):
        h = torch.exp(delta[:, :, t, None] * a) * h + (delta * x)[:, :, t, None] * b[:, None, :, t]
        ys.append((h * c[:, None, :, t]).sum(-1))
    return (torch.stack(ys, 2) + skip[:, None] * x) * F.silu(z)


def chunked(variant: Variant, chunks: int) -> Variant:
    """A variant of either direction with this many chunks."""
    changed = {"CHUNKS": chunks, "PHASE": 2 if chunks > 1 else 0}
    return Variant(variant.kernel, tuple((n, changed.get(n, v)) for n, v in variant.constants), variant.warps)


@pytest.mark.parametrize("chunks", [1, 2, 8])
def test_every_variant_agrees_whole_and_in_chunks(chunks: int) -> None:
    arguments = x, dt, a, b, c, skip, z, bias, _, _ = inputs(
        case("f32", b=2, c=35, t=41, n=3, last=True, final=True), Maker()
    )
    for variant in space((2, 35, 41), 3, (*SETTINGS, ("FINAL", True)), True):
        y, end = torch.full_like(x, torch.nan), torch.full((2, 35, 3), torch.nan)
        launch(chunked(variant, chunks), x, dt, a, b, c, skip, z, bias, y, end)
        assert disagreement(FORWARD, (y, end), arguments) == "", str(variant)


def test_few_channels_of_a_long_sequence_are_offered_in_chunks() -> None:
    settings = (*SETTINGS, ("FINAL", False))
    assert max(v["CHUNKS"] for v in space((1, 64, 8192), 16, settings, True)) > 8
    assert max(v["CHUNKS"] for v in space((1, 4096, 8192), 16, (*SETTINGS, ("WANTED", ALL)), False)) >= 8
    assert {v["CHUNKS"] for v in space((64, 4096, 2048), 16, settings, True)} == {1}
    assert {v["CHUNKS"] for v in space((1, 64, 20), 16, settings, True)} == {1}


@pytest.mark.parametrize("chunks", [1, 8])
def test_every_variant_of_the_backward_agrees(chunks: int) -> None:
    arguments = dy, x, dt, a, b, c, skip, z, bias, _ = backward_inputs(
        case("f32", b=2, c=35, t=41, n=3, last=True), Maker()
    )
    for variant in space((2, 35, 41), 3, (*SETTINGS, ("WANTED", ALL)), False):
        dx, ddt, dz = (torch.full_like(x, torch.nan) for _ in range(3))
        da, db, dc = torch.empty((3, 35)), torch.empty((2, 41, 3)), torch.empty((2, 41, 3))
        dskip, dbias = torch.empty(35), torch.empty(35)
        launch_backward(
            chunked(variant, chunks), dy, x, dt, a, b, c, skip, z, bias, dx, ddt, dz, da, db, dc, dskip, dbias
        )
        made = (dx, ddt, da.t(), db.transpose(1, 2), dc.transpose(1, 2), dskip, dz, dbias)
        assert disagreement(BACKWARD, made, arguments) == "", str(variant)


@pytest.mark.parametrize("states", [1, 16, 17, 64, 100, 128, 256])
def test_registers_of_a_thread_have_room_for_its_share_of_any_states(states: int) -> None:
    for settings, forward in (((*SETTINGS, ("FINAL", True)), True), ((*SETTINGS, ("WANTED", ALL)), False)):
        for shape in ((8, 2048, 2048), (1, 64, 8192)):
            variants = space(shape, states, settings, forward)
            assert all(not misfit(v, Limits()) for v in variants)
            assert all(v["BLOCK"] * v["NP"] >= v.warps * 32 for v in variants)


def test_many_states_are_shared_and_agree() -> None:
    given = inputs(case("f32", b=1, c=5, t=9, n=200, final=True), Maker())
    up = backward_inputs(case("f32", b=1, c=5, t=9, n=200), Maker())
    for made, wanted in (
        (selective_scan(*given), FORWARD.reference(*exact(given))),
        (selective_scan_backward(*up), BACKWARD.reference(*exact(up))),
    ):
        for one, other in zip(made, wanted, strict=True):
            torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-4)


def test_gradients_of_b_and_c_have_their_own_dtypes() -> None:
    arguments = list(backward_inputs(case("f32", b=1, c=5, t=9, n=4), Maker()))
    arguments[4], arguments[5] = arguments[4].bfloat16(), arguments[5].half()
    made = selective_scan_backward(*arguments)
    assert [g.dtype for g in made[3:5] if g is not None] == [torch.bfloat16, torch.float16]
    assert disagreement(BACKWARD, made, arguments) == ""


@pytest.mark.parametrize("wanted", range(8))
def test_a_gradient_that_alone_is_wanted_is_the_one_of_all(wanted: int) -> None:
    arguments = backward_inputs(case("f32", b=2, c=5, t=21, n=4), Maker())
    every, one = selective_scan_backward(*arguments), selective_scan_backward(*arguments, 1 << wanted)
    assert [g is not None for g in one] == [i == wanted for i in range(8)]
    torch.testing.assert_close(one[wanted], every[wanted], rtol=0, atol=0)


def test_results_and_gradients_are_those_of_the_loop() -> None:
    given = inputs(case("f32", b=2, c=5, t=21, n=4), Maker())[:8]
    ours, theirs = ([t.clone().requires_grad_() for t in given] for _ in range(2))
    y, wanted = trained.selective_scan(*ours, True), loop(*theirs)
    torch.testing.assert_close(y, wanted, rtol=1e-5, atol=1e-6)
    up = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    y.backward(up)
    wanted.backward(up)
    for one, other in zip(ours, theirs, strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
    assert trained.selective_scan(*given, True).grad_fn is None


def test_gradients_without_gate_skip_and_bias() -> None:
    x, dt, a, b, c = inputs(case("f32", b=1, c=5, t=21, n=4, plain=True), Maker())[:5]
    leaves = [t.clone().requires_grad_() for t in (x, dt, a, b, c)]
    trained.selective_scan(*leaves).sum().backward()
    wanted = selective_scan_backward(torch.ones_like(x), x, dt, a, b, c)
    for leaf, gradient in zip(leaves, wanted, strict=True):
        assert leaf.grad is not None
        torch.testing.assert_close(leaf.grad, gradient)


def test_a_small_delta_keeps_its_digits() -> None:
    """log(1 + exp(-12)) by itself has two digits left in f32."""
    arguments = list(inputs(case("f32", b=1, c=5, t=21, n=4), Maker()))
    arguments[7] = torch.full((5,), -12.0)
    assert disagreement(FORWARD, selective_scan(*arguments), arguments) == ""


X, A, B = torch.zeros((2, 6, 20)), torch.zeros((6, 4)), torch.zeros((2, 4, 20))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: selective_scan(X.double(), X, A, B, B), TypeError, "float64"),
        (lambda: selective_scan(X, X, A.half(), B, B), TypeError, "A, D and the bias"),
        (lambda: selective_scan(X, X, A, B, B, None, X.half()), TypeError, "z as x"),
        (lambda: selective_scan(X, X[..., :3], A, B, B), ValueError, "alike"),
        (lambda: selective_scan(X, X, A[:5], B, B), ValueError, r"A is \[6, 1 to 256\]"),
        (lambda: selective_scan(X, X, A, B[:, :3], B), ValueError, "B and C are"),
        (lambda: selective_scan(X, X, A, B, B, torch.zeros(5)), ValueError, r"are \[6\]"),
        (lambda: selective_scan(X[..., :0], X[..., :0], A, B[..., :0], B[..., :0]), ValueError, "a step or more"),
        (lambda: selective_scan_backward(X.half(), X, X, A, B, B), TypeError, "dy has"),
        (lambda: selective_scan_backward(X[..., :3], X, X, A, B, B), ValueError, "dy is"),
    ],
)
def test_what_is_refused_says_why(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
