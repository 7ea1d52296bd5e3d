"""Spellings of one value are one object, and different values are not."""

from __future__ import annotations

import pytest

from profiler.region.graph.canonical.graph_values import graph_values
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

X = "x: f32[4, 6, 8]\nw: f32[8]\nm: bool[6, 8]\ni: i64[4, 6].below(8)\n"


def alike(first: str, second: str) -> bool:
    """Both expressions have one canonical value in one graph."""
    graph = lower(parse(f"{X}a = {first}\nb = {second}\nreturn a, b\n"))
    values = graph_values(graph.module)
    output = next(n for n in graph.module.graph.nodes if n.op == "output")
    a, b = output.args[0]
    return values.values[a] is values.values[b]


SAME = {
    "commutation": ("x * w", "w * x"),
    "grouping": ("(x * w) * x", "x * (w * x)"),
    "a square": ("x * x", "x ** 2"),
    "a root": ("rsqrt(x * x + 1)", "1 / torch.sqrt(x.square() + 1)"),
    "a division by a constant": ("x / 4", "0.25 * x"),
    "a sign": ("x - w", "-(w - x)"),
    "a mean": ("x.mean(-1)", "x.sum(-1) / 8"),
    "a variance of moments": ("x.var(-1, correction=0)", "(x * x).mean(-1) - x.mean(-1) ** 2"),
    "a variance of differences": (
        "x.var(-1, correction=0, keepdim=True)", "(x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)",
    ),
    "a softmax": (
        "softmax(x, -1)", "exp(x - x.amax(-1, keepdim=True)) / exp(x - x.amax(-1)[..., None]).sum(-1, keepdim=True)",
    ),
    "a root whose axis was not kept": (
        "rsqrt(x.pow(2).mean(-1, keepdim=True) + 1)", "rsqrt(x.pow(2).mean(-1) + 1).unsqueeze(-1)",
    ),
    "a log-softmax": ("log_softmax(x, -1)", "x - torch.logsumexp(x, -1, keepdim=True)"),
    "a picked number": ("x.gather(-1, i.unsqueeze(-1)).squeeze(-1)", "x.gather(-1, i[..., None])[..., 0]"),
    "an activation": ("silu(x)", "x / (1 + exp(-x))"),
    "the root of a square of a product": ("torch.sqrt((x * w) ** 2)", "(w * x).abs()"),
    "the root of a square and another": (
        "torch.sqrt(x * x / (w * w + 1))", "(x / torch.sqrt(w.square() + 1)).abs()",
    ),
    "what a choice keeps above 0": ("relu(x)", "torch.where(x > 0, x, 0.0)"),
    "a broadcast": ("x * w.view(1, 1, 8)", "x * w.expand(4, 6, 8)"),
    "two transpositions": ("x.transpose(0, 1).transpose(0, 1)", "x"),
    "a permutation": ("x.permute(0, 2, 1)", "x.mT"),
    "a slice of a concatenation": ("cat((x, w.expand(4, 6, 8)), -1)[..., :8]", "x"),
    "a concatenation of slices": ("cat((x[..., :4], x[..., 4:]), -1)", "x"),
    "a chunk": ("x.chunk(2, -1)[1]", "x[..., 4:]"),
    "a mask": ("x.masked_fill(m, float('-inf'))", "torch.where(~m, x, float('-inf'))"),
    "a mask that is added": ("x.masked_fill(m, float('-inf'))", "x + torch.where(m, float('-inf'), 0.0)"),
    "positions": ("torch.ones(6, 8, dtype=torch.bool).tril()", "torch.arange(6)[:, None] >= torch.arange(8)"),
    "the other positions": ("torch.ones(6, 8, dtype=torch.bool).triu(1)", "torch.arange(8) > torch.arange(6)[:, None]"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second"), SAME.values(), ids=SAME)
def test_spellings_of_one_value_are_told_apart(first: str, second: str) -> None:
    assert alike(first, second)


OTHER = {
    "the root of a square": ("torch.sqrt(x * x)", "x"),
    "another axis": ("x.mean(-1, keepdim=True)", "x.mean(1, keepdim=True)"),
    "eps outside of the root": ("rsqrt(x * x + 1)", "rsqrt(x * x) + 1"),
    "a corrected variance": ("x.var(-1)", "x.var(-1, correction=0)"),
    "the other half": ("x[..., :4]", "x[..., 4:]"),
    "halves turned round": ("cat((x[..., 4:], x[..., :4]), -1)", "x"),
    "a mask turned round": ("x.masked_fill(m, float('-inf'))", "x.masked_fill(~m, float('-inf'))"),
    "a choice and a product with its mask": ("x.masked_fill(~m, 0.0)", "x * m"),
    "a division that a choice hides": ("torch.where(m, x / w, 0.0)", "x / w * m"),
    "the root of two that no square are": (
        "torch.sqrt(x * x * w * (w + 1))", "x.abs() * torch.sqrt(w) * torch.sqrt(w + 1)",
    ),
    "the larger of two that meet along no axis": (
        "torch.maximum(x[:, :4].amax(-1), -x[:, :4].amin(-1, keepdim=True))",
        "x[:, :4].abs().amax(-1, keepdim=True).expand(4, 4, 4)",
    ),
    "a fill of zero": ("x.masked_fill(m, float('-inf'))", "x.masked_fill(m, 0.0)"),
    "rows as columns": ("x.permute(0, 2, 1)", "x.reshape(4, 8, 6)"),
    "a sum for a mean": ("x.sum(-1)", "x.mean(-1)"),
    "a diagonal": (
        "torch.ones(6, 8, dtype=torch.bool).tril()", "torch.ones(6, 8, dtype=torch.bool).tril(1)",
    ),
    "a cast that cuts": ("x.to(torch.int32).float()", "x"),
    "two draws": ("torch.rand_like(x)", "torch.rand_like(x) * 1.0"),
    "a call that draws": ("dropout(x, 0.5)", "dropout(x, 0.5) * 1.0"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second"), OTHER.values(), ids=OTHER)
def test_different_values_are_taken_for_one(first: str, second: str) -> None:
    assert not alike(first, second)
