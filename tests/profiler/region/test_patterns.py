"""Patterns are found by structure, with the roles that a library call needs, and nothing is found that is not there."""

from __future__ import annotations

import pytest

from profiler.region.graph import lower
from profiler.region.patterns import Match, match, region_kind
from profiler.region.text import parse
from tests.profiler.region import texts


def found(text: str) -> tuple[tuple[str, str], tuple[Match, ...]]:
    graph = lower(parse(text))
    matches = match(graph)
    return region_kind(graph, matches), matches


TITLES = {
    texts.EXAMPLE: ("gemm_tail", "GEMM with GELU and mask tail"),
    texts.RMS_NORM: ("rms_norm", "RMSNorm by hand"),
    texts.LAYER_NORM: ("layer_norm", "LayerNorm by hand"),
    texts.ATTENTION: ("attention", "attention by hand"),
    texts.CAUSAL: ("attention", "attention by hand"),
    texts.GELU_TANH: ("gelu_tanh", "GELU (tanh) by hand"),
    texts.SWIGLU: ("swiglu", "SwiGLU"),
    texts.ROPE: ("rope", "RoPE"),
    texts.ADAM: ("pointwise", "pointwise chain"),
    "x: bf16[64, 32]\nw: bf16[16, 32]\nb: bf16[16]\nreturn linear(x, w, b)\n": ("gemm", "GEMM"),
    "x: bf16[64, 32]\nw: bf16[16, 32]\nr: bf16[64, 16]\nreturn linear(x, w) + r\n": (
        "gemm_tail",
        "GEMM with residual tail",
    ),
    "x: bf16[64, 32]\nr: bf16[64, 32]\nreturn x + r\n": ("pointwise", "add"),
    "q: bf16[2, 4, 64, 32]\nreturn scaled_dot_product_attention(q, q, q)\n": ("attention", "SDPA attention"),
    "x: bf16[64, 32]\nreturn layer_norm(x, (32,))\n": ("layer_norm", "LayerNorm"),
    "x: bf16[64, 32]\nreturn softmax(x.float(), -1).to(bf16)\n": ("softmax", "softmax"),
    "x: bf16[64, 32]\nreturn x.transpose(0, 1).contiguous()\n": ("copy", "layout copy"),
}


@pytest.mark.parametrize("text", TITLES)
def test_title_that_an_engineer_would_not_use(text: str) -> None:
    assert found(text)[0] == TITLES[text]


def test_rms_norm_roles() -> None:
    _, (only,) = found(texts.RMS_NORM)
    assert only.roles == {"x": "x", "weight": "w", "eps": 1e-6, "width": 2048}
    assert only.by_hand


def test_attention_roles() -> None:
    _, (only,) = found(texts.ATTENTION)
    assert only.roles["q"] == "q"
    assert only.roles["k"] == "k"
    assert only.roles["k_transposed"] is True
    assert only.roles["mask"] == "bias"
    assert only.roles["mask_kind"] == "additive"
    assert only.roles["scale"] == pytest.approx(128**-0.5)


def test_causal_mask_is_recognised() -> None:
    _, (only,) = found(texts.CAUSAL)
    assert only.roles["causal"] is True
    assert only.roles["mask"] is None


NEAR_MISSES = {
    "mean over another axis": texts.RMS_NORM.replace("mean(-1", "mean(1"),
    "a third power": texts.RMS_NORM.replace("pow(2)", "pow(3)"),
    "no epsilon": texts.RMS_NORM.replace("v + 1e-06", "v * 1e-06"),
    "the norm of something else": texts.RMS_NORM.replace("y = x * r", "y = (x + 1) * r"),
}


@pytest.mark.parametrize("text", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_miss_is_not_called_rms_norm(text: str) -> None:
    assert "rms_norm" not in [m.kind for m in found(text)[1]]


def test_mask_after_an_activation_is_no_gate() -> None:
    assert [m.kind for m in found(texts.EXAMPLE)[1]] == ["gemm"]


def test_softmax_over_another_axis_is_no_attention() -> None:
    assert "attention" not in [m.kind for m in found(texts.ATTENTION.replace("softmax(s, -1)", "softmax(s, -2)"))[1]]


def test_scale_after_the_bias_is_no_plain_attention() -> None:
    text = texts.ATTENTION.replace("s = s + bias", "s = (s + bias) * 2.0")
    assert "attention" not in [m.kind for m in found(text)[1]]


def test_scores_that_are_returned_stay_computed() -> None:
    text = texts.ATTENTION.replace("return p @ v", "return p @ v, p")
    assert "attention" not in [m.kind for m in found(text)[1]]
