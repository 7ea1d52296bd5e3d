"""Paged decoding: every variant, pages that are not a sequence's own, lengths at the edges, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.agreement import disagreement
from kernels.ops.attention.flash_attention import reference as attention
from kernels.ops.attention.paged_decode import OPERATIONS, inputs, launch, paged_decode, space, tuner
from kernels.spec import Maker, case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

(PAGED,) = OPERATIONS


@pytest.mark.parametrize("page", [16, 64])
@pytest.mark.parametrize("more", [{}, {"window": 70, "cap": 4.0}], ids=["plain", "window and cap"])
def test_every_variant_agrees(page: int, more: dict[str, Any]) -> None:
    c = case("f16", b=3, kv=2, h=2, t=290, d=64, page=page, ragged=True, logsumexp=True, **more)
    arguments = q, k, v, table, lengths, window, cap, _, _ = inputs(c, Maker(seed=4))
    for variant in space(q, 2, page, table.shape[1] * page, window, cap, True):
        o, lse = torch.full_like(q, torch.nan), torch.full(q.shape[:2], torch.nan)
        launch(variant, q, k, v, table, lengths, o, lse, window, cap, 64**-0.5)
        assert disagreement(PAGED, (o, lse), arguments) == "", str(variant)


def test_a_sequence_reads_its_own_pages_and_nothing_behind_its_length() -> None:
    q, k, v, table, lengths, *_ = inputs(case("f32", b=2, kv=1, h=2, t=40, d=16, page=16), Maker())
    lengths[1] = 19
    for cache in (k, v):
        cache[table[1, 1], 3:] = math.nan  # behind the second sequence's last key
        cache[table[1, 2]] = math.nan
    o = paged_decode(q, k, v, table, lengths)
    assert isinstance(o, torch.Tensor)
    assert torch.isfinite(o).all()


def test_tuning_copies_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches fill a GPU: a copy has no room beside them."""
    arguments = inputs(case("f32", b=2, kv=1, h=2, t=40, d=16, page=16), Maker())
    pick, seen = tuner.pick, []

    def watched(*given: Any, uncopied: Any = ()) -> Any:
        seen.append({id(x) for x in uncopied})
        return pick(*given, uncopied=uncopied)

    monkeypatch.setattr(tuner, "pick", watched)
    paged_decode(*arguments)
    assert len(seen) == 1
    assert {id(x) for x in arguments[:5]} <= seen[0]


def test_it_is_the_last_row_of_causal_attention() -> None:
    q, k, v, table, lengths, *_ = inputs(case("f32", b=2, kv=2, h=2, t=33, d=16, page=16), Maker())
    keys, values = (x[table.long()].flatten(1, 2)[:, :33].transpose(1, 2) for x in (k, v))
    wanted = attention(q[:, :, None], keys, values)
    assert isinstance(wanted, torch.Tensor)
    got = paged_decode(q, k, v, table, lengths)
    torch.testing.assert_close(got, wanted[:, :, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 47, 48])
def test_lengths_at_the_edges_of_pages(length: int) -> None:
    q, k, v, table, lengths, *_ = inputs(case("f16", b=2, kv=1, h=1, t=48, d=16, page=16), Maker())
    lengths.fill_(length)
    arguments = (q, k, v, table, lengths, None, None, None, True)
    assert disagreement(PAGED, paged_decode(*arguments), arguments) == ""


def test_no_keys_give_zeros_and_a_length_beyond_the_table_is_cut() -> None:
    q, k, v, table, lengths, *_ = inputs(case("f32", b=2, kv=1, h=1, t=32, d=16, page=16), Maker())
    o, lse = paged_decode(q, k, v, table, lengths * 0, logsumexp=True)
    assert not o.any()
    assert bool((lse == -math.inf).all())
    o, lse = paged_decode(q, k, v, table[:, :0], lengths, logsumexp=True)
    assert not o.any()
    assert bool((lse == -math.inf).all())
    assert torch.equal(paged_decode(q, k, v, table, lengths * 9), paged_decode(q, k, v, table, lengths))


def test_integers_of_64_bits_and_caches_with_heads_first_are_taken() -> None:
    q, k, v, table, lengths, *_ = inputs(case("f32", b=2, kv=3, h=2, t=40, d=16, page=16), Maker())
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v)]
    wanted = paged_decode(q, k, v, table, lengths)
    assert torch.equal(paged_decode(q, *turned, table.long(), lengths.long()), wanted)


Q, K, T, L = torch.zeros((2, 4, 16)), torch.zeros((5, 8, 2, 16)), torch.zeros((2, 3)).int(), torch.ones(2).int()


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: paged_decode(Q.half(), K, K, T, L), TypeError, "alike"),
        (lambda: paged_decode(Q, K, K, T.float(), L), TypeError, "integers"),
        (lambda: paged_decode(Q[0], K, K, T, L), ValueError, r"\[B, H, D\]"),
        (lambda: paged_decode(Q, K, K[..., :8], T, L), ValueError, r"8\]"),
        (lambda: paged_decode(Q[:, :3], K, K, T, L), ValueError, "3 query heads cannot share 2"),
        (lambda: paged_decode(Q, K, K, T[:1], L), ValueError, "2 sequences"),
        (lambda: paged_decode(Q, K, K, T, L, window=-1), ValueError, "window"),
        (lambda: paged_decode(Q, K, K, T, L, cap=0.0), ValueError, "cap"),
    ],
)
def test_what_is_refused_says_why(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
