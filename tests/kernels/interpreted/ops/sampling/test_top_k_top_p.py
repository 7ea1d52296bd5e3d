"""Tokens are drawn as often as their probability says, from those that stay and no others."""

from __future__ import annotations

import pytest
import torch

from kernels.ops.sampling.top_k_top_p import agree, reference, top_k_top_p_sample

LOGITS = torch.tensor([[1.0, 4.0, 2.0, 4.0, 0.0, -1.0, 3.0, -torch.inf]])
UNIFORM = (torch.arange(16) + 0.5) / 16


def _drawn(k: int | None, p: float | None, temperature: float | None = None) -> torch.Tensor:
    rows = LOGITS.expand(16, -1).contiguous()
    given = (
        None if k is None else torch.full((16,), k, dtype=torch.int32),
        *(None if v is None else torch.full((16,), v) for v in (p, temperature)),
    )
    got = top_k_top_p_sample(rows, UNIFORM, *given)
    assert torch.equal(got, reference(rows, UNIFORM, *given))
    agree([got], [rows, UNIFORM, *given])
    return got


def test_tokens_come_in_order_and_as_often_as_they_are_likely() -> None:
    got = _drawn(None, None)
    counts = torch.bincount(got, minlength=8).float() / 16
    assert bool((got.diff() >= 0).all())
    assert float((counts - LOGITS.softmax(-1)[0]).abs().max()) <= 1 / 16


def test_numbers_alike_stay_or_go_together() -> None:
    assert set(_drawn(1, None).tolist()) == {1, 3}
    assert set(_drawn(None, 0.1).tolist()) == {1, 3}
    assert set(_drawn(3, 0.9).tolist()) == {1, 3, 6}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_zero_and_minus_zero_are_alike(dtype: torch.dtype) -> None:
    rows = torch.tensor([[-0.0, 0.0, -1.0, -0.0]], dtype=dtype).expand(16, -1).contiguous()
    got = top_k_top_p_sample(rows, UNIFORM, torch.ones(16, dtype=torch.int32))
    assert set(got.tolist()) == {0, 1, 3}
    assert set(top_k_top_p_sample(rows, UNIFORM, None, torch.full((16,), 0.2)).tolist()) == {0, 1, 3}


LAST = torch.tensor([[-torch.inf] * 6, [torch.nan] * 6, [0.0, 1.0, 7.0, 2.0, 7.0, 3.0]])
"""Without numbers, with NaN alone, with two that are largest."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter divides by zero and takes infinities apart
@pytest.mark.parametrize("given", [(), ("k",), ("p",), ("k", "p")])
@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_rows_without_shares_give_their_largest_whatever_the_list_held(
    given: tuple[str, ...], heat: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(*shape: int, **how: object) -> torch.Tensor:
        return torch.full(shape, 123_456_789, **how)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch, "empty", poisoned)
    k = torch.full((3,), 4, dtype=torch.int32) if "k" in given else None
    p = torch.full((3,), 0.5) if "p" in given else None
    rows, uniform, temperature = LAST.clone(), torch.full((3,), 0.3), torch.full((3,), heat)
    if heat:
        rows[2, 4] = torch.inf
    got = top_k_top_p_sample(rows, uniform, k, p, temperature)
    assert got.tolist() == [0, 0, 4 if heat else 2]
    assert torch.equal(got, reference(rows, uniform, k, p, temperature))
    agree([got], [rows, uniform, k, p, temperature])


def test_a_low_temperature_draws_the_largest() -> None:
    assert set(_drawn(None, 0.9, 0.05).tolist()) == {1, 3}


def test_a_token_beyond_the_share_or_in_another_place_is_seen() -> None:
    p = torch.full((1,), 0.5)
    with pytest.raises(AssertionError, match="beyond the share"):
        agree([torch.tensor([4])], [LOGITS, torch.zeros(1), None, p, None])
    with pytest.raises(AssertionError, match="where u does not fall"):
        agree([torch.tensor([3])], [LOGITS, torch.zeros(1), None, p, None])
    with pytest.raises(AssertionError, match="below the k-th"):
        agree([torch.tensor([6])], [LOGITS, torch.zeros(1), torch.tensor([1], dtype=torch.int32), None, None])
    with pytest.raises(AssertionError, match="that there is not"):
        agree([torch.tensor([8])], [LOGITS, torch.zeros(1), None, None, None])


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(ValueError, match="k is"):
        top_k_top_p_sample(LOGITS, torch.zeros(1), torch.ones(1))
    with pytest.raises(ValueError, match="uniform is"):
        top_k_top_p_sample(LOGITS, torch.zeros(2))
    with pytest.raises(TypeError, match="f32, f16 or bf16"):
        top_k_top_p_sample(LOGITS.double(), torch.zeros(1))
