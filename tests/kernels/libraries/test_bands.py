"""What FlexAttention's code says of a band and a cap is read as the numbers that hold it, and nothing else is."""

from __future__ import annotations

import itertools

import pytest
import torch

from kernels.libraries.patterns.bands import Settings, settings

KEPT = [
    "q_idx >= kv_idx", "q_idx > kv_idx - 1", "~(q_idx < kv_idx)", "kv_idx <= q_idx", "kv_idx >= q_idx",
    "(q_idx >= kv_idx) & (kv_idx >= q_idx - 3)", "~((kv_idx > q_idx) | (q_idx >= kv_idx + 4))",
    "(q_idx - kv_idx <= 3) & (q_idx - kv_idx >= 0)", "kv_idx + 5 > q_idx",
    "(kv_idx - q_idx <= 0) & (q_idx < 6 + kv_idx)",
]  # fmt: skip


@pytest.mark.parametrize("keep", KEPT)
def test_the_numbers_keep_what_the_code_keeps(keep: str) -> None:
    found = settings("", keep, 0.5)
    assert found is not None
    for q_idx, kv_idx in itertools.product(range(12), range(12)):
        given = {"q_idx": torch.tensor(q_idx), "kv_idx": torch.tensor(kv_idx)}
        wanted = bool(eval(keep, given))  # noqa: S307 - written above
        inside = (not found.causal or kv_idx <= q_idx) and (found.window is None or kv_idx >= q_idx - found.window)
        assert inside == wanted, (q_idx, kv_idx)


@pytest.mark.parametrize(
    "score", ["20 * torch.tanh(score / 20)", "torch.tanh(score * 0.5) * 3.0", "torch.tanh(score)",
              "0.5 * torch.tanh(-0.5 * score)"]
)  # fmt: skip
def test_the_cap_and_the_scale_give_what_the_code_gives(score: str) -> None:
    found = settings(score, "", 0.25)
    assert found is not None
    assert found.cap is not None
    product = torch.linspace(-50, 50, 101, dtype=torch.float64)
    wanted = eval(score, {"torch": torch, "score": product * 0.25})  # noqa: S307
    torch.testing.assert_close(found.cap * torch.tanh(found.scale * product / found.cap), wanted)


def test_nothing_said_is_plain_attention() -> None:
    assert settings("", "", 0.125) == Settings(False, None, None, 0.125)


@pytest.mark.parametrize(
    ("score", "keep"),
    [
        ("score + 1", ""), ("-2 * torch.tanh(score)", ""), ("torch.tanh(score + 1)", ""), ("torch.sigmoid(score)", ""),
        ("torch.tanh(score) + 1", ""), ("score - tensor0[h] * (q_idx - kv_idx)", ""),
        ("", "q_idx > kv_idx"), ("", "q_idx >= kv_idx - 2"), ("", "(q_idx >= kv_idx) | (kv_idx < 4)"),
        ("", "tensor0[q_idx] == tensor0[kv_idx]"), ("", "q_idx == kv_idx"), ("", "q_idx + kv_idx >= 3"),
        ("", "(q_idx >= kv_idx) & (kv_idx >= 2)"), ("", "~((q_idx >= kv_idx) & (kv_idx >= q_idx - 3))"),
        ("", "kv_idx > q_idx + 2"), ("", "0 <= q_idx - kv_idx <= 3"),
    ],
)  # fmt: skip
def test_what_is_no_band_is_not_taken(score: str, keep: str) -> None:
    assert settings(score, keep, 0.125) is None


def test_a_scale_that_is_a_tensor_is_not_taken() -> None:
    assert settings("", "", "scale") is None
