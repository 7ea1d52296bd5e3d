"""Generated kernels of scalars, and of tensors that are one number by their strides, give what eager gives."""

from __future__ import annotations

import pytest
import torch

from kernels.codegen.generated import generate
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CASES = {
    "a long row of one number": (
        "x: f32[65536].strides(0)\nw: f32[64]\nreturn (x * 2).sum() * w\n",
        lambda: (torch.tensor([0.375]).expand(65536), torch.randn(64)),
    ),
    "index_select by a scalar": (
        "x: f32[64, 8]\ni: i64[()]\nreturn x.index_select(0, i) * 2\n",
        lambda: (torch.randn(64, 8), torch.tensor(5)),
    ),
    "index_select of a scalar": (
        "x: f32[()]\ni: i64[1]\nreturn x.index_select(0, i) * 2\n",
        lambda: (torch.randn(()), torch.tensor([0])),
    ),
    "gather of a scalar": (
        "x: f32[()]\ni: i64[()]\nreturn gather(x, 0, i) * 2\n",
        lambda: (torch.randn(()), torch.tensor(0)),
    ),
}


@pytest.mark.parametrize(("text", "inputs"), CASES.values(), ids=CASES)
def test_it_computes_the_same(text: str, inputs: object) -> None:
    graph = lower(parse(text))
    given = inputs()  # type: ignore[operator]
    made = generate(graph)
    assert not made.kept
    for got, wanted in zip(made.module(*given), graph.module(*given), strict=True):
        torch.testing.assert_close(got, wanted)
