"""A matrix product with what follows it is recognised, and only that."""

from __future__ import annotations

import pytest

from kernels.libraries.patterns.tails import tail
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

HEAD = "x: bf16[64, 32]\nw: bf16[32, 128]\nb: bf16[128]\nm: bf16[64, 128]\nr: bf16[64, 128]\n"


def roles(body: str) -> dict[str, object] | None:
    matches = tail(lower(parse(HEAD + body)))
    return dict(matches[0].roles) if matches else None


def test_every_part_is_named() -> None:
    answer = roles("y = F.gelu(x @ w + b, approximate='tanh') * m + r\nreturn y\n")
    assert answer == {
        "a": "x", "b": "w", "bias": "b", "activation": "gelu_tanh", "mask": "m", "residual": "r",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = relu(x @ w)\nreturn y\n", {"activation": "relu"}),
        ("y = r + x @ w\nreturn y\n", {"residual": "r"}),
        ("y = m * silu(x @ w + b)\nreturn y\n", {"activation": "silu", "mask": "m", "bias": "b"}),
    ],
)
def test_parts_may_be_missing(body: str, expected: dict[str, str]) -> None:
    answer = roles(body)
    assert answer is not None
    none = {"bias": None, "mask": None, "residual": None, "activation": "none"}
    assert {k: v for k, v in answer.items() if k not in ("a", "b")} == none | expected


@pytest.mark.parametrize(
    "body",
    [
        "y = x @ w\nreturn y\n",  # nothing follows
        "y = x @ w + b\nreturn y\n",  # one call of cuBLAS
        "z = x @ w + b\ny = relu(z)\nreturn y, z\n",  # the product's own result is wanted too
        "z = x @ w\ny = relu(z) * z\nreturn y\n",  # multiplied by what it was computed from
        "y = relu(x @ w).sum(-1)\nreturn y\n",
        "y = torch.tanh(x @ w)\nreturn y\n",
    ],
)
def test_anything_else_is_none(body: str) -> None:
    assert roles(body) is None
