"""Gated linear attention: every variant, against the recurrence itself, states that join calls, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.agreement import disagreement
from kernels.ops.scan.gated_linear_attention import OPERATIONS, gated_linear_attention, inputs, launch, space
from kernels.spec import Maker, case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

(GATED,) = OPERATIONS


@pytest.mark.parametrize(("dk", "dv"), [(64, 128), (80, 33)])
def test_every_variant_agrees(dk: int, dv: int) -> None:
    arguments = q, k, v, g, _, initial, _ = inputs(
        case("f16", b=1, h=2, t=140, dk=dk, dv=dv, state=True, final=True), Maker()
    )
    for variant in (*space(dk, dv, 140, torch.float16), *space(dk, dv, 140, torch.float32)):
        o, end = torch.full_like(v, torch.nan), torch.full_like(initial, torch.nan)
        launch(variant, q, k, v, g, initial, o, end, dk**-0.5)
        assert disagreement(GATED, (o, end), arguments) == "", str(variant)


def test_it_is_the_recurrence_step_by_step() -> None:
    q, k, v, g, _, initial, _ = inputs(case("f32", b=1, h=2, t=90, dk=16, dv=24, state=True), Maker())
    state, wanted = initial.clone(), []
    for t in range(90):
        state = torch.exp(g[:, :, t, None, None]) * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        wanted.append(0.5 * torch.einsum("bhk,bhkv->bhv", q[:, :, t], state))
    o, end = gated_linear_attention(q, k, v, g, 0.5, initial, True)
    torch.testing.assert_close(o, torch.stack(wanted, 2), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(end, state, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cut", [1, 31, 32, 60])
def test_two_calls_joined_by_the_state_are_one(cut: int) -> None:
    q, k, v, g, *_ = inputs(case("f32", b=1, h=2, t=70, dk=16, dv=16), Maker())
    whole, end = gated_linear_attention(q, k, v, g, final=True)
    first, state = gated_linear_attention(*(x[:, :, :cut] for x in (q, k, v, g)), final=True)
    second, last = gated_linear_attention(*(x[:, :, cut:] for x in (q, k, v, g)), initial=state, final=True)
    torch.testing.assert_close(torch.cat((first, second), 2), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last, end, rtol=1e-4, atol=1e-5)


def test_a_head_that_forgets_at_once_sees_its_own_step_alone() -> None:
    q, k, v, g, *_ = inputs(case("f32", b=1, h=1, t=70, dk=16, dv=16), Maker())
    o = gated_linear_attention(q, k, v, torch.full_like(g, -1e4), 1.0)
    torch.testing.assert_close(o, (q * k).sum(-1, keepdim=True) * v, rtol=1e-5, atol=1e-6)


def test_a_head_that_never_forgets_outgrows_f16_and_not_its_states() -> None:
    """200 steps of 20 * 20 are beyond what f16 holds."""
    k = torch.full((1, 1, 200, 16), 20.0, dtype=torch.float16)
    o, end = gated_linear_attention(torch.full_like(k, 1e-3), k, k, torch.zeros((1, 1, 200)), final=True)
    assert o[0, 0, -1].tolist() == pytest.approx([320.0] * 16, rel=2e-3)
    assert end.unique().tolist() == [80000.0]


def test_no_step_leaves_the_state_as_it_is() -> None:
    q, g, state = torch.empty((1, 2, 0, 16)), torch.empty((1, 2, 0)), torch.randn((1, 2, 16, 16))
    o, end = gated_linear_attention(q, q, q, g, None, state, True)
    assert o.shape == q.shape
    assert torch.equal(end, state)


Q, G = torch.zeros((1, 2, 8, 16)), torch.zeros((1, 2, 8))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: gated_linear_attention(Q.half(), Q, Q, G), TypeError, "alike"),
        (lambda: gated_linear_attention(Q, Q, Q, G.half()), TypeError, "float16"),
        (lambda: gated_linear_attention(Q, Q[:, :1], Q, G), ValueError, r"\[1, 1, 8, 16\]"),
        (lambda: gated_linear_attention(Q, Q, Q[0], G), ValueError, "DV"),
        (lambda: gated_linear_attention(Q, Q, Q, G[0]), ValueError, r"g \[B, H, T\]"),
        (lambda: gated_linear_attention(Q, Q, torch.zeros((1, 2, 8, 257)), G), ValueError, "1 to 256"),
        (lambda: gated_linear_attention(Q, Q, Q, G, None, Q), ValueError, "initial state"),
    ],
)
def test_what_is_refused_says_why(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
