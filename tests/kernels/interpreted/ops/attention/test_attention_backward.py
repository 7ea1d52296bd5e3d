"""Attention's backward: every variant, the same numbers every time, rows that see nothing, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels.agreement import disagreement
from kernels.ops.attention.attention_backward import (
    OPERATIONS,
    attention_backward,
    delta_of,
    inputs,
    launch_keys,
    launch_queries,
    space,
    terms,
)
from kernels.ops.attention.flash_attention import flash_attention
from kernels.spec import Maker, case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

(BACKWARD,) = OPERATIONS


@pytest.mark.parametrize(
    ("d", "settings"),
    [(64, {"h": 2}), (64, {"causal": True, "window": 20, "cap": 3.0}), (128, {"causal": True}), (256, {"window": 30})],
)
def test_every_variant_agrees(d: int, settings: dict[str, Any]) -> None:
    arguments = do, q, k, v, o, lse, causal, window, cap, _, _ = inputs(
        case("f16", b=1, kv=1, s=130, t=140, d=d, **settings), Maker()
    )
    large = torch.empty((4, 32, 4096, d), dtype=torch.float16, device="meta")
    delta, top = delta_of(do, o, lse, None)
    made = [torch.full_like(x, torch.nan) for x in (q, k, v)]
    more = (window, cap, d**-0.5)
    keys = {v: v for v in space(True, large, large, causal, window, cap, True)}
    queries = {v: v for v in space(False, large, large, causal, window, cap, True)}
    for variant in keys:
        launch_keys(variant, q, k, v, do, top, delta, *made[1:], *more)
        launch_queries(next(iter(queries)), q, k, v, do, top, delta, made[0], *more)
        assert disagreement(BACKWARD, tuple(made), arguments) == "", str(variant)
    for variant in queries:
        made[0].fill_(torch.nan)
        launch_queries(variant, q, k, v, do, top, delta, made[0], *more)
        assert disagreement(BACKWARD, tuple(made), arguments) == "", str(variant)


@pytest.mark.parametrize("s", [63, 64, 65, 128])
@pytest.mark.parametrize("window", [0, 1, 63, 64, 65])
def test_windows_that_end_at_and_beside_a_block(s: int, window: int) -> None:
    arguments = inputs(case("f16", b=1, kv=1, s=s, t=s + 1, d=16, causal=True, window=window), Maker())
    assert disagreement(BACKWARD, attention_backward(*arguments), arguments) == ""


def test_keys_and_queries_that_see_nothing_have_no_gradient() -> None:
    arguments = inputs(case("f32", b=1, kv=1, s=60, t=20, d=16, causal=True, window=5), Maker())
    dq, dk, dv = attention_backward(*arguments)
    assert not dq[:, :, 25:].any()
    assert bool(dq[:, :, :25].any(-1)[:, :, 1:].all())
    assert torch.isfinite(dk).all()
    assert disagreement(BACKWARD, (dq, dk, dv), arguments) == ""
    arguments = inputs(case("f32", b=1, kv=1, s=20, t=60, d=16, causal=True), Maker())
    _, dk, dv = attention_backward(*arguments)
    assert not dk[:, :, 20:].any()
    assert not dv[:, :, 20:].any()


def test_very_negative_scores_spoil_nothing_behind_the_last_key() -> None:
    """exp(0 - log-sum-exp) of a key that is not there is infinite. Scores of -3,600 are rounded to 1.2e-4 in f32, so is
    the log-sum-exp, and both to 1.7e-4 in powers of two: exponentials are right to 6e-4, and delta, of the forward's,
    to as much. So are the gradients, of the sums of what is added for them."""
    make = torch.Generator().manual_seed(5)
    q, k, v, do = (torch.randn(1, 1, 5, 16, generator=make) for _ in range(4))
    q[..., 0], k[..., 0] = 240.0, -60.0
    o, lse = flash_attention(q, k, v, logsumexp=True)
    assert float(lse.max()) < -3000
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    exact = torch.autograd.grad(F.scaled_dot_product_attention(*leaves), leaves, do.double())
    most = terms(*(x.double() for x in (do, q, k, v, o, lse)))
    for got, right, summed in zip(attention_backward(do, q, k, v, o, lse), exact, most, strict=True):
        assert float(((got - right).abs() / summed).max()) < 1e-3
        # Beside the first column, where what is added cancels, a fault could not hide in that.
        assert float(right[..., 1:].norm()) > 0.05 * float(summed[..., 1:].norm())


def test_one_key_leaves_no_gradient_of_query_and_key_but_roundings() -> None:
    """What cancels is held to a rounding of what was added: of the result, which is 0, no error is small."""
    do, q, k, v, o, lse, *more = inputs(case("f32", b=1, kv=1, s=1, t=1, d=64), Maker())
    arguments = (do, q, k, v, o, lse, *more)
    dq, dk, dv = attention_backward(*arguments)
    off = torch.full_like(dq, 1e-7)
    assert disagreement(BACKWARD, (dq + off, dk - off, dv), arguments) == ""
    assert disagreement(BACKWARD, (dq + 100 * off, dk, dv), arguments).startswith("output 0: error")


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_one_key_of_seventy_that_is_left_out_shows_in_every_dtype(dtype: str) -> None:
    """What is allowed for cancellation hides no fault in types of few digits."""
    arguments = inputs(case(dtype, b=1, kv=1, s=70, t=70, d=64), Maker())
    do, q, k, v, *rest = arguments
    without = BACKWARD.reference(do, q, k[:, :, :-1], v[:, :, :-1], *rest)
    whole = BACKWARD.reference(*arguments)
    assert disagreement(BACKWARD, whole, arguments) == ""
    assert disagreement(BACKWARD, (without[0], *whole[1:]), arguments).startswith("output 0: ")


def test_an_upstream_gradient_in_any_strides_is_taken() -> None:
    do, *rest = inputs(case("f32", b=2, kv=1, h=2, s=20, d=16), Maker())
    across = do.transpose(2, 3).contiguous().transpose(2, 3)
    for one, other in zip(attention_backward(across, *rest), attention_backward(do, *rest), strict=True):
        assert torch.equal(one, other)
    spread = do[:, :, :1].expand(do.shape)
    arguments = (spread, *rest)
    assert disagreement(BACKWARD, attention_backward(*arguments), arguments) == ""


def test_no_queries_or_keys_give_zeros() -> None:
    for s, t in ((0, 5), (5, 0)):
        arguments = inputs(case("f32", b=1, kv=1, s=s, t=t, d=16), Maker())
        assert all(not g.any() for g in attention_backward(*arguments))


X, SUMS = torch.zeros((1, 4, 8, 16)), torch.zeros((1, 4, 8))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: attention_backward(X.half(), X, X, X, X, SUMS), TypeError, "do and o have"),
        (lambda: attention_backward(X, X, X, X, X[:, :2], SUMS), ValueError, "do and o are"),
        (lambda: attention_backward(X, X, X, X, X, SUMS[:, :2]), ValueError, "log-sum-exps"),
        (lambda: attention_backward(X, X, X, X, X, SUMS.half()), ValueError, "float16"),
        (lambda: attention_backward(X, X, X, X, X, SUMS, dlse=SUMS[0]), ValueError, "gradient"),
        (lambda: attention_backward(X, X, X[:, :3], X[:, :3], X, SUMS), ValueError, "4 query heads cannot share 3"),
        (lambda: attention_backward(X, X, X, X, X, SUMS, window=-1), ValueError, "window"),
    ],
)
def test_what_is_refused_says_why(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
