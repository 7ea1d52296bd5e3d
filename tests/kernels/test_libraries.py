"""Library entries: the call they show is right, conditions are judged, and the rewrite gives what the region gives."""

from __future__ import annotations

import pytest
import torch

from kernels.candidates import build, candidates
from kernels.host import Host
from kernels.libraries import coverage
from kernels.libraries.catalogue import ENTRIES
from kernels.libraries.model import Cover
from profiler.region.graph.lowering import lower
from profiler.region.graph.patterns import match
from profiler.region.language.program import program
from profiler.region.language.text import parse

FEATURES = frozenset({"F.rms_norm", "aten._addmm_activation", "F.grouped_mm", "flex_attention"})
H200 = Host("NVIDIA H200", (9, 0), {}, frozenset({"torch", "triton"}), FEATURES)
A100 = Host("NVIDIA A100", (8, 0), {}, frozenset({"torch", "triton"}), FEATURES)

RMS = """hidden: {d}[32, 64]
g: {d}[64]
v = hidden.float().pow(2).mean(-1, keepdim=True)
y = (hidden.float() * torch.rsqrt(v + 1e-6)).to({d}) * g
z = y * 2
return z
"""
LAYER = """x: f32[32, 64]
w: f32[64]
b: f32[64]
m = x.mean(-1, keepdim=True)
v = ((x - m) ** 2).mean(-1, keepdim=True)
y = (x - m) * torch.rsqrt(v + 1e-5) * w + b
return y
"""
SOFTMAX = """x: f32[6, 50]
s = x * 2
m = s.amax(-1, keepdim=True)
e = torch.exp(s - m)
y = e / e.sum(-1, keepdim=True)
return y
"""
ATTENTION = """q: {d}[2, 3, 16, 8]
k: {d}[2, 3, 20, 8]
v: {d}[2, 3, 20, 8]
bias: {d}[16, 20]
s = q @ k.transpose(-2, -1) * 0.35 + bias
p = torch.softmax(s.float(), -1).to({d})
o = p @ v
y = o.transpose(1, 2).reshape(2, 16, 24)
return y
"""
CAUSAL = """q: f32[2, 3, 16, 8]
k: f32[2, 3, 16, 8]
v: f32[2, 3, 16, 8]
s = q @ k.transpose(-2, -1) / 2.5
m = torch.ones(16, 16, dtype=torch.bool).tril()
s = s.masked_fill(~m, float("-inf"))
y = torch.softmax(s, -1) @ v
return y
"""
DROPPED = """q: f32[2, 3, 16, 8]
k: f32[2, 3, 16, 8]
v: f32[2, 3, 16, 8]
drop: bool[16, 16].mask(0.3)
s = q @ k.transpose(-2, -1) * 0.4
s = s.masked_fill(drop, -1e9)
y = torch.softmax(s, -1) @ v
return y
"""
GELU = """x: f32[9, 40]
u = 0.7978845608 * (x + 0.044715 * x ** 3)
y = 0.5 * x * (1 + torch.tanh(u))
return y
"""
LINEAR_RELU = """x: f32[16, 24]
w: f32[24, 32]
b: f32[32]
y = torch.relu(x @ w + b)
return y
"""
LINEAR_GELU = """x: f32[16, 24]
w: f32[32, 24]
b: f32[32]
y = F.gelu(F.linear(x, w, b), approximate="tanh")
return y
"""
EXAMPLE = """x: bf16[64, 32]
w: bf16[32, 128]
b: bf16[128]
mask: bf16[64, 128]
z = x @ w
z = z + b
z = gelu(z)
y = z * mask
return y
"""
GROUPED = """q: f32[2, 6, {t}, 8]
k: f32[2, 2, 20, 8]
v: f32[2, 2, 20, 8]
{body}"""
GROUPED_BODIES = (
    """keys = k.repeat_interleave(3, dim=1)
values = v.repeat_interleave(3, dim=1)
y = torch.softmax(q @ keys.transpose(-1, -2) * 0.35, -1) @ values
return y
""",
    """keys = k[:, :, None].expand(2, 2, 3, 20, 8).reshape(2, 6, 20, 8)
values = v[:, :, None].expand(2, 2, 3, 20, 8).reshape(2, 6, 20, 8)
y = torch.softmax(q @ keys.transpose(-1, -2) * 0.35, -1) @ values
return y
""",
    """g = q.view(2, 2, 3, {t}, 8)
s = g @ k.unsqueeze(2).transpose(-1, -2) * 0.35
y = (torch.softmax(s, -1) @ v.unsqueeze(2)).reshape(2, 6, {t}, 8)
return y
""",
)
"""Heads of keys that several heads of queries read: repeated, spread, in five dimensions."""
GROUPED_TEXTS = [
    GROUPED.replace("{body}", body).replace("{t}", rows) for body in GROUPED_BODIES for rows in ("16", "1")
]
POSITIONS = CAUSAL.replace(
    "torch.ones(16, 16, dtype=torch.bool).tril()", "torch.arange(16)[:, None] >= torch.arange(16)[None, :]"
)
ADDED = CAUSAL.replace('s.masked_fill(~m, float("-inf"))', 's + torch.where(m, 0.0, float("-inf"))')


def wide(text: str) -> str:
    """With heads of 16, the least that FlexAttention's kernels take."""
    return (
        text.replace(", 8]", ", 16]").replace("20, 8)", "20, 16)").replace(", 8)", ", 16)").replace("16, 24", "16, 48")
    )


FLEX = "library:torch.nn.attention.flex_attention"
SDPA = "library:torch.nn.functional.scaled_dot_product_attention"
ADDMM = "library:torch.ops.aten._addmm_activation"
CASES = [
    (RMS.format(d="f32"), "library:torch.nn.functional.rms_norm", "F.rms_norm(hidden, (64,), weight=g, eps=1e-06)"),
    (RMS.format(d="bf16"), "library:torch.nn.functional.rms_norm", "F.rms_norm(hidden, (64,), weight=g, eps=1e-06)"),
    (LAYER, "library:torch.nn.functional.layer_norm", "F.layer_norm(x, (64,), weight=w, bias=b, eps=1e-05)"),
    (SOFTMAX, "library:torch.softmax", "torch.softmax(s, dim=-1)"),
    (ATTENTION.format(d="f32"), SDPA, "scale=0.35"),
    (ATTENTION.format(d="bf16"), SDPA, "attn_mask=bias"),
    (CAUSAL, SDPA, "is_causal=True"),
    (DROPPED, SDPA, "attn_mask=~drop"),
    (wide(ATTENTION.format(d="f32")), FLEX, "return score + bias[q_idx, kv_idx]"),
    (wide(CAUSAL), FLEX, "return q_idx >= kv_idx"),
    (wide(DROPPED), FLEX, "torch.where(drop[q_idx, kv_idx], -1000000000, score)"),
    *((text, SDPA, "attn_mask=None, is_causal=False, scale=0.35)") for text in GROUPED_TEXTS),
    *((wide(text), FLEX, "scale=0.35, enable_gqa=True") for text in GROUPED_TEXTS),
    (POSITIONS, SDPA, "attn_mask=None, is_causal=True"),
    (ADDED, SDPA, "attn_mask=None, is_causal=True"),
    (GELU, "library:torch.nn.functional.gelu", 'F.gelu(x, approximate="tanh")'),
    (LINEAR_RELU, ADDMM, "_addmm_activation(b, x, w, use_gelu=False)"),
    (LINEAR_GELU, ADDMM, "use_gelu=True"),
]


def covers(text: str, host: Host = H200) -> dict[str, Cover]:
    graph = lower(parse(text))
    return {c.candidate: c for c in coverage(graph, match(graph), host)}


@pytest.mark.parametrize(("text", "candidate", "call"), CASES)
def test_a_rewritten_region_gives_the_same(text: str, candidate: str, call: str) -> None:
    cover = covers(text)[candidate]
    assert cover.covers
    assert cover.installed
    assert not cover.already
    assert call in cover.call
    region = parse(text)
    torch.manual_seed(3)
    inputs = [
        torch.rand(t.shape) < 0.3 if t.dtype == torch.bool else torch.randn(t.shape).to(t.dtype)
        for t in program(region).inputs
    ]
    expected = program(region).module(*inputs)
    run = build(candidate, region, {}, "cpu")
    got = run(*inputs)
    bound = 2e-2 if "bf16" in text else 2e-5
    # cuBLASLt's GELU is the tanh form, the CPU's the exact one: up to 5e-4 apart
    bound = 1e-3 if candidate == ADDMM and "gelu" in text else bound
    for mine, wanted in zip(got, expected, strict=True):
        assert (mine.shape, mine.dtype) == (wanted.shape, wanted.dtype)
        torch.testing.assert_close(mine, wanted, atol=bound, rtol=bound)


def test_heads_repeated_in_another_order_are_taken_for_groups() -> None:
    """repeat() lays heads out as 0 1 0 1, SDPA's groups as 0 0 1 1."""
    text = GROUPED_TEXTS[0].replace("k.repeat_interleave(3, dim=1)", "k.repeat(1, 3, 1, 1)")
    assert "enable_gqa" not in covers(text)[SDPA].call if SDPA in covers(text) else True


def test_the_rewrite_calls_the_library_and_drops_what_it_replaces() -> None:
    from kernels.libraries.adapters.rewrite import adapt

    graph = lower(parse(RMS.format(d="bf16")))
    module = adapt(graph, [m for m in match(graph) if m.kind == "rms_norm"], "rms_norm")
    called = [n.target for n in module.graph.nodes if n.op == "call_function"]
    assert called[0] is torch.nn.functional.rms_norm
    assert [str(t) for t in called[1:]] == ["aten.mul.Tensor"]
    assert len(list(graph.module.graph.nodes)) > len(list(module.graph.nodes))


def test_gradients_flow_through_a_rewritten_region() -> None:
    text = (
        RMS.format(d="f32")
        .replace("[32, 64]", "[32, 64].requires_grad")
        .replace("g: f32[64]", "g: f32[64].requires_grad")
    )
    region = parse(text)
    x, g = torch.randn(32, 64), torch.randn(64)
    collected = []
    for name in ("eager", "library:torch.nn.functional.rms_norm"):
        values = [x.clone().requires_grad_(), g.clone().requires_grad_()]
        (out,) = build(name, region, {}, "cpu")(*values)
        collected.append(torch.autograd.grad(out.sum(), values))
    for mine, wanted in zip(*collected, strict=True):
        torch.testing.assert_close(mine, wanted, atol=1e-4, rtol=1e-4)


def test_no_library_covers_the_whole_example() -> None:
    found = covers(EXAMPLE).values()
    assert not [c.candidate for c in found if c.covers and c.whole]
    product = covers(EXAMPLE)["library:torch.mm"]
    assert product.already
    assert product.operations == {"mm"}


def test_a_region_that_is_the_call_already_says_so() -> None:
    text = "x: bf16[32, 64]\nw: bf16[64]\ny = F.rms_norm(x, (64,), w, 1e-6)\nreturn y\n"
    cover = covers(text)["library:torch.nn.functional.rms_norm"]
    assert cover.already
    assert cover.whole
    assert cover.call == "F.rms_norm(x, (64,), weight=w, eps=1e-06)"
    reasons = {c.name: c.reason for c in candidates(lower(parse(text)), H200)}
    assert "already" in reasons["library:torch.nn.functional.rms_norm"]


def test_a_call_between_casts_is_three_kernels_and_not_the_call_already() -> None:
    region = parse("x: bf16[32, 64]\ny = torch.softmax(x.float(), -1).to(bf16)\nreturn y\n")
    graph = lower(region)
    (cover,) = (c for c in coverage(graph, match(graph), H200) if c.candidate == "library:torch.softmax")
    assert not cover.already
    assert cover.covers
    assert cover.call == "torch.softmax(x, dim=-1)"
    x = torch.randn(32, 64).to(torch.bfloat16)
    (got,) = build(cover.candidate, region, {}, "cpu")(x)
    torch.testing.assert_close(got, torch.softmax(x, -1))
    assert covers("x: bf16[32, 64]\ny = torch.softmax(x, -1)\nreturn y\n")["library:torch.softmax"].already


def test_a_result_in_a_wider_dtype_is_asked_of_the_call_or_denied() -> None:
    cover = covers("x: bf16[32, 64]\ny = torch.softmax(x.float(), -1)\nreturn y\n")["library:torch.softmax"]
    assert cover.call == "torch.softmax(x, dim=-1, dtype=torch.float32)"
    assert not cover.already
    assert "Not measured" not in cover.note
    text = "x: bf16[32, 64]\ni: i64[32]\ny = F.cross_entropy(x.float(), i)\nreturn y\n"
    assert not covers(text)["library:torch.nn.functional.cross_entropy"].covers


@pytest.mark.parametrize("how", ["torch.softmax(x.float(), -1)", "e / e.sum(-1, keepdim=True)"], ids=["call", "hand"])
def test_softmax_of_narrow_numbers_into_wide_ones_is_one_call_with_a_dtype(how: str) -> None:
    from kernels.libraries.adapters.rewrite import adapt
    from kernels.libraries.covers import everything

    lines = "h = x.float()\ne = torch.exp(h - h.amax(-1, keepdim=True))\n" if "e.sum" in how else ""
    region = parse(f"x: bf16[32, 64]\n{lines}y = {how}\nreturn y\n")
    graph = lower(region)
    (found,) = (m for m in everything(graph, match(graph)) if m.kind == "softmax")
    called = [n for n in adapt(graph, [found], "softmax").graph.nodes if n.op == "call_function"]
    assert [(n.target, n.kwargs) for n in called] == [(torch.softmax, {"dtype": torch.float32})]
    x = torch.randn(32, 64).to(torch.bfloat16)
    (got,) = build("library:torch.softmax", region, {}, "cpu")(x)
    torch.testing.assert_close(got, torch.softmax(x.double(), -1).float(), atol=1e-7, rtol=1e-6)
    reasons = {c.name: c.reason for c in candidates(graph, H200)}
    assert reasons["library:torch.softmax"] == ""


def test_an_operand_that_is_one_of_several_results_is_looked_at() -> None:
    """x is a part of what sort gives, which is no operation by itself."""
    text = "x: bf16[32, 64]\nv, i = torch.sort(x, -1)\ny = torch.softmax(v.float(), -1)\nreturn y, i\n"
    assert covers(text)["library:torch.softmax"].call == "torch.softmax(v, dim=-1, dtype=torch.float32)"


def test_conditions_follow_the_host_and_are_unknown_without_a_gpu() -> None:
    text = "x: bf16[16, 64]\nw: bf16[64]\nv = x.float().pow(2).mean(-1, keepdim=True)\n" \
           "y = (x.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w\nreturn y\n"  # fmt: skip
    quack = "library:quack.rmsnorm"
    held = [covers(text, h)[quack].conditions[0][1] for h in (H200, A100, Host())]
    assert held == [True, False, None]
    assert [covers(text, h)[quack].covers for h in (H200, A100, Host())] == [True, False, True]
    assert not covers(text, H200)[quack].installed
    assert covers(text, H200)[quack].install == "pip install quack-kernels"
    assert "no adapter" not in covers(text, H200)[quack].note


def test_a_weight_of_another_dtype_is_a_failed_condition() -> None:
    text = "x: bf16[16, 64]\nw: f32[64]\nv = x.float().pow(2).mean(-1, keepdim=True)\n" \
           "y = (x.float() * torch.rsqrt(v + 1e-6) * w).to(bf16)\nreturn y\n"  # fmt: skip
    found = covers(text)["library:torch.nn.functional.rms_norm"]
    assert dict(found.conditions)["weight in x's dtype, else torch runs it in several kernels"] is False
    assert not found.covers


def test_entries_name_each_call_once_and_every_adapter_exists() -> None:
    from kernels.libraries.adapters.rewrite import ADAPTERS

    names = [e.candidate for e in ENTRIES]
    assert len(names) == len(set(names))
    assert all(n.startswith("library:") for n in names)
    assert {e.adapter for e in ENTRIES if e.adapter} <= set(ADAPTERS)
    assert all(e.source for e in ENTRIES)
