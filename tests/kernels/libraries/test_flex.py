"""FlexAttention in a region's place: every kind of mask and score, forward and backward, against loops in float64."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

from kernels.candidates import build, candidates
from kernels.host import Host
from kernels.libraries import coverage
from kernels.libraries.adapters import flex
from kernels.libraries.model import Cover
from profiler.region.graph.lowering import lower, written_alone
from profiler.region.graph.patterns import match
from profiler.region.graph.scores import functions as score_functions
from profiler.region.graph.scores.masks import SCORE_MOD, function
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.libraries.flex_cases import BY_ITSELF, CASES, Case, T

FLEX = "library:torch.nn.attention.flex_attention"
H200 = Host("NVIDIA H200", (9, 0), {}, frozenset({"torch", "triton"}), frozenset({"flex_attention"}))
NAMED = {n: c for n, c in CASES.items() if n != BY_ITSELF}


def inputs(text: str, seed: int = 3) -> dict[str, torch.Tensor]:
    region = parse(text)
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for item, fake in zip(region.inputs, program(region).inputs, strict=True):
        if fake.dtype == torch.bool:
            value = torch.rand(fake.shape, generator=generator) < 0.6
            value[..., 0] = item.name != "hidden"  # no row is hidden as a whole
        elif fake.dtype.is_floating_point:
            value = torch.randn(fake.shape, generator=generator, dtype=torch.float64).to(fake.dtype)
            if item.name == "m":  # slopes of few digits: times a position they are exact in bf16 too
                value = (value * 4).round() / 4
        else:
            value = torch.randint(0, item.below or 2, fake.shape, generator=generator)
        made[item.name] = value.requires_grad_(item.requires_grad)
    return made


def cover(text: str) -> Cover:
    graph = written_alone(lower(parse(text)))
    return next(c for c in coverage(graph, match(graph), H200) if c.candidate == FLEX)


@pytest.mark.parametrize("case", NAMED.values(), ids=NAMED)
def test_torchs_own_reference_gives_what_loops_over_all_scores_give(case: Case) -> None:
    text = case.text("f32")
    given = inputs(text)
    (got,) = build(FLEX, parse(text), {}, "cpu")(*given.values())
    torch.testing.assert_close(got.double(), case.reference(given), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("case", NAMED.values(), ids=NAMED)
def test_gradients_are_those_of_loops_over_all_scores(case: Case) -> None:
    text = case.text("f64", grad=True)
    mine, wanted = inputs(text), inputs(text)
    (got,) = build(FLEX, parse(text), {}, "cpu")(*mine.values())
    expected = case.reference(wanted)
    torch.testing.assert_close(got, expected, atol=1e-7, rtol=1e-7)
    upstream = torch.randn(got.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    ours, theirs = (
        torch.autograd.grad(out, [t for t in values.values() if t.requires_grad], upstream)
        for out, values in ((got, mine), (expected, wanted))
    )
    assert len(ours) >= 3
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-6)


@pytest.mark.gpu
@pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning"
)  # torch 2.11's own, of a compiled mask
@pytest.mark.parametrize("grad", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("case", NAMED.values(), ids=NAMED)
def test_the_compiled_kernels_give_what_loops_over_all_scores_give(case: Case, grad: bool) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU")
    text = case.text("bf16", grad=grad)
    given = inputs(text)
    there = {n: t.detach().cuda().requires_grad_(t.requires_grad) for n, t in given.items()}
    (got,) = build(FLEX, parse(text), {}, "cuda")(*there.values())
    expected = case.reference(given)
    assert (got.double().cpu() - expected).abs().max() < 3e-2
    if grad:
        upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(9))
        ours = torch.autograd.grad(got, [t for t in there.values() if t.requires_grad], upstream.cuda().bfloat16())
        theirs = torch.autograd.grad(expected, [t for t in given.values() if t.requires_grad], upstream.double())
        for own, other in zip(ours, theirs, strict=True):
            assert (own.double().cpu() - other.double()).norm() < 3e-2 * other.double().norm()


@pytest.mark.parametrize("case", [c for c in NAMED.values() if c.mod or c.mask],
                         ids=[n for n, c in NAMED.items() if c.mod or c.mask])  # fmt: skip
def test_the_functions_read_as_a_person_would_write_them(case: Case) -> None:
    call = cover(case.text("f32")).call
    returned = dict(re.findall(r"def (\w+)\(.*\):\n    return (.*)", call))
    assert returned.get("score_mod", "") == case.mod
    assert returned.get("mask_mod", "") == case.mask
    assert ("enable_gqa=True" in call) == (case.groups != 4)


@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
@pytest.mark.parametrize("case", NAMED.values(), ids=NAMED)
def test_what_is_shown_runs_and_gives_the_same(case: Case) -> None:
    """As it is pasted; uncompiled, because torch's CPU has no kernel for all of it."""
    text = case.text("f32")
    given = inputs(text)
    space: dict[str, Any] = {"torch": torch, **given}
    exec(compile(cover(text).call.replace("torch.compile(", "("), "<call>", "exec"), space)  # noqa: S102
    torch.testing.assert_close(space["y"].double(), case.reference(given), atol=2e-6, rtol=2e-6)


def test_a_cap_behind_the_mask_is_no_mask() -> None:
    """tanh of a hidden score is -1: it stays in the softmax, and nothing is skipped."""
    case = CASES[BY_ITSELF]
    text = case.text("f32")
    given = inputs(text)
    q, k, v = (given[n].double() for n in "qkv")
    scores = q @ k.transpose(-1, -2) * 0.3
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected = torch.softmax(3.0 * torch.tanh(scores.masked_fill(later, -math.inf) / 3.0), -1) @ v
    assert "mask_mod" not in cover(text).call
    (got,) = build(FLEX, parse(text), {}, "cpu")(*given.values())
    torch.testing.assert_close(got.double(), expected, atol=2e-6, rtol=2e-6)


MUTANTS = [("i[None, :] < 7", "i[None, :] < 8"), ("i[None, :] < 7", "i[None, :] <= 7"), (">= i[None", "> i[None"),
           ("3.0 * tanh(s / 3.0)", "2.0 * tanh(s / 3.0)"), ("3.0 * tanh(s / 3.0)", "3.0 * tanh(s / 2.0)"),
           ("& (i[:, None] - i", "| (i[:, None] - i")]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), MUTANTS)
def test_what_differs_by_one_gets_functions_that_differ_by_one(old: str, new: str) -> None:
    """A window, an order or a cap that is another one: its own value, and never the first one's code."""
    case = CASES["Gemma: cap, window"]
    text = case.text("f32")
    changed = text.replace(old, new)
    assert changed != text
    if "> i[None" in new and ">=" not in new:
        changed = changed.replace("(i[:, None] > i[None, :])", "((i[:, None] > i[None, :]) | (i[None, :] == 0))")
        changed = changed.replace("< 7)", "< 70)")
    given = inputs(text)
    (got,) = build(FLEX, parse(changed), {}, "cpu")(*given.values())
    (wanted,) = program(parse(changed)).module(*given.values())
    torch.testing.assert_close(got, wanted, atol=2e-6, rtol=2e-6)
    assert (got.double() - case.reference(given)).abs().max() > 1e-3
    assert cover(changed).call != cover(text).call


def test_a_block_mask_of_positions_is_made_once_and_one_of_documents_for_every_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    maker = flex._maker
    monkeypatch.setattr(
        flex, "_maker", lambda masked, _: lambda *a, **k: (made.append(a[1:3]), maker(masked, False)(*a, **k))[1]
    )
    flex._kept_blocks.cache_clear()
    counts = {}
    for name in ("window", "documents"):
        text = CASES[name].text("f32")
        run = build(FLEX, parse(text), {}, "cpu")
        for seed in (1, 2, 3):
            given = inputs(text, seed)
            (got,) = run(*given.values())
            torch.testing.assert_close(got.double(), CASES[name].reference(given), atol=2e-6, rtol=2e-6)
        counts[name] = len(made)
        made.clear()
    assert counts == {"window": 1, "documents": 3}


def test_functions_of_many_regions_are_each_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past recompile_limit variants of one code Dynamo runs the next ones as they are, unfused."""
    compiled = []

    def backend(graph: torch.fx.GraphModule, given: list[torch.Tensor]) -> Any:
        compiled.append(graph)
        return graph.forward

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, dynamic: compile_(f, dynamic=dynamic, backend=backend))
    flex._attend.cache_clear()
    q = torch.randn(1, 1, 16, 16)
    regions = torch._dynamo.config.recompile_limit + 3
    for n in range(regions):
        code = f"score + {n} * kv_idx"
        score_mod = function(SCORE_MOD, code, ())()
        got = flex._attend(code, "", True)(q, q, q, score_mod=score_mod, block_mask=None, scale=0.3, enable_gqa=False)
        scores = q @ q.transpose(-1, -2) * 0.3 + n * torch.arange(16)
        torch.testing.assert_close(got, torch.softmax(scores, -1) @ q, atol=2e-6, rtol=2e-6)
    flex._attend.cache_clear()
    assert len(compiled) == regions


def test_blocks_that_a_window_hides_are_not_in_its_block_mask() -> None:
    """1,024 rows, a window of 128: two of eight blocks a row, and not all of them."""
    text = (
        "q: f32[1, 1, 1024, 16]\nk: f32[1, 1, 1024, 16]\nv: f32[1, 1, 1024, 16]\ni = arange(1024)\n"
        "keep = (i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] <= 128)\n"
        "s = torch.where(keep, q @ k.transpose(-1, -2) * 0.25, float('-inf'))\nreturn softmax(s, -1) @ v\n"
    )
    (only,) = score_functions.matches(lower(parse(text)))
    blocks = flex._kept_blocks(flex.Masked(str(only.roles["keep"]), None, None, 1024, 1024), "cpu")
    full = blocks.full_kv_num_blocks.sum() if blocks.full_kv_num_blocks is not None else 0
    assert int(blocks.kv_num_blocks.sum() + full) == 8 + 7
    assert cover(text).density == pytest.approx((8 + 7) / 64)


SHARED = """q: f32[2, 4, 24, 16]
k: f32[2, 4, 24, 16]
v: f32[2, 4, 24, 16]
i = arange(24)
hide = (i[:, None] - i[None, :]).abs() > 6
a = softmax((q @ k.transpose(-1, -2) * 0.3).masked_fill(hide, float('-inf')), -1) @ v
b = softmax((a @ k.transpose(-1, -2) * 0.3).masked_fill(hide, float('-inf')), -1) @ v
return b
"""


def test_a_mask_that_two_layers_share_is_each_ones_own_function() -> None:
    region = parse(SHARED)
    given = inputs(SHARED)
    assert len(score_functions.matches(lower(region))) == 2
    (got,) = build(FLEX, region, {}, "cpu")(*given.values())
    (wanted,) = program(region).module(*given.values())
    torch.testing.assert_close(got, wanted, atol=2e-6, rtol=2e-6)


def test_it_is_a_candidate_where_gradients_are_asked_for() -> None:
    text = CASES["Gemma: cap, window"].text("bf16", grad=True)
    offered = {c.name: c for c in candidates(lower(parse(text)), H200)}
    assert offered[FLEX].available, offered[FLEX].reason


SDPA = "library:torch.nn.functional.scaled_dot_product_attention"
EINSUM = """q: f32[2, 24, 4, 16]
k: f32[2, 24, 4, 16]
v: f32[2, 24, 4, 16]
i = arange(24)
s = einsum("bthd,bshd->bhts", q, k) * 0.3
p = softmax(s.masked_fill(i[None, :] > i[:, None], float("-inf")), -1)
return einsum("bhts,bshd->bthd", p, v)
"""
FIVE = """q: {d}[2, {rows}, 64]
k: {d}[2, 24, 32]
v: {d}[2, 24, 32]
g = q.view(2, {rows}, 2, 2, 16).permute(0, 2, 3, 1, 4)
k = k.view(2, 24, 2, 16).transpose(1, 2)[:, :, None]
v = v.view(2, 24, 2, 16).transpose(1, 2)[:, :, None]
s = g @ k.transpose(-1, -2) * 0.3
return (softmax(s, -1) @ v).permute(0, 3, 1, 2, 4).reshape(2, {rows}, 64)
"""


@pytest.mark.parametrize(("text", "said"), [
    (EINSUM, "attn_mask=None, is_causal=True, scale=0.3)"), (FIVE.format(d="f32", rows=24), "repeat_interleave(2, -3)"),
    (FIVE.format(d="f32", rows=1), "repeat_interleave(2, -3)"), (FIVE.format(d="bf16", rows=24), "enable_gqa=True"),
    (FIVE.format(d="bf16", rows=1), "enable_gqa=True"),
], ids=["einsum", "five dimensions", "five dimensions, decoding", "five, bf16", "five, bf16, decoding"])  # fmt: skip
def test_spellings_with_no_axis_of_heads_are_attention_too(text: str, said: str) -> None:
    region = parse(text)
    graph = lower(region)
    covers = {c.candidate: c for c in coverage(graph, match(graph), H200)}
    assert said in covers[SDPA].call
    given = inputs(text)
    (wanted,) = program(region).module(*given.values())
    for candidate in (SDPA, FLEX):
        assert covers[candidate].covers
        (got,) = build(candidate, region, {}, "cpu")(*given.values())
        bound = 2e-6 if got.dtype == torch.float32 else 2e-2
        torch.testing.assert_close(got, wanted, atol=bound, rtol=bound)


REFUSED = {
    "dropout": "softmax(s, -1).to(f32)|dropout(softmax(s, -1), 0.1)",
    "another axis": "softmax(s, -1)|softmax(s, -2)",
    "scores that other scores change": "return|s = s + s.flip(-1)\nreturn",
    "a row that is hidden as a whole": "return|s = torch.where(i[:, None] > i[None, :], s, -1e9)\nreturn",
    "scores less those of another head": "return|s = s - s[:, :1]\nreturn",
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_no_score_by_itself_says_is_not_taken(change: str) -> None:
    old, new = change.split("|")
    text = CASES["scale alone"].text("f32").replace(old, new)
    assert not score_functions.matches(lower(parse(text)))
