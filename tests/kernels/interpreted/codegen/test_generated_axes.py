"""Generated kernels over any axis, with gradients, and with random numbers."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.agreement import fault_of
from kernels.candidates import build
from kernels.codegen.generated import generate, trained
from kernels.codegen.graph import split
from kernels.measure.candidate.reference import reference
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.interpreted.checking import assert_as_exact_as_eager, generated, inputs_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

AXES = {
    "column sums": "x: {d}[70, 33]\ny = (x.float() * x + 1).sum(0)\nreturn y\n",
    "channels": "x: {d}[3, 9, 5, 4]\ny = x * torch.rsqrt(x.float().pow(2).mean(1, keepdim=True) + 1e-6)\nreturn y\n",
    "softmax over the first axis": "x: {d}[40, 21]\ny = torch.softmax(x, 0)\nreturn y\n",
    "softmax over a long first axis": "x: {d}[3000, 5]\ny = torch.softmax(x, 0) * 2\nreturn y\n",
    "all": "x: {d}[30, 21]\ny = (x * x).mean()\nreturn y\n",
    "statistics of a batch": "x: {d}[4, 6, 35]\nf = x.float()\nm = f.mean((0, 2))\nv = f.var((0, 2), unbiased=False)\n"
    "y = (f - m[None, :, None]) * torch.rsqrt(v + 1e-5)[None, :, None]\nreturn y, m\n",
    "rows and columns": "x: {d}[40, 36]\na = (x.float() + 2).sum(0)\nb = (x.float() + 2).sum(1)\nreturn a, b\n",
    "first one axis, then the other": "x: {d}[24, 36]\na = x.float().softmax(-1)\ny = a.sum(0) * 3\nreturn y, a\n",
    "outputs of two sizes": "x: {d}[24, 36]\nw: {d}[36]\ny = x * torch.sigmoid(w)\nz = w * 2\nreturn y, z\n",
    "an odd number of neighbours": "x: {d}[3, 200, 33]\nz = x.float()\nreturn (z * 2).sum(1), z.var(1)\n",
    "softmax over an odd number of neighbours": "x: {d}[3, 90, 33]\nreturn torch.softmax(x, 1)\n",
    "odd neighbours with a vector": "x: {d}[2, 700, 17]\nw: {d}[17]\nv: {d}[2, 1, 17]\n"
    "return (x.float() * w + v).mean(1)\n",
    "odd neighbours with a number of each outer row": "x: {d}[3, 40, 33]\ns: f32[3]\n"
    "return torch.softmax(x * s[:, None, None], 1)\n",
    "a long walk with a number of each outer row": "x: {d}[3, 700, 17]\ns: f32[3]\n"
    "return (x * s[:, None, None]).sum(1)\n",
    "a turned operand": "x: {d}[3, 40, 300].strides(12000, 1, 40)\nw: {d}[300]\nreturn F.layer_norm(x, (300,), w)\n",
    "a turned operand of short rows": "x: {d}[2, 70, 45]\nr: {d}[2, 45, 70]\nreturn x.transpose(-2, -1) * r, r + 1\n",
    "channels last": "x: {d}[2, 6, 5, 7].channels_last\nw: {d}[6]\nb: {d}[6]\nreturn F.group_norm(x, 3, w, b)\n",
    "odd image": "x: {d}[3, 5, 7, 7]\ns: {d}[5]\nreturn x * s[:, None, None], x.float().mean((2, 3))\n",
    "group norm": "x: {d}[2, 6, 20]\nw: {d}[6]\nb: {d}[6]\ny = F.group_norm(x, 3, w, b)\nreturn F.silu(y)\n",
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", AXES)
def test_reductions_over_any_axis(name: str, dtype: str) -> None:
    assert_as_exact_as_eager(AXES[name].format(d=dtype), generated)


SPLIT = {
    "sum": "x: bf16[2048, 9]\ny = (x * x).sum(0)\nreturn y\n",
    "mean, kept": "x: f32[2048, 9]\ny = (x + 1).mean(0, keepdim=True)\nreturn y\n",
    "everything": "x: f32[48, 96]\nreturn (x * x).sum(), x.amax(), x.amin()\n",
    "spread": "x: f16[1536, 7]\nreturn x.var(0), x.std(0), x.float().var(0, unbiased=False)\n",
    "both at once": "x: f32[1536, 7]\nv, m = torch.var_mean(x + 100, 0)\nreturn v, m + 1\n",
    "logsumexp": "x: f32[2048, 4]\nreturn torch.logsumexp(x * 20, 0)\n",
    "integers as a float": "x: i8[2048, 9]\ny = x.mean(0, dtype=f32)\nz = x.sum(0, dtype=f32)\nreturn y, z\n",
    "two axes": "x: f32[8, 5, 300]\nreturn (x * x).sum((0, 2)), x.amax((0, 2), keepdim=True)\n",
}


@pytest.mark.parametrize("name", SPLIT)
def test_a_reduction_in_two_steps_gives_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "SMALLEST", 1000)
    monkeypatch.setattr(split, "SHORTEST", 8)
    monkeypatch.setattr(split, "WANTED", 30)
    made = generate(lower(parse(SPLIT[name])))
    assert len(made.sources) >= 2
    assert_as_exact_as_eager(SPLIT[name], generated)


def test_few_long_columns_are_split_and_many_are_not() -> None:
    few = generate(lower(parse("x: bf16[65536, 1024]\ny = x.sum(0)\nreturn y\n")))
    many = generate(lower(parse("x: bf16[1024, 65536]\ny = x.sum(0)\nreturn y\n")))
    assert (len(few.sources), len(many.sources)) == (2, 1)


def test_an_odd_number_of_neighbours_is_walked_in_tiles_of_its_own() -> None:
    """Counted through with the rows around them, Triton would read each by itself."""
    (first, _) = generate(lower(parse("x: bf16[1048576, 33]\nreturn x.sum(0)\n"))).sources
    assert "inner = " in first.text and "+ inner" in first.text and "% 33" not in first.text
    (plain, _) = generate(lower(parse("x: bf16[1048576, 32]\nreturn x.sum(0)\n"))).sources
    assert "inner" not in plain.text


def test_a_rows_own_statistics_do_not_turn_its_walk() -> None:
    """LayerNorm's weight and bias gradients: both tensors lie along the rows of the sum, two statistics do not."""
    text = (
        "x: bf16[8192, 16384].requires_grad\nw: bf16[16384].requires_grad\nb: bf16[16384].requires_grad\n"
        "return F.layer_norm(x, (16384,), w, b)\n"
    )
    sums = [s for s in trained(lower(parse(text))).backward.sources if "getitem_1" in s.inputs and "w" not in s.inputs]
    assert [s.form for s in sums] == ["loop"]
    assert all("ROWS" in dict(constants) for s in sums for constants, _ in s.constants)


def test_neighbours_of_a_group_stay_in_one_part() -> None:
    parts = split.parts_of((32, 8, 8, 3136), (200704, 25088, 1, 8), (2, 3))
    assert parts is not None
    assert parts.shape == (32, 8, 8, 4, 784)


def test_steps_that_nest_are_one_number() -> None:
    (source,) = generate(lower(parse("x: bf16[64, 256, 7, 7]\nb: bf16[256]\nreturn x * b[:, None, None]\n"))).sources
    assert "tl.load(x_ptr + at)" in source.text
    assert "d1 = at // 49 % 256" in source.text and "d2" not in source.text


def test_neighbours_in_memory_are_neighbours_in_the_tile_of_a_column_sum() -> None:
    (source,) = generate(lower(parse("x: bf16[1024, 65536]\ny = x.sum(0)\nreturn y\n"))).sources
    assert all(dict(constants)["ROWS"] * 2 >= 32 for constants, _ in source.constants)


# training


def gradients(text: str, seed: int = 0) -> None:
    """Outputs and gradients of the generated halves, against float64 by eager's own error."""
    region = parse(text)
    needs = [i.requires_grad for i in region.inputs]
    values = inputs_of(region, seed)
    plain = program(region).module
    torch.manual_seed(7)
    upstream = [
        torch.randn(o.shape).to(o.dtype) if o.dtype.is_floating_point else None for o in program(region).outputs
    ]
    exact = reference(plain, values, needs, upstream).outputs
    collected = []
    for call in (plain, build("triton:generated", region, {}, "cpu")):
        used = [v.detach().clone().requires_grad_(n) for v, n in zip(values, needs, strict=True)]
        outputs = call(*used)
        pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if g is not None]
        wanted = [v for v, n in zip(used, needs, strict=True) if n]
        own = torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs])
        collected.append([*(o.detach() for o in outputs), *own])
    for number, (eager, mine, there) in enumerate(zip(*collected, exact, strict=True)):
        assert (mine.shape, mine.dtype) == (eager.shape, eager.dtype)
        assert fault_of(mine, eager, there) == "", number


CHAINS = {
    "swiglu": "a: {d}[6, 50].requires_grad\nb: {d}[6, 50].requires_grad\ny = F.silu(a) * b\nreturn y\n",
    "bias and gelu": "x: {d}[12, 40].requires_grad\nb: {d}[40].requires_grad\ny = gelu(x + b) * 2\nreturn y\n",
    "one input without": "x: {d}[12, 40].requires_grad\nm: {d}[12, 40]\ny = torch.tanh(x * m) + x\nreturn y, x * 2\n",
    "rms norm": "x: {d}[9, 64].requires_grad\nw: {d}[64].requires_grad\n"
    "v = x.float().pow(2).mean(-1, keepdim=True)\ny = (x.float() * torch.rsqrt(v + 1e-6)).to({d}) * w\nreturn y\n",
    "layer norm": "x: {d}[9, 64].requires_grad\nw: {d}[64].requires_grad\nb: {d}[64].requires_grad\n"
    "y = F.layer_norm(x, (64,), w, b)\nreturn y\n",
    "softmax": "x: {d}[9, 33].requires_grad\ny = torch.softmax(x * 2, -1)\nreturn y\n",
    "RMS norm as a call": "x: {d}[9, 64].requires_grad\nw: {d}[64].requires_grad\n"
    "y = F.rms_norm(x, (64,), w)\nreturn y\n",
    "squared error": "x: {d}[9, 64].requires_grad\nt: {d}[9, 64]\ny = F.mse_loss(x, t)\nreturn y\n",
    "cross entropy": "x: {d}[9, 64].requires_grad\nt: i64[9].below(7)\ny = F.cross_entropy(x.float(), t)\nreturn y\n",
    "turned result": "x: {d}[9, 64].requires_grad\ny = torch.tanh(x).transpose(0, 1) * 2\nreturn y\n",
    "product and tail": "x: {d}[9, 24].requires_grad\nw: {d}[16, 24].requires_grad\nb: {d}[16].requires_grad\n"
    "y = gelu(F.linear(x, w, b))\nreturn y\n",
    "group norm": "x: {d}[2, 6, 20].requires_grad\nw: {d}[6].requires_grad\nb: {d}[6].requires_grad\n"
    "y = F.silu(F.group_norm(x, 3, w, b))\nreturn y\n",
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", CHAINS)
def test_gradients(name: str, dtype: str) -> None:
    gradients(CHAINS[name].format(d=dtype))


def test_a_chain_is_one_kernel_forward_and_one_backward_that_leave_nothing_in_memory() -> None:
    made = trained(lower(parse(CHAINS["swiglu"].format(d="bf16"))))
    assert (len(made.forward.sources), len(made.backward.sources)) == (1, 1)
    assert [len(s.outputs) for s in made.sources] == [1, 2]


# random numbers


def dropped(rate: float, dtype: str = "f32", more: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    region = parse(f"x: {dtype}[300, 200]\ny = F.dropout(x, {rate}){more}\nreturn y\n")
    x = torch.rand(300, 200).to(program(region).inputs[0].dtype) + 1
    return x, generate(lower(region)).module(x)[0]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_and_scales_the_rest(rate: float) -> None:
    torch.manual_seed(3)
    x, y = dropped(rate)
    share = float((y == 0).float().mean())
    assert abs(share - rate) < 6 * math.sqrt(rate * (1 - rate) / x.numel())
    kept = y != 0
    torch.testing.assert_close(y[kept], x[kept] / (1 - rate))
    columns = (y == 0).float().mean(0)
    assert float((columns - rate).abs().max()) < 6 * math.sqrt(rate * (1 - rate) / 300)


def test_the_seed_is_torchs_and_every_call_draws_anew() -> None:
    torch.manual_seed(3)
    _, first = dropped(0.5)
    _, second = dropped(0.5)
    torch.manual_seed(3)
    _, again = dropped(0.5)
    assert torch.equal(first == 0, again == 0)
    assert not torch.equal(first == 0, second == 0)


def test_two_dropouts_of_one_call_drop_different_elements() -> None:
    region = parse("x: f32[100, 50]\nreturn F.dropout(x, 0.5), F.dropout(x, 0.5)\n")
    one, other = generate(lower(region)).module(torch.ones(100, 50))
    agree = float(((one == 0) == (other == 0)).float().mean())
    assert abs(agree - 0.5) < 0.05


def test_the_backward_of_dropout_drops_what_the_forward_dropped() -> None:
    region = parse("x: f32[60, 50].requires_grad\ny = F.dropout(x * 3, 0.5)\nreturn y\n")
    made = trained(lower(region))
    x = torch.ones(60, 50, requires_grad=True)
    (y,) = made(x)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, y.detach())  # 6 where it is kept, 0 where it is dropped
    assert 0 < float((y == 0).float().mean()) < 1
    assert made.backward.sources[0].operands[0].shape == (60, 50) and len(made.backward.sources[0].operands) == 1


def test_no_dropout_where_it_is_not_training() -> None:
    region = parse("x: f32[10, 50]\ny = F.dropout(x, 0.5, training=False) + 1\nreturn y\n")
    x = torch.randn(10, 50)
    torch.testing.assert_close(generate(lower(region)).module(x)[0], x + 1)


def test_a_column_that_is_broadcast_leaves_wide_tiles() -> None:
    broadcast = "x: bf16[4096, 4096]\nr: bf16[4096, 1]\ny = torch.tanh(x * r)\nreturn y\n"
    turned = "x: bf16[4096, 4096]\nr: bf16[4096, 4096]\ny = torch.tanh(x.transpose(0, 1) * r)\nreturn y\n"
    narrowest = {
        text: min(dict(c)["BLOCK_N"] for c, _ in generate(lower(parse(text))).sources[0].constants)
        for text in (broadcast, turned)
    }
    assert narrowest[broadcast] >= 256  # 512 bytes of a row at once
    assert narrowest[turned] == 32
