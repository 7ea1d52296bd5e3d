"""Patterns are found by structure, with the roles that a library call needs, and nothing is found that is not there."""

from __future__ import annotations

import pytest

from profiler.region.graph.lowering import lower
from profiler.region.graph.match_model import Match
from profiler.region.graph.patterns import match, region_kind
from profiler.region.language.text import parse
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
    "x: bf16[64, 32]\nw: bf16[16, 32]\nreturn F.silu(linear(x, w))\n": ("gemm_tail", "GEMM with SiLU tail"),
    "x: bf16[64, 32]\nw: bf16[16, 32]\nreturn F.hardswish(linear(x, w))\n": ("gemm_tail", "GEMM with hard-swish tail"),
    "x: bf16[64, 32]\nreturn F.elu(x)\n": ("pointwise", "ELU"),
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


SQUARE = "x: f32[64, 64]\nz: f32[64, 64]\n"
QKV = "q: f32[2, 4, 64, 64]\nk: f32[2, 4, 64, 64]\nv: f32[2, 4, 64, 64]\nm: bool[64, 64]\nb: f32[64, 64]\n"
SCORES = "s = q @ k.transpose(-1, -2) * 0.125\n"
OTHER_FUNCTIONS = {
    "a mask filled with 0": ("attention", QKV + SCORES + "return softmax(s.masked_fill(m, 0.0), -1) @ v\n"),
    "a mask filled with -1": ("attention", QKV + SCORES + "return softmax(torch.where(m, s, -1.0), -1) @ v\n"),
    "a bias added twice": ("attention", QKV + SCORES + "return softmax(torch.add(s, b, alpha=2), -1) @ v\n"),
    "probabilities turned": ("attention", QKV + SCORES + "return softmax(s, -1).transpose(-2, -1) @ v\n"),
    "a negative scale": ("attention", QKV + SCORES.replace("0.125", "(-0.125)") + "return softmax(s, -1) @ v\n"),
    "a mean that broadcasts along columns": ("rms_norm", SQUARE + "return x * rsqrt(x.pow(2).mean(-1) + 1e-6)\n"),
    "a sum that broadcasts along columns": (
        "softmax",
        SQUARE + "e = exp(x - x.amax(-1, keepdim=True))\nreturn e / e.sum(-1)\n",
    ),
    "the mean of another tensor": (
        "layer_norm",
        SQUARE + "d = x - z.mean(-1, keepdim=True)\nreturn d * rsqrt(d.pow(2).mean(-1, keepdim=True) + 1e-5)\n",
    ),
    "the variance of columns": (
        "layer_norm",
        SQUARE + "d = x - x.mean(-1, keepdim=True)\nreturn d * rsqrt(x.var(0, unbiased=False, keepdim=True) + 1e-5)\n",
    ),
}


@pytest.mark.parametrize(("kind", "text"), OTHER_FUNCTIONS.values(), ids=OTHER_FUNCTIONS)
def test_another_function_is_not_taken_for_the_pattern(kind: str, text: str) -> None:
    assert kind not in [m.kind for m in found(text)[1] if m.by_hand]


def test_softmax_of_what_is_less_the_maximum_of_columns_is_not_taken_for_one_of_rows_as_they_are() -> None:
    text = SQUARE + "e = exp(x - x.amax(0, keepdim=True))\nreturn e / e.sum(-1, keepdim=True)\n"
    (only,) = found(text)[1]
    assert (only.kind, only.roles["x"]) == ("softmax", "sub")


MASKED = {
    "drop": "s.masked_fill(m, float('-inf'))",
    "keep": "torch.where(m, s, float('-inf'))",
    "additive": "s + b",
}


@pytest.mark.parametrize("kind", MASKED)
def test_mask_kinds_are_told_apart(kind: str) -> None:
    (only,) = found(QKV + SCORES + f"p = softmax({MASKED[kind]}, -1)\nreturn dropout(p, 0.1) @ v\n")[1]
    assert only.kind == "attention"
    assert only.roles["mask_kind"] == kind
    assert only.roles["dropout"] == pytest.approx(0.1)


LOGITS = "x: f32[64, 500]\nt: i64[64].below(500)\n"
LOSSES = {
    "F.cross_entropy(x, t)": ("mean", -100),
    "F.cross_entropy(x, t, ignore_index=0)": ("mean", 0),
    # Over all rows, ignored ones among them: a mean outside of what is picked.
    "F.cross_entropy(x, t, ignore_index=0, reduction='none').mean()": ("none", 0),
    "F.cross_entropy(x, t, ignore_index=0, reduction='sum') / 64": ("sum", 0),
    "F.cross_entropy(x, t, reduction='sum') / 64": ("sum", -100),
    # By an index no class is ignored.
    "-log_softmax(x, -1).gather(1, t[:, None]).mean()": ("mean", -100),
    "(logsumexp(x, -1) - x.gather(1, t[:, None])[:, 0]).sum() / 64": ("mean", -100),
}


@pytest.mark.parametrize("spelling", LOSSES)
def test_a_mean_over_the_rows_that_count_is_no_mean_over_all(spelling: str) -> None:
    (only,) = found(LOGITS + f"return {spelling}\n")[1]
    assert only.kind == "cross_entropy"
    assert (only.roles["reduction"], only.roles["ignore_index"]) == LOSSES[spelling]


def test_a_rounding_whose_error_is_fed_back_is_not_left_out() -> None:
    norm = "v = z.pow(2).mean(-1, keepdim=True)\nreturn z * rsqrt(v + 1e-6) * w\n"
    head = "x: f32[64, 512]\nw: f32[512]\n"
    (fed_back,) = found(head + "z = x + (x.to(bf16).float() - x)\n" + norm)[1]
    assert (fed_back.kind, fed_back.roles["x"]) == ("rms_norm", "add")
    (rounded,) = found(head + "z = x.to(bf16).float()\n" + norm)[1]
    assert (rounded.kind, rounded.roles["x"]) == ("rms_norm", "_to_copy")


@pytest.mark.parametrize("mask", ["where(m, 0.0, -3.4e38)", "(1.0 - a) * -1e9"])
def test_a_mask_that_is_added_stays_one(mask: str) -> None:
    """Of a row that is wholly hidden by a finite number the result is a mean; by truths SDPA makes it 0."""
    text = (
        "q: f32[2, 4, 64, 32]\nk: f32[2, 4, 64, 32]\nv: f32[2, 4, 64, 32]\nm: bool[2, 1, 64, 64]\n"
        f"a: f32[2, 1, 64, 64]\ns = q @ k.transpose(-2, -1) * 0.17\np = softmax(s + {mask}, -1)\nreturn p @ v\n"
    )
    (only,) = found(text)[1]
    assert (only.kind, only.roles["mask_kind"]) == ("attention", "additive")
