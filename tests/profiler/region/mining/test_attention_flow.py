"""Attention as people write it, recorded here and mined: one region with both products, whatever stands between."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.mining.attention_flow import LOOKBACK, Thread, find_attention
from profiler.region.mining.mine import Mining, mine
from profiler.region.mining.unit_letters import letter
from profiler.region.mining.units import Argument, Sig, Unit
from profiler.trace.model import NONE
from profiler.trace.read.reader import read_trace
from tests.profiler.region.recording import record

Tensor = torch.Tensor
BATCH, HEADS, LENGTH, DEPTH = 2, 4, 16, 32
SCALE = DEPTH**-0.5
SHAPE = (BATCH, HEADS, LENGTH, DEPTH)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape)


def guarded(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """Rows that are hidden altogether are zeros."""
    scores = (q @ k.transpose(-2, -1) * SCALE).masked_fill(hidden, -math.inf)
    return torch.nan_to_num(F.softmax(scores, -1), 0.0) @ v


def masked_again(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1) * SCALE).masked_fill(hidden, -3e38)
    return F.softmax(scores, -1).masked_fill(hidden, 0.0) @ v


def head_weighted(q: Tensor, k: Tensor, v: Tensor, weight: Tensor) -> Tensor:
    return (F.softmax(q @ k.transpose(-2, -1) / math.sqrt(DEPTH), -1) * weight) @ v


def windowed(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
    """Swin: a bias of the heads and a mask of the windows, in five dimensions."""
    scores = (q * SCALE) @ k.transpose(-2, -1) + bias
    scores = scores.view(1, *scores.shape) + mask[None, :, None]
    return F.softmax(scores.view(BATCH, HEADS, LENGTH, LENGTH), -1) @ v


def with_sink(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) * SCALE
    scores = torch.cat([scores, sink.expand(BATCH, HEADS, LENGTH, 1)], -1)
    scores = scores - scores.max(-1, keepdim=True).values
    return F.softmax(scores, -1)[..., :-1] @ v


def talking_heads(q: Tensor, k: Tensor, v: Tensor, before: Tensor, after: Tensor) -> Tensor:
    scores = (q * SCALE) @ k.transpose(-2, -1)
    scores = F.linear(scores.permute(0, 2, 3, 1), before).permute(0, 3, 1, 2)
    p = F.linear(F.softmax(scores, -1).permute(0, 2, 3, 1), after).permute(0, 3, 1, 2)
    return p @ v


def cosine(q: Tensor, k: Tensor, v: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.softmax(q @ k.transpose(-2, -1) * scale + bias, -1) @ v


def relative(q: Tensor, k: Tensor, v: Tensor, positions: Tensor, index: Tensor) -> Tensor:
    """DeBERTa: a second product, gathered by position, is added to the scores."""
    q, k, v = (z.reshape(BATCH * HEADS, LENGTH, DEPTH) for z in (q, k, v))
    scores = torch.bmm(q, k.transpose(-2, -1) * SCALE)
    scores = scores + torch.gather(torch.bmm(q, positions.transpose(-2, -1)), -1, index) * SCALE
    return torch.bmm(F.softmax(scores, -1), v)


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads in groups, without copies of the keys and values."""
    q = q.view(BATCH, HEADS // 2, 2, LENGTH, DEPTH)
    return F.softmax(q @ k[:, :, None].transpose(-2, -1) * SCALE, -1) @ v[:, :, None]


GROUPED = (BATCH, HEADS // 2, LENGTH, DEPTH)
QKV = tuple(randn(*SHAPE) for _ in range(3))
HIDDEN = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
FORMS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], int]] = {
    "guarded": (guarded, (*QKV, HIDDEN), 2),
    "masked_again": (masked_again, (*QKV, HIDDEN), 2),
    "head_weighted": (head_weighted, (*QKV, randn(1, HEADS, 1, 1)), 2),
    "windowed": (windowed, (*QKV, randn(1, HEADS, LENGTH, LENGTH), randn(BATCH, LENGTH, LENGTH)), 2),
    "with_sink": (with_sink, (*QKV, randn(1, HEADS, 1, 1)), 2),
    "talking_heads": (talking_heads, (*QKV, randn(HEADS, HEADS), randn(HEADS, HEADS)), 2),
    "cosine": (cosine, (*QKV, randn(HEADS, 1, 1), randn(1, HEADS, LENGTH, LENGTH)), 2),
    "relative": (
        relative,
        (*QKV, randn(BATCH * HEADS, 24, DEPTH), torch.randint(0, 24, (BATCH * HEADS, LENGTH, LENGTH))), 3,
    ),
    "grouped": (grouped, (QKV[0], randn(*GROUPED), randn(*GROUPED)), 2),
}  # fmt: skip
PRODUCTS = frozenset({"matmul", "bmm", "baddbmm"})
VIEWED = frozenset({"windowed", "with_sink", "relative", "grouped", "masked_again"})
"""Their texts' inputs are views of what the function was given, or one mask read twice."""


def mined(path: Path, function: Callable[..., object], *args: Tensor) -> Mining:
    return mine(read_trace(record(path, function, *args)))


@pytest.mark.parametrize("name", FORMS)
def test_attention_is_one_region_and_its_text_computes_it(name: str, tmp_path: Path) -> None:
    function, args, products = FORMS[name]
    mining = mined(tmp_path / "t.json", function, *args)
    assert [r.title for r in mining.regions] == ["attention by hand"], [(r.title, r.operations) for r in mining.regions]
    (region,) = mining.regions
    assert sum(o in PRODUCTS for o in region.operations) == products
    assert region.text is not None, region.missing
    built = program(parse(region.text))
    q, k, v, *others = args
    as_read = [q, k, *others, v]
    if name not in VIEWED:
        assert [tuple(i.shape) for i in built.inputs] == [tuple(a.shape) for a in as_read]
        torch.testing.assert_close(built.module(*as_read)[0], function(*args), rtol=1e-4, atol=1e-4)


def test_keys_and_values_from_a_cache_do_not_cut_it(tmp_path: Path) -> None:
    past, new = (randn(BATCH, HEADS, 48, DEPTH) for _ in range(2)), (randn(BATCH, HEADS, 1, DEPTH) for _ in range(2))
    past_k, past_v, (k, v) = *past, tuple(new)

    def cached(q: Tensor, mask: Tensor) -> Tensor:
        keys = torch.cat([past_k, k], 2)
        scores = q @ keys.transpose(-2, -1) * SCALE
        values = torch.cat([past_v, v], 2)
        return F.softmax(scores + mask, -1) @ values

    mining = mined(tmp_path / "t.json", cached, randn(BATCH, HEADS, 1, DEPTH), randn(BATCH, 1, 1, 49))
    attention = next(r for r in mining.regions if r.title == "attention by hand")
    assert attention.operations == ("matmul", "mul", "add", "softmax", "matmul")
    assert {r.title for r in mining.regions} == {"attention by hand", "concatenation"}


def test_a_cache_that_is_written_in_between_does_not_cut_it(tmp_path: Path) -> None:
    keys, values = randn(BATCH, HEADS, 48, DEPTH), randn(BATCH, HEADS, 48, DEPTH)
    place = torch.tensor([5])

    def cached(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys.index_copy_(2, place, k)
        scores = q @ keys.transpose(-2, -1) * SCALE
        values.index_copy_(2, place, v)
        return F.softmax(scores, -1) @ values

    mining = mined(tmp_path / "t.json", cached, *(randn(BATCH, HEADS, 1, DEPTH) for _ in range(3)))
    attention = next(r for r in mining.regions if r.title == "attention by hand")
    assert attention.operations == ("matmul", "mul", "softmax", "matmul")
    assert {r.title for r in mining.regions} == {"attention by hand", "scatter"}


@pytest.mark.parametrize("name", ["guarded", "masked_again", "head_weighted", "cosine"])
def test_its_backward_is_in_the_same_region(name: str, tmp_path: Path) -> None:
    function, args, _ = FORMS[name]
    operands = [a.detach().clone().requires_grad_() if a.is_floating_point() else a for a in args]
    upstream = randn(*SHAPE)

    def train() -> None:
        F.dropout(function(*operands), 0.1).backward(upstream)

    mining = mined(tmp_path / "t.json", train)
    attention = mining.regions[0]
    assert (attention.title, attention.backward) == ("attention by hand", True)
    assert not [r.title for r in mining.regions if "GEMM" in r.title or "softmax" in r.title.lower()]


def test_each_layer_has_its_own_where_scores_look_like_heads(tmp_path: Path) -> None:
    """As many positions as numbers in a head: scores, keys and values have equal sizes."""
    q, k, v = (randn(BATCH, HEADS, DEPTH, DEPTH) for _ in range(3))

    def layers(hidden: Tensor) -> Tensor:
        for _ in range(3):
            hidden = guarded(q + hidden, k, v, torch.zeros(1, dtype=torch.bool))
        return hidden

    attention = [r for r in mined(tmp_path / "t.json", layers, v).regions if r.title == "attention by hand"]
    assert sum(r.calls_per_step for r in attention) == 3
    assert all(r.operations.count("matmul") == 2 for r in attention)


def test_a_softmax_between_products_of_others_is_no_attention(tmp_path: Path) -> None:
    """A router's: what it makes is added up, and the product behind it reads something else."""

    def gated(x: Tensor, router: Tensor, w: Tensor) -> Tensor:
        chance = F.softmax(x @ router, -1)
        return (x @ w) * chance.amax(-1, keepdim=True)

    mining = mined(tmp_path / "t.json", gated, randn(64, 32), randn(32, 8), randn(32, 32))
    assert "attention by hand" not in {r.title for r in mining.regions}


def tensor(*dims: int) -> Argument:
    return Argument("tensor", (Sig("f32", dims),))


SCORES = (BATCH, HEADS, LENGTH, LENGTH)
PRODUCT = ("matmul", (tensor(*SHAPE), tensor(BATCH, HEADS, DEPTH, LENGTH)))
SCALED = ("mul", (tensor(*SCORES), Argument("lost", (Sig("f32", ()),))))
SOFTMAX = ("softmax", (tensor(*SCORES), Argument("value", (), -1), Argument("none")))
SECOND = ("matmul", (tensor(*SCORES), tensor(*SHAPE)))
VIEWS = (
    ("view", (tensor(*SCORES), Argument("value", (), SCORES))),
    ("view", (tensor(7, 3), Argument("value", (), (21,)))),
)
"""Of the scores, and of something else."""
Calls = Sequence[tuple[str, tuple[Argument, ...]]]


def attention_of(calls: Calls) -> list[list[str]]:
    """Names of the units of each attention among calls of which the views launch nothing."""
    units = [
        Unit(i, name, True, 1, args, NONE, NONE, float(i), kernels=[] if name == "view" else [i])
        for i, (name, args) in enumerate(calls)
    ]
    busy = [u for u in units if u.kernels]
    thread = Thread(units, busy, [letter(u) for u in busy], [False] * len(busy), {u.op: u.op for u in units})
    return [[busy[i].name for i in places] for places in find_attention(thread)]


def test_thousands_of_views_between_do_not_cost_their_square() -> None:
    """Each view of the scores is one more tensor whose readers are attention's."""
    views = [VIEWS[i % 2] for i in range(60_000)]
    assert attention_of([PRODUCT, *views, SOFTMAX, SECOND]) == [["matmul", "softmax", "matmul"]]


def test_each_of_450_layers_with_views_between_is_one_attention() -> None:
    between = list(VIEWS) * 5
    layer = [PRODUCT, *between, SCALED, *between, SOFTMAX, *between, SECOND, *between]
    assert attention_of(layer * 450) == [["matmul", "mul", "softmax", "matmul"]] * 450


def test_a_long_chain_of_factors_before_the_product_is_not_all_looked_through() -> None:
    scaled = ("mul", (tensor(*SHAPE), Argument("lost", (Sig("f32", ()),))))
    (names,) = attention_of([*[scaled] * 5_000, PRODUCT, SOFTMAX, SECOND])
    assert names == ["mul"] * (LOOKBACK - 1) + ["matmul", "softmax", "matmul"]
