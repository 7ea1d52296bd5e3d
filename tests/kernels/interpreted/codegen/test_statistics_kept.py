"""What the forward leaves of a row for the backward: as exact as it was summed, and in the type that calls take."""

from __future__ import annotations

from typing import cast

import pytest
import torch

from kernels.codegen.generated import Generated, Trained, made
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

BY_HAND = """x: bf16[64, 1280].requires_grad
z = x * sigmoid(x)
e = exp(z - z.amax(-1, keepdim=True))
return e / e.sum(-1, keepdim=True)
"""
MULTIPLIED = """x: bf16[64, 1280].requires_grad
w: bf16[1, 24].requires_grad
m = x.mean(-1, keepdim=True)
return x * rsqrt(m * m + 1.0), m @ w
"""


GATED = "x: bf16[8, 256].requires_grad\nz = x * sigmoid(x)\n"
PRODUCT = "x: bf16[64, 64].requires_grad\nw: bf16[64, 96].requires_grad\nz = x @ w\n"
LARGEST = {
    "alone": GATED + "return z.amax(-1)",
    "and returned": GATED + "m = z.amax(-1, keepdim=True)\nreturn z / (m + 1.0), m",
    "smallest": GATED + "return z / (z.amin(-1, keepdim=True) - 1.0)",
    "of few": "x: bf16[64, 8].requires_grad\nz = x * sigmoid(x)\nreturn z / (z.amax(-1, keepdim=True) + 1.0)",
    "of f16": "x: f16[8, 256].requires_grad\nz = x * sigmoid(x)\nreturn z / (z.amax(-1, keepdim=True) + 1.0)",
    "and multiplied": (
        "x: bf16[32, 256].requires_grad\nw: bf16[1, 24].requires_grad\nz = x * sigmoid(x)\n"
        "m = z.amax(-1, keepdim=True)\nreturn z / (m + 1.0), m @ w"
    ),
    "of a product": PRODUCT + "return exp(z.amax(-1, keepdim=True))",
    "beside a product": PRODUCT + "return z / (z.amax(-1, keepdim=True) + 1.0)",
    "a mean expanded": (
        "x: bf16[8, 4, 64].requires_grad\ny = (x * 2.0).mean(-1, keepdim=True).expand(8, 4, 64)\nreturn x * y"
    ),
    "a mean expanded and reshaped": (
        "x: bf16[8, 64].requires_grad\nm = (x * 2.0).mean(-1, keepdim=True)\n"
        "y = m.reshape(2, 4, 1).expand(2, 4, 64).reshape(2, 256)\nreturn x.reshape(2, 256) * y"
    ),
    "a part of the means": (
        "x: bf16[8, 4, 64].requires_grad\nm = (x * 2.0).mean(-1, keepdim=True)\nreturn x[:, 1:] * m[:, 1:]"
    ),
}


def trained(text: str) -> Trained:
    return cast(Trained, made(lower(parse(text))))


def left(half: Generated, name: str) -> str:
    """The type in which a result of one of its kernels is stored."""
    return next(o.dtype for s in half.sources for o in s.outputs if o.name.startswith(name))


def gradient(call: object, x: torch.Tensor, upstream: torch.Tensor) -> torch.Tensor:
    assert callable(call)
    given = x.detach().clone().requires_grad_()
    call(given)[0].backward(upstream.to(given.dtype))
    assert given.grad is not None
    return given.grad.double()


def test_rows_that_are_alike_are_not_all_off_by_one_rounding_of_what_they_share() -> None:
    """Each row's largest number is the same here: rounded to bf16 it puts the whole gradient off by 0.06 %."""
    x = torch.rand(64, 1280, generator=torch.Generator().manual_seed(3)).bfloat16()
    upstream = torch.randn(64, 1280, generator=torch.Generator().manual_seed(4)).bfloat16()
    right = gradient(program(parse(BY_HAND)).module, x.double(), upstream)
    made_ = trained(BY_HAND)
    assert left(made_.forward, "amax") == left(made_.forward, "sum") == "f32"
    own = gradient(made_, x, upstream)
    slope = float(((own - right) * right).sum() / right.square().sum())
    assert abs(slope) < 1e-4
    assert float((own - right).norm() / right.norm()) < 2.0**-9


def test_what_a_call_reads_keeps_the_type_that_it_takes() -> None:
    made_ = trained(MULTIPLIED)
    assert left(made_.forward, "mean") == "bf16"
    given = [torch.randn(shape).bfloat16().requires_grad_() for shape in ((64, 1280), (1, 24))]
    outputs = made_(*given)
    torch.autograd.backward(outputs, [torch.ones_like(o) for o in outputs])
    wide = [t.detach().double().requires_grad_() for t in given]
    exact = program(parse(MULTIPLIED)).module(*wide)
    torch.autograd.backward(exact, [torch.ones_like(o) for o in exact])
    for own, right in zip([*outputs, *(g.grad for g in given)], [*exact, *(g.grad for g in wide)], strict=True):
        assert own is not None and right is not None
        assert float((own.detach().double() - right.detach()).norm() / right.detach().norm()) < 0.01


def gradients(call: object, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    assert callable(call)
    given = [t.detach().clone().requires_grad_() for t in inputs]
    outputs = call(*given)
    draw = torch.Generator().manual_seed(7)
    upstream = [torch.randn(o.shape, generator=draw).bfloat16().to(o.dtype) for o in outputs]
    torch.autograd.backward(list(outputs), upstream)
    return [g.grad.double() for g in given if g.grad is not None]


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_number_gets_its_gradient_where_its_row_is_computed_again(name: str) -> None:
    """Compared in f32 with one that was rounded, no number of the row was the largest: gradients of zero."""
    region = parse(LARGEST[name])
    draw = torch.Generator().manual_seed(3)
    types = {"bf16": torch.bfloat16, "f16": torch.float16}
    inputs = [torch.randn(lower(region).inputs[i][1].shape, generator=draw).to(types[t.dtype])
              for i, t in enumerate(region.inputs)]  # fmt: skip
    module = program(region).module
    right = gradients(module, [t.double() for t in inputs])
    for exact, eager, own in zip(
        right, gradients(module, inputs), gradients(trained(LARGEST[name]), inputs), strict=True
    ):
        error, usual = (float((g - exact).norm() / exact.norm()) for g in (own, eager))
        assert error <= 1.25 * usual + 2.0**-9
