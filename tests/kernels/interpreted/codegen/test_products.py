"""Generated matrix products against float64: dequantised weights and activations in front, everything behind."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.codegen.generated import generate, trained
from kernels.codegen.graph import products
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.interpreted.checking import assert_as_exact_as_eager, generated, inputs_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

UNPACKED = (
    "q = stack((w & 15, w >> 4), -1).view(40, 2, 32).to({d}) - 8\n"
    "y = x @ (q * s[:, :, None]).view(40, 64).t()\n"
)  # fmt: skip

BEHIND = {
    "bias and GELU": "x: {d}[4, 9, 70]\nw: {d}[50, 70]\nb: {d}[50]\nreturn F.gelu(F.linear(x, w, b))\n",
    "residual": "x: {d}[65, 33]\nw: {d}[33, 50]\nr: {d}[65, 50]\nreturn torch.relu(x @ w) * 0.5 + r\n",
    "mask and softmax": "q: {d}[2, 4, 18, 32]\nk: {d}[2, 4, 18, 32]\nm: bool[18, 18]\n"
    "return softmax((q @ k.transpose(-1, -2) * 0.125).masked_fill(m, -1e4), -1)\n",
    "scales of rows and columns": "x: {d}[33, 24]\nw: {d}[24, 40]\ns: f32[33, 1]\nt: f32[40]\nreturn (x @ w) * s * t\n",
    "addmm": "c: {d}[33, 40]\nx: {d}[33, 24]\nw: {d}[24, 40]\n"
    "return torch.tanh(torch.addmm(c, x, w, beta=0.5, alpha=2))\n",
    "baddbmm": "c: {d}[3, 1, 20]\nx: {d}[3, 17, 24]\nw: {d}[3, 24, 20]\nreturn torch.tanh(torch.baddbmm(c, x, w))\n",
    "both transposed": "x: {d}[24, 33]\nw: {d}[40, 24]\nreturn torch.tanh(x.t() @ w.t())\n",
    "strided": "x: {d}[33, 48]\nw: {d}[24, 80]\nreturn torch.tanh(x[:, ::2] @ w[:, 3:43])\n",
    "one column": "x: {d}[33, 24]\nw: {d}[24, 1]\nreturn torch.tanh(x @ w)\n",
    "one row": "x: {d}[1, 24]\nw: {d}[24, 40]\nb: {d}[40]\nreturn torch.tanh(x @ w + b)\n",
    "one number": "x: {d}[1, 24]\nw: {d}[24, 1]\nreturn torch.tanh(x @ w)\n",
    "the product itself as well": "x: {d}[33, 24]\nw: {d}[24, 40]\ny = x @ w\nreturn y, torch.sigmoid(y)\n",
    "two products": "x: {d}[33, 64]\nw: {d}[64, 48]\nv: {d}[64, 48]\nreturn F.silu(x @ w) * (x @ v)\n",
    "one behind the other": "x: {d}[33, 24]\nw: {d}[24, 24]\nh = torch.tanh(x @ w)\nreturn torch.tanh(h @ w) + h\n",
    "layer norm": "x: {d}[33, 24]\nw: {d}[24, 48]\ng: {d}[48]\nb: {d}[48]\nreturn F.layer_norm(x @ w, (48,), g, b)\n",
    "logsumexp and squares": "x: f32[33, 24]\nw: f32[24, 48]\ns = x @ w\n"
    "return torch.logsumexp(s, -1), s.pow(2).sum(-1), s.amax(-1)\n",
    "places and orders of a row": "x: f32[33, 24]\nw: f32[24, 48]\ny = x @ w\n"
    "return torch.argmin(y, -1), torch.sort(y, -1)[0]\n",
    "running sums of a row": "x: f32[33, 24]\nw: f32[24, 48]\nreturn torch.cumsum(x @ w, -1)\n",
    "heads": "x: {d}[2, 9, 32]\nw: {d}[32, 64]\nb: {d}[4, 1, 16]\n"
    "return (x @ w).view(2, 9, 4, 16).transpose(1, 2) + b\n",
}

IN_FRONT = {
    "int8 by a scale a column": "x: {d}[3, 64]\nw: i8[40, 64]\ns: {d}[40]\nreturn (x @ w.to({d}).t()) * s\n",
    "int8 by a scale a row": "x: {d}[16, 64]\nw: i8[40, 64]\ns: {d}[40, 1]\n"
    "return torch.tanh(x @ (w.to({d}) * s).t() * 0.01)\n",
    "int4 in groups": "x: {d}[16, 64]\nw: u8[40, 32]\ns: {d}[40, 2]\n" + UNPACKED + "return F.silu(y)\n",
    "8-bit floats": "x: {d}[1, 64]\nw: f8e4m3[64, 40]\ns: {d}[64, 1]\nreturn x @ (w.to({d}) * s)\n",
    "an activation on the left": "x: {d}[33, 24]\nw: {d}[24, 40]\nreturn F.silu(x) @ w\n",
    "a mask on a ragged depth": "x: {d}[33, 23]\nm: bool[33, 23]\nw: {d}[23, 40]\nreturn x.masked_fill(m, 0.0) @ w\n",
    "a norm by statistics of rows": "x: {d}[33, 24]\nw: {d}[24, 40]\nr: f32[33, 1]\n"
    "return (x.float() * r).to({d}) @ w\n",
    "rows that are looked up": "t: {d}[33, 24]\ni: i64[20].below(7)\nw: {d}[24, 40]\n"
    "return F.relu(embedding(i, t) @ w)\n",
}


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", BEHIND)
def test_behind_a_product(name: str, dtype: str) -> None:
    assert_as_exact_as_eager(BEHIND[name].format(d=dtype), generated)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", IN_FRONT)
def test_in_front_of_a_product(name: str, dtype: str) -> None:
    text = IN_FRONT[name].format(d=dtype)
    made = generate(lower(parse(text)))
    assert not made.kept
    assert len(made.sources) == 1
    assert_as_exact_as_eager(text, generated)


@pytest.mark.parametrize("name", ["bias and GELU", "mask and softmax", "residual"])
def test_bf16_is_right_in_the_interpreter_too(name: str) -> None:
    assert_as_exact_as_eager(BEHIND[name].format(d="bf16"), generated)


def test_one_kernel_for_a_product_and_the_row_behind_it() -> None:
    for name in ("mask and softmax", "layer norm", "logsumexp and squares"):
        made = generate(lower(parse(BEHIND[name].format(d="f16"))))
        assert [s.form for s in made.sources] == ["product"], name
        assert not made.kept


def test_heads_are_stored_where_they_belong_by_the_products_kernel() -> None:
    for text in (
        BEHIND["heads"].format(d="f16"),
        "x: f16[2, 9, 32]\nw: f16[32, 64]\nreturn torch.relu((x @ w).view(2, 9, 4, 16).permute(2, 0, 3, 1)) + 1\n",
        "q: f16[2, 4, 18, 32]\nk: f16[2, 4, 18, 32]\nreturn torch.tanh((q @ k.transpose(-1, -2)).transpose(1, 2))\n",
    ):
        made = generate(lower(parse(text)))
        assert [s.form for s in made.sources] == ["product"]
        assert not made.kept
        assert_as_exact_as_eager(text, generated)


BROADCAST_ALONG_K = {
    "both": "x: {d}[33, 1]\nw: {d}[1, 40]\nreturn torch.tanh(0.001 * (x.expand(33, 24) @ w.expand(24, 40)))\n",
    "one number": "x: {d}[1, 1]\nw: {d}[1, 40]\nreturn torch.tanh(0.001 * (x.expand(33, 24) @ w.expand(24, 40)))\n",
}


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", BROADCAST_ALONG_K)
def test_operands_that_are_the_same_along_a_ragged_k_are_added_k_times(name: str, dtype: str) -> None:
    text = BROADCAST_ALONG_K[name].format(d=dtype)
    assert not generate(lower(parse(text))).kept
    assert_as_exact_as_eager(text, generated)


@pytest.mark.parametrize("left", [True, False])
def test_an_infinite_operand_that_is_the_same_along_a_ragged_k_makes_no_nan(left: bool) -> None:
    product = "x.expand(33, 24) @ w" if left else "w @ x.t().expand(24, 33)"
    region = parse(f"x: f32[33, 1]\nw: f32[{'24, 40' if left else '40, 24'}]\nreturn torch.relu({product})\n")
    made = generate(lower(region))
    assert not made.kept
    w = torch.rand(24, 40) if left else torch.rand(40, 24)
    got = made.module(torch.full((33, 1), math.inf), w + 1)[0]
    assert got.isposinf().all()


@pytest.mark.parametrize(
    "call", ["torch.addmm(c, x, w, beta={b}, alpha={a})", "torch.baddbmm(c, x, w, beta={b}, alpha={a})"]
)
@pytest.mark.parametrize(("beta", "alpha"), [(0, 1), (0, 0.5), (2, 0), (0, 0)])
def test_what_is_scaled_by_zero_is_ignored_even_where_it_is_not_a_number(call: str, beta: float, alpha: float) -> None:
    batch = (3,) if "baddbmm" in call else ()
    shapes = {"c": (*batch, 33, 40), "x": (*batch, 33, 24), "w": (*batch, 24, 40)}
    inputs = "".join(f"{name}: f32{list(shape)}\n" for name, shape in shapes.items())
    region = parse(f"{inputs}return torch.tanh({call.format(b=beta, a=alpha)})\n")
    made = generate(lower(region))
    assert not made.kept
    c, x, w = inputs_of(region)
    c = torch.full_like(c, math.nan) if beta == 0 else c
    x = torch.full_like(x, math.nan) if alpha == 0 else x
    wanted = torch.tanh((alpha * (x @ w) if alpha else 0.0) + (beta * c if beta else torch.zeros_like(c)))
    torch.testing.assert_close(made.module(c, x, w)[0], wanted, atol=1e-5, rtol=1e-5)


def test_integers_are_multiplied_exactly() -> None:
    text = "x: i8[32, 64]\nw: i8[64, 32]\ns: f32[32, 1]\nreturn torch._int_mm(x, w).float() * s\n"
    made = generate(lower(parse(text)))
    assert not made.kept
    x, w = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((32, 64), (64, 32)))
    s = torch.rand(32, 1)
    wanted = (x.long() @ w.long()).float() * s
    assert torch.equal(made.module(x, w, s)[0], wanted)


def test_a_row_that_no_program_holds_stays_behind_the_librarys_product() -> None:
    made = generate(lower(parse("x: f16[16, 32]\nw: f16[32, 300]\nreturn softmax(x @ w, -1)\n")))
    assert made.kept == ("mm",)


def test_a_product_whose_arithmetic_costs_more_than_its_traffic_stays_the_librarys() -> None:
    large = "x: bf16[8192, 8192]\nw: bf16[8192, 8192]\nb: bf16[8192]\nreturn F.gelu(x @ w + b)\n"
    assert generate(lower(parse(large))).kept == ("mm",)
    exact = "x: f32[2048, 1024]\nw: f32[1024, 2048]\nreturn F.gelu(x @ w)\n"
    assert generate(lower(parse(exact))).kept == ("mm",)


def test_a_weight_is_dequantised_in_the_product_for_few_rows_and_before_it_for_many() -> None:
    text = "x: bf16[{m}, 4096]\nw: i8[4096, 4096]\ns: bf16[4096]\nreturn (x @ w.to(bf16).t()) * s\n"
    few, many = (generate(lower(parse(text.format(m=m)))) for m in (16, 8192))
    assert not few.kept
    assert many.kept == ("mm",)
    assert "tl.int8" not in few.text.split("tl.dot")[0] or ".to(tl.float32)" in few.text


def test_exact_products_of_f32_follow_the_setting_of_torch() -> None:
    text = generate(lower(parse(BEHIND["residual"].format(d="f32")))).text
    assert "input_precision=PRECISION" in text
    assert 'PRECISION="tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"' in text
    assert "PRECISION" not in generate(lower(parse(BEHIND["residual"].format(d="f16")))).text


def test_a_product_between_is_never_waited_for_by_its_own_kernel() -> None:
    """y + (y @ w): the sum cannot be in the kernel of the first product, which the second one needs."""
    text = "x: f16[33, 24]\nw: f16[24, 24]\ny = x @ w\nreturn torch.tanh(y) + y @ w\n"
    assert_as_exact_as_eager(text, generated)


def test_both_halves_of_a_training_region() -> None:
    region = parse(
        "x: f32[17, 24].requires_grad\nw: f32[40, 24].requires_grad\nb: f32[40].requires_grad\n"
        "return torch.tanh(F.linear(x, w, b))\n"
    )
    made = trained(lower(region))
    values = inputs_of(region, 2)
    mine, plain = ([v.clone().requires_grad_() for v in values] for _ in range(2))
    made(*mine)[0].square().sum().backward()
    program(region).module(*plain)[0].square().sum().backward()
    for a, b in zip(mine, plain, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)


def test_the_rule_weighs_launches_bytes_and_arithmetic() -> None:
    def product(text: str) -> torch.fx.Node:
        return next(n for n in lower(parse(text)).module.graph.nodes if n.name.startswith("mm"))

    small = product("x: f16[64, 64]\nw: f16[64, 64]\nreturn x @ w\n")
    deep = product("x: f16[16, 16384]\nw: f16[16384, 512]\nreturn x @ w\n")
    assert products.pays_behind(small)
    assert not products.pays_behind(deep)  # few programs, each with a long sum
