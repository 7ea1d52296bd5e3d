"""Generated kernels give what the region says: every layout, dtype and operation that the table has."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.codegen.generated import generate
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.kernels.interpreted.checking import assert_as_exact_as_eager, generated

# numpy, which interprets the kernels, warns of the NaN that masked-out rows compute and nobody stores
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

TAIL = """z: {d}[24, 136]
b: {d}[136]
mask: {d}[24, 136]
z = z + b
z = gelu(z)
y = z * mask
return y
"""

POINTWISE = {
    "column": "x: {d}[12, 40]\nc: {d}[12, 1]\ny = x * c + 1.5\nreturn y\n",
    "scalar tensor": "x: {d}[9, 33]\ns: {d}[()]\ny = torch.tanh(x - s) * 2\nreturn y\n",
    "middle": "x: {d}[3, 5, 7]\nm: {d}[1, 5, 1]\ny = (x + m).relu()\nreturn y\n",
    "leading": "x: {d}[4, 1, 33]\nm: {d}[6, 33]\ny = x * m\nreturn y\n",
    "column-major input": "x: {d}[48, 160].strides(1, 48)\nw: {d}[48, 160]\ny = F.silu(x) * w\nreturn y\n",
    "all column-major": "x: {d}[48, 160].strides(1, 48)\ny = torch.exp(x) * 0.5\nreturn y\n",
    "gaps between rows": "x: {d}[16, 130].strides(140, 1)\nw: {d}[16, 130]\ny = x * w + x\nreturn y\n",
    "channels last": "x: {d}[2, 6, 4, 5].channels_last\nb: {d}[6, 1, 1]\ny = F.relu(x + b)\nreturn y\n",
    "transposed": "x: {d}[150, 140]\nw: {d}[140, 150]\ny = x.transpose(0, 1) + w\nreturn y\n",
    "heads": "x: {d}[2, 6, 4, 16]\nb: {d}[4, 1, 16]\ny = (x.transpose(1, 2) + b).transpose(1, 2) * 2\nreturn y\n",
    "reshape inside": "x: {d}[6, 48]\nw: {d}[4, 12]\ny = (x * 2).view(6, 4, 12) * w\nreturn y.reshape(6, 48)\n",
    "slices": "x: {d}[6, 64]\na = x[:, 32:]\ny = F.silu(x[:, :32]) * a\nreturn y\n",
    "every second": "x: {d}[6, 64]\ny = x[:, ::2] * x[:, 1::2]\nreturn y\n",
    "expanded": "x: {d}[1, 40]\nw: {d}[9, 40]\ny = x.expand(9, 40) * w\nreturn y\n",
    "select": "x: {d}[3, 5, 40]\ny = x[1] * x[2]\nreturn y\n",
    "rope": "x: {d}[2, 3, 8, 16]\nc: {d}[8, 16]\ns: {d}[8, 16]\nr = torch.cat((-x[..., 8:], x[..., :8]), -1)\n"
    "y = x * c + r * s\nreturn y\n",
    "swiglu": "a: {d}[7, 200]\nb: {d}[7, 200]\ny = F.silu(a) * b\nreturn y\n",
    "two outputs": "x: {d}[11, 13]\nr: {d}[11, 13]\nh = x + r\ny = torch.sigmoid(h)\nreturn y, h\n",
    "vector": "x: {d}[1000]\ny = x * x - 3\nreturn y\n",
    "one element": "x: {d}[1]\ny = torch.exp(x) + 1\nreturn y\n",
    "nothing": "x: {d}[0, 8]\ny = x + 1\nreturn y\n",
    "scalar": "x: {d}[()]\ny = x * 2\nreturn y\n",
    "scalar over a dimension": "x: {d}[()]\ny = x.sum(0) * 2 + x.amax(-1)\nreturn y, softmax(x, 0)\n",
    "gelu tanh": 'x: {d}[5, 130]\ny = F.gelu(x, approximate="tanh")\nreturn y\n',
    "gelu tanh by hand": "x: {d}[5, 64]\nu = 0.7978845608 * (x + 0.044715 * x ** 3)\n"
    "y = 0.5 * x * (1 + torch.tanh(u))\nreturn y\n",
    "powers": "x: {d}[300]\na = x.abs() + 0.5\ny = a ** 3 + a ** 0.5 + a ** -2 + a ** 1.7\nreturn y\n",
    "roots and logs": "x: {d}[300]\na = x * x + 0.25\n"
    "y = torch.rsqrt(a) + torch.sqrt(a) - torch.log(a) + a.reciprocal() + torch.log1p(a) + torch.erf(x)\nreturn y\n",
    "selecting": "x: {d}[8, 50]\ny = torch.where(x > 0.5, x, x * 0.25) + x.clamp(-1, 1) + torch.maximum(x, -x)\n"
    "return y + F.leaky_relu(x) + F.elu(x) + F.softplus(x)\n",
    "padded": "x: {d}[5, 20]\ny = F.pad(x, (2, 3, 1, 0), value=1.5) * 2\nreturn y\n",
    "chain of twelve": "x: {d}[10, 130]\ny: {d}[10, 130]\nz = x * 1.7 + y\nz = torch.tanh(z)\nz = z * z + x\n"
    "z = torch.sigmoid(z) * y\nz = torch.clamp(z, -3, 3)\nz = torch.where(z > 0, z, z * 0.1)\nreturn z * 2.0 + 1.0\n",
    "causal mask": "x: {d}[10, 10]\nm = torch.ones(10, 10).tril()\ny = x.masked_fill(m == 0, -9.0)\nreturn y\n",
}

ROWS = {
    "softmax": "x: {d}[9, 130]\ny = torch.softmax(x, -1)\nreturn y\n",
    "log softmax": "x: {d}[9, 130]\ny = F.log_softmax(x, -1)\nreturn y\n",
    "softmax by hand": "x: {d}[9, 130]\nm = x.amax(-1, keepdim=True)\ne = torch.exp(x - m)\n"
    "y = e / e.sum(-1, keepdim=True)\nreturn y\n",
    "masked softmax": "x: {d}[2, 3, 16, 16]\nm: bool[16, 16]\ns = (x * 0.125).masked_fill(m, -1e4)\n"
    "y = torch.softmax(s, -1)\nreturn y\n",
    "rms norm": "x: {d}[9, 130]\nw: {d}[130]\nv = x.float().pow(2).mean(-1, keepdim=True)\n"
    "y = (x.float() * torch.rsqrt(v + 1e-6)).to({d}) * w\nreturn y\n",
    "add and rms norm": "x: {d}[9, 130]\nr: {d}[9, 130]\nw: {d}[130]\nh = x + r\n"
    "y = F.rms_norm(h, (130,), w, 1e-6)\nreturn y, h\n",
    "layer norm": "x: {d}[9, 130]\nw: {d}[130]\nb: {d}[130]\ny = F.layer_norm(x, (130,), w, b, 1e-5)\nreturn y\n",
    "layer norm by hand": "x: {d}[9, 130]\nf = x.float()\nm = f.mean(-1, keepdim=True)\n"
    "v = f.var(-1, unbiased=False, keepdim=True)\ny = ((f - m) * torch.rsqrt(v + 1e-5)).to({d})\nreturn y\n",
    "norm of heads": "x: {d}[4, 64]\nw: {d}[16]\nh = x.view(4, 4, 16)\n"
    "h = h * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + 1e-6)\ny = (h * w).view(4, 64)\nreturn y\n",
    "row statistics": "x: {d}[12, 200]\na = x.amax(-1)\nb = x.float().sum(-1)\nc = x.float().var(-1)\nreturn a, b, c\n",
    "log of sum": "x: {d}[6, 70]\ny = torch.logsumexp(x, -1)\nreturn y\n",
    "one row": "x: {d}[77]\ny = torch.softmax(x, 0)\nreturn y\n",
    "rows of one": "x: {d}[5, 1]\ny = torch.softmax(x, -1) + x\nreturn y\n",
    "row as long as several programs": "x: {d}[3, 3000]\ny = F.layer_norm(x, (3000,)) * 2\nreturn y\n",
    "two norms": "x: {d}[6, 64]\nw: {d}[64]\na = F.layer_norm(x, (64,), w)\ny = F.rms_norm(a, (64,)) + a\nreturn y\n",
}

LONG = {
    "softmax": "x: {d}[2, 40000]\ny = torch.softmax(x, -1)\nreturn y\n",
    "layer norm": "x: {d}[2, 40000]\nw: {d}[40000]\ny = F.layer_norm(x, (40000,), w)\nreturn y\n",
    "rms norm": "x: {d}[2, 40000]\nw: {d}[40000]\ny = F.rms_norm(x, (40000,), w, 1e-6)\nreturn y\n",
    "by hand": "x: {d}[2, 65536]\nm = x.amax(-1, keepdim=True)\ne = torch.exp(x - m)\nt = e.sum(-1, keepdim=True)\n"
    "return e / t, m\n",
}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_the_tail_of_the_example(dtype: str) -> None:
    assert_as_exact_as_eager(TAIL.format(d=dtype), generated)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(name: str, dtype: str) -> None:
    assert_as_exact_as_eager(POINTWISE[name].format(d=dtype), generated)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, dtype: str) -> None:
    assert_as_exact_as_eager(ROWS[name].format(d=dtype), generated)


@pytest.mark.parametrize("name", LONG)
def test_rows_too_long_to_hold(name: str) -> None:
    text = LONG[name].format(d="f32")
    assert [s.form for s in generate(lower(parse(text))).sources] == ["loop"]
    assert_as_exact_as_eager(text, generated)


def test_large_values_do_not_overflow() -> None:
    assert_as_exact_as_eager(ROWS["softmax"].format(d="f32"), generated, scale=300.0)
    assert_as_exact_as_eager(ROWS["layer norm"].format(d="bf16"), generated, scale=300.0)


LOOKUPS = {
    "embedding": "t: f32[11, 40]\ni: i64[3, 5].below(7)\ny = F.embedding(i, t) * 2\nreturn y\n",
    "index_select": "x: f32[7, 30]\ni: i64[9].below(7)\ny = torch.index_select(x, 0, i) + 1\nreturn y\n",
    "columns": "x: f32[6, 30]\ni: i64[4].below(7)\ny = torch.index_select(x, 1, i) + 1\nreturn y\n",
    "gather": "x: f32[6, 30]\ni: i64[6, 8].below(7)\ny = torch.gather(x, 1, i) * 0.5\nreturn y\n",
    "index": "x: f32[9, 30]\ni: i64[5].below(7)\nb: f32[30]\ny = x[i - 2] + b\nreturn y\n",
    "normalised": "t: f32[9, 64]\ni: i64[5].below(7)\ny = F.layer_norm(F.embedding(i, t), (64,))\nreturn y\n",
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_indices_that_are_read(name: str) -> None:
    assert len(generate(lower(parse(LOOKUPS[name]))).sources) == 1
    assert_as_exact_as_eager(LOOKUPS[name], generated)


def test_integers_and_booleans_are_exact() -> None:
    text = (
        "a: i64[6, 20]\nb: i32[6, 20]\nm: bool[6, 20]\nc = a * 3 - b\nd = (a > b) & m\n"
        "e = torch.where(d, c, a)\nf = (b & 3) | 4\nreturn c, d, e, f, a.sum(-1), m.any(-1), m.all(-1)\n"
    )
    assert_as_exact_as_eager(text, generated)


def test_a_cast_in_the_text_rounds() -> None:
    text = "x: f32[64]\ny = (x.to(bf16).float() - x) * 1000\nreturn y\n"
    region = parse(text)
    x = torch.randn(64)
    (got,) = generated(region)(x)
    torch.testing.assert_close(got, (x.bfloat16().float() - x) * 1000, rtol=1e-6, atol=0)


def test_nan_reaches_maxima_and_sums_and_stays_in_its_row() -> None:
    x = torch.randn(4, 100)
    x[1, 7] = math.nan
    region = parse("x: f32[4, 100]\nreturn x.amax(-1), x.sum(-1), torch.softmax(x, -1)\n")
    for got in generated(region)(x):
        assert [bool(torch.isnan(row).all()) for row in got] == [False, True, False, False]
        assert not torch.isnan(got[2]).any()


def test_a_product_of_much_arithmetic_keeps_its_library_and_only_the_tail_is_generated() -> None:
    text = "x: f32[256, 512]\nw: f32[512, 512]\nb: f32[512]\nz = x @ w\nz = gelu(z + b)\nreturn z\n"
    made = generate(lower(parse(text)))
    assert (made.kept, len(made.sources)) == (("mm",), 1)
    assert_as_exact_as_eager(text, generated)


UNARY = ("torch.tanh({})", "torch.sigmoid({})", "F.gelu({})", "F.silu({})", "{}.relu()", "-{}", "{}.abs()", "{} * 0.5",
         "{} + 1", "1 - {}", "{}.clamp(-1, 1)", "{} ** 2", "torch.exp({} * 0.1)", "{}.to(bf16).float()",
         "torch.where({} > 0, x, w)", "torch.softmax({}, -1)", "{} - {}.mean(-1, keepdim=True)")  # fmt: skip
BINARY = ("{} + {}", "{} * {}", "{} - {}", "torch.maximum({}, {})")


@st.composite
def chains(draw: st.DrawFn) -> str:
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 150))
    names = ["x", "w", "b", "c"]
    lines = [f"x: f32[{rows}, {columns}]", f"w: f32[{rows}, {columns}]", f"b: f32[{columns}]", f"c: f32[{rows}, 1]"]
    for i in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            a = draw(st.sampled_from(["x", "w", *names[4:]]))
            expression = draw(st.sampled_from(UNARY)).format(a, a)
        else:
            expression = draw(st.sampled_from(BINARY)).format(draw(st.sampled_from(["x", *names[4:]])),
                                                              draw(st.sampled_from(names)))  # fmt: skip
        lines.append(f"v{i} = {expression}")
        names.append(f"v{i}")
    wanted = names[4:] if draw(st.booleans()) else names[-1:]
    return "\n".join([*lines, f"return {', '.join(wanted)}"]) + "\n"


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(chains())
def test_random_chains(text: str) -> None:
    assert_as_exact_as_eager(text, generated)
