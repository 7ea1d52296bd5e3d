"""A grouped product is traced in every type that torch multiplies in, with torch's own sizes and strides."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.model import RegionError

TEXT = (
    "x: {0}[40, 16].requires_grad\nw: {1}[3, 16, 24].requires_grad\no: i32[3].offsets(40)\n"
    "return F.grouped_mm(x, w, offs=o)\n"
)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_forward_and_backward_are_shaped_as_torch_makes_them(dtype: str) -> None:
    graph = lower(parse(TEXT.format(dtype, dtype)))
    given = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    x, w = torch.randn(40, 16).to(given), torch.randn(3, 16, 24).to(given)
    ends = torch.tensor([7, 7, 40], dtype=torch.int32)
    y = F.grouped_mm(x.requires_grad_(), w.requires_grad_(), offs=ends)
    dx, dw = torch.autograd.grad(y, (x, w), torch.randn(40, 24).to(given))
    made = [(t.shape, t.dtype, t.stride) for t in graph.output_tensors]
    assert made == [(tuple(t.shape), dtype, t.stride()) for t in (y, dx, dw)]
    results = graph.module(x.detach(), w.detach(), ends, torch.randn(40, 24).to(given))
    torch.testing.assert_close(results[0], y.detach())


@pytest.mark.parametrize(("one", "other"), [("f32", "bf16"), ("f64", "f64")])
def test_what_torch_refuses_stays_refused(one: str, other: str) -> None:
    with pytest.raises(RegionError):
        lower(parse(TEXT.format(one, other)))
