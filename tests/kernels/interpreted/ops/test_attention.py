"""Attention: every variant, rows that see nothing, masks on the edges of blocks, capping, order, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels import tuning
from kernels.agreement import disagreement
from kernels.ops.attention.flash_attention import (
    OPERATIONS,
    flash_attention,
    heads_together,
    inputs,
    launch,
    pairs_seen,
    space,
)
from kernels.spec import Maker, case
from kernels.tuning import Tuner

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

(ATTENTION,) = OPERATIONS


def attend(*arguments: Any, **settings: Any) -> torch.Tensor:
    """Without the log-sum-exp."""
    o = flash_attention(*arguments, **settings)
    assert isinstance(o, torch.Tensor)
    return o


def _large(d: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """Of a size for which the large blocks are offered, with no memory behind it."""
    return torch.empty((4, 32, 4096, d), dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("d", "settings"),
    [(64, {}), (64, {"window": 20, "cap": 3.0}), (128, {"causal": True, "window": 70}), (256, {"causal": True})],
)
def test_every_variant_agrees(d: int, settings: dict[str, Any]) -> None:
    arguments = q, k, v, bias, causal, window, cap, _, _ = inputs(
        case("f16", b=1, kv=1, s=130, d=d, **settings), Maker()
    )
    for variant in space(_large(d), _large(d), bias, causal, window, cap, 1.0, False, True):
        # The large one's keys are whole blocks, these are not.
        object.__setattr__(variant, "constants", tuple((n, False if n == "WHOLE" else x) for n, x in variant.constants))
        o = torch.full_like(q, torch.nan)
        launch(variant, q, k, v, bias, o, o, window, cap, d**-0.5)
        assert disagreement(ATTENTION, o, arguments) == "", str(variant)


@pytest.mark.parametrize("s", [63, 64, 65, 128])
@pytest.mark.parametrize("window", [0, 1, 63, 64, 65])
def test_windows_that_end_at_and_beside_a_block(s: int, window: int) -> None:
    arguments = inputs(case("f16", b=1, kv=1, s=s, t=s + 1, d=16, causal=True, window=window), Maker())
    assert disagreement(ATTENTION, flash_attention(*arguments), arguments) == ""


def test_a_window_of_no_earlier_keys_gives_the_value_itself() -> None:
    q, k, v, *_ = inputs(case("f32", b=1, kv=1, s=70, d=16), Maker())
    assert torch.equal(attend(q, k, v, causal=True, window=0), v)


def test_causal_is_aligned_to_the_top_left_as_in_sdpa() -> None:
    q, k, v, *_ = inputs(case("f32", b=1, kv=2, s=40, t=90, d=32), Maker())
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(attend(q, k, v, causal=True), wanted, atol=1e-6)
    q, k, v = k, q, q
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(attend(q, k, v, causal=True), wanted, atol=1e-6)


def test_query_heads_share_key_heads_as_in_sdpa() -> None:
    q, k, v, *_ = inputs(case("f32", b=2, kv=2, h=3, s=20, d=16), Maker())
    wanted = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert torch.allclose(attend(q, k, v), wanted, atol=1e-6)


@pytest.mark.parametrize("boolean", [True, False])
def test_a_row_that_sees_no_key_is_zero_and_its_sum_nothing(boolean: bool) -> None:
    q, k, v, *_ = inputs(case("f16", b=1, kv=1, s=40, t=150, d=16), Maker())
    seen = torch.ones((40, 150), dtype=torch.bool)
    seen[7] = False
    seen[8, :140] = False  # and one that sees its first key only in the last block
    bias = seen if boolean else torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
    o, lse = flash_attention(q, k, v, bias, logsumexp=True)
    assert bool((o[:, :, 7] == 0).all()) and bool((lse[:, :, 7] == -math.inf).all())
    others = [i for i in range(40) if i != 7]
    assert torch.isfinite(o).all() and torch.isfinite(lse[:, :, others]).all()
    assert disagreement(ATTENTION, (o, lse), (q, k, v, bias, False, None, None, None, True)) == ""


def test_rows_beyond_the_window_of_any_key_are_zero() -> None:
    q, k, v, *_ = inputs(case("f32", b=1, kv=1, s=200, t=20, d=16), Maker())
    o, lse = flash_attention(q, k, v, causal=True, window=5, logsumexp=True)
    assert bool((o[:, :, 25:] == 0).all()) and bool((lse[:, :, 25:] == -math.inf).all())
    assert bool((o[:, :, :25] != 0).any(-1).all())


def test_no_keys_give_zeros() -> None:
    q, k, v, *_ = inputs(case("f32", b=1, kv=1, s=5, t=0, d=16), Maker())
    o, lse = flash_attention(q, k, v, logsumexp=True)
    assert bool((o == 0).all()) and bool((lse == -math.inf).all())


def test_values_behind_the_last_key_are_not_read() -> None:
    # The head after, in the same memory, is NaN: 0 times that would be NaN too.
    q, k, v, *_ = inputs(case("f16", b=1, kv=2, s=70, d=64), Maker())
    k[:, 1], v[:, 1] = math.nan, math.nan
    assert torch.isfinite(attend(q, k, v)[:, 0]).all()
    o = attend(*(x.float() for x in (q, k, v)))
    assert torch.isfinite(o[:, 0]).all() and torch.isnan(o[:, 1]).all()


def test_a_nan_key_shows_in_the_rows_that_see_it_alone() -> None:
    q, k, v, *_ = inputs(case("f32", b=1, kv=1, s=100, d=16), Maker())
    k[0, 0, 80] = math.nan
    o = attend(q, k, v, causal=True)
    assert torch.isfinite(o[0, 0, :80]).all() and torch.isnan(o[0, 0, 80:]).all()


def test_large_scores_do_not_overflow() -> None:
    q, k, v, *_ = inputs(case("f32", b=1, kv=1, s=40, d=64, size=30.0), Maker())
    o, lse = flash_attention(q, k, v, logsumexp=True)
    assert torch.isfinite(o).all() and float(lse.max()) > 1000
    assert disagreement(ATTENTION, (o, lse), (q, k, v, None, False, None, None, None, True)) == ""


@pytest.mark.parametrize("scale", [-0.5, 0.0])
def test_a_scale_that_turns_the_order_of_scores_around(scale: float) -> None:
    q, k, v, *_ = inputs(case("f32", b=1, kv=1, s=40, d=16), Maker())
    arguments = (q, k, v, None, True, None, None, scale, True)
    assert disagreement(ATTENTION, flash_attention(*arguments), arguments) == ""


def test_the_result_has_the_order_of_strides_of_the_queries() -> None:
    q, k, v, *_ = inputs(case("f16", b=2, kv=2, s=20, d=16, rows_first=True), Maker())
    assert q.stride() == attend(q, k, v).stride() != q.contiguous().stride()
    across = q.transpose(2, 3).contiguous().transpose(2, 3)  # its last axis is not contiguous
    assert torch.equal(attend(across, k, v), attend(q, k, v))


@pytest.mark.parametrize("boolean", [True, False])
def test_what_is_broadcast_is_narrow_when_tuning_copies_it(boolean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def pick(self: Tuner, key: Any, space: Callable[[], Any], launch: Callable[..., None], *arguments: Any) -> Any:
        launch(space()[0], *(tuning.copied(a) for a in arguments))
        return space()[0]

    monkeypatch.setattr(Tuner, "pick", pick)
    q, k, v, *_ = inputs(case("f32", b=2, kv=1, s=20, t=30, d=16), Maker())
    k, v = k.expand(2, 3, 30, 16), v.expand(2, 3, 30, 16)
    q = q.expand(2, 3, 20, 16)
    bias = torch.randn((2, 1, 1, 30), generator=torch.Generator().manual_seed(1)).expand(2, 3, 20, 30)
    bias = bias > 0 if boolean else bias
    bias = bias[:, :, :1].expand(2, 3, 20, 30)
    arguments = (q, k, v, bias, False, None, None, None, False)
    assert disagreement(ATTENTION, flash_attention(*arguments), arguments) == ""


@pytest.mark.parametrize("sharing", [1, 2])
def test_every_block_of_every_head_runs_once_whatever_the_order(sharing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kernels.ops.attention.flash_attention.L2_BYTES", 2 * 300 * 16 * 4 * 2
    )  # two key heads at a time
    arguments = inputs(case("f32", b=1, kv=3, h=sharing, s=300, d=16, causal=True), Maker())
    assert heads_together(300, 16, 4, sharing, 3 * sharing, balanced=False) == 2 * sharing
    assert disagreement(ATTENTION, flash_attention(*arguments), arguments) == ""


@pytest.mark.parametrize(("s", "t"), [(1, 1), (7, 7), (5, 9), (9, 5)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 0, 2, 100])
def test_pairs_are_counted_as_the_masks_leave_them(s: int, t: int, causal: bool, window: int | None) -> None:
    seen = torch.ones((s, t), dtype=torch.bool)
    seen = seen.tril() if causal else seen
    seen = seen if window is None else seen.triu(-window)
    assert pairs_seen(s, t, causal, window) == int(seen.sum())


def test_a_cap_in_f32_keeps_the_digits_of_small_scores() -> None:
    # Scores of 1e-3 under a cap of 1000: tanh from exponentials alone would leave four digits.
    q, k, v, *_ = inputs(case("f32", b=1, kv=1, s=20, d=16, size=0.03), Maker())
    arguments = (q, k, v, None, False, None, 1000.0, None, True)
    assert disagreement(ATTENTION, flash_attention(*arguments), arguments) == ""


X, HEADS = torch.zeros((1, 4, 8, 16)), torch.zeros((1, 2, 8, 16))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: flash_attention(X, X.half(), X), TypeError, "alike"),
        (lambda: flash_attention(X.double(), X.double(), X.double()), TypeError, "float64"),
        (lambda: flash_attention(X[0], X[0], X[0]), ValueError, r"\[B, H, S, D\]"),
        (lambda: flash_attention(X, X, X[..., :8]), ValueError, r"8\]"),
        (lambda: flash_attention(*(torch.zeros((1, 1, 2, 257)),) * 3), ValueError, "1 to 256, not 257"),
        (lambda: flash_attention(HEADS, X, X), ValueError, "2 query heads cannot share 4"),
        (lambda: flash_attention(X, HEADS[:, :0], HEADS[:, :0]), ValueError, "4 query heads cannot share 0"),
        (lambda: flash_attention(X, X, X, torch.zeros((8, 7))), ValueError, r"\[8, 7\] does not broadcast"),
        (lambda: flash_attention(X, X, X, torch.zeros((1, 1, 4, 8, 8))), ValueError, "broadcast"),
        (lambda: flash_attention(X, X, X, torch.zeros((8, 8)).half()), TypeError, "float16"),
        (lambda: flash_attention(X, X, X, torch.zeros((8, 8), dtype=torch.uint8)), TypeError, "uint8"),
        (lambda: flash_attention(X, X, X, window=-1), ValueError, "window"),
        (lambda: flash_attention(X, X, X, cap=0.0), ValueError, "cap"),
        (lambda: flash_attention(X, X, X, precision="f32"), ValueError, "tf32x3"),
    ],
)
def test_what_is_refused_says_why(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
