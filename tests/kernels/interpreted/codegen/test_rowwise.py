"""Generated scans, orders and places: what eager gives, over any axis, for NaN, ties, empty and single rows."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.codegen.generated import generate, made
from kernels.codegen.graph import split
from kernels.codegen.text import shapes
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.interpreted.checking import assert_as_exact_as_eager, generated
from tests.kernels.interpreted.codegen.test_generated_axes import gradients

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SCANS = {
    "sum": "y = torch.cumsum(x, -1)",
    "sum of the first axis": "y = torch.cumsum(x.float() * 2, 0) + 1",
    "sum of a turned input": "y = torch.cumsum(x.transpose(0, 1), -1)",
    "product": "y = torch.cumprod(1 + torch.tanh(x.float()) / 40, 1)",
    "logsumexp": "y = torch.logcumsumexp(x.float(), 1)",
    "with softmax": "y = torch.cumsum(torch.softmax(x.float(), -1), -1)",
    "and its largest": "c = torch.cumsum(x.float().abs(), -1)\ny = c / c.amax(-1, keepdim=True)",
    "from the end": "y = torch.cumsum(x.flip(-1), -1).flip(-1) * 2",
    "both ways": "y = torch.cumsum(x.float(), -1) + torch.cumsum(x.float().flip(-1), -1).flip(-1)",
    "a slice of it": "y = torch.cumsum(x.float().abs(), -1)[:, -1:] * x",
    "of one number": "y = torch.cumsum(x[:, :1].expand(9, 70), -1)",
    "rows of one": "y = torch.cumsum(x[:, :1], -1) + x",
}


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", SCANS)
def test_scans(name: str, dtype: str) -> None:
    assert_as_exact_as_eager(f"x: {dtype}[9, 70]\n{SCANS[name]}\nreturn y\n", generated)


def walked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are walked in blocks of 16 columns."""
    usual = shapes.choose
    monkeypatch.setattr(shapes, "choose", lambda plan: "loop" if plan.reduces else usual(plan))
    monkeypatch.setattr(shapes, "LOOPS", (((("BLOCK", 16),), 4),))


@pytest.mark.parametrize("name", [*SCANS])
def test_scans_of_rows_that_are_walked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walked(monkeypatch)
    assert_as_exact_as_eager(f"x: f32[9, 70]\n{SCANS[name]}\nreturn y\n", generated)


def test_a_scan_from_the_end_is_one_kernel_and_both_ways_are_two() -> None:
    counts = [len(generate(lower(parse(f"x: f32[9, 70]\n{SCANS[n]}\nreturn y\n"))).sources) for n in SCANS]
    by_name = dict(zip(SCANS, counts, strict=True))
    assert (by_name["from the end"], by_name["and its largest"], by_name["with softmax"]) == (1, 1, 1)
    assert by_name["both ways"] > 1


@pytest.mark.parametrize("dtype", ["i64", "i32", "i8", "u8", "bool"])
def test_integers_are_added_exactly(dtype: str) -> None:
    assert_as_exact_as_eager(f"x: {dtype}[7, 33]\nreturn torch.cumsum(x, 1), torch.cumsum(x, 0)\n", generated)


def compare(text: str, *inputs: torch.Tensor) -> None:
    """Exactly what eager gives, NaN where it gives NaN."""
    region = parse(text)
    for got, wanted in zip(generate(lower(region)).module(*inputs), program(region).module(*inputs), strict=True):
        torch.testing.assert_close(got, wanted, equal_nan=True, rtol=1e-5, atol=1e-5)


def special(width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Rows of ties, NaN and infinities."""
    torch.manual_seed(3)
    x = torch.randn(9, width)
    x[0] = 2.0
    x[1] = -math.inf
    x[2, 3] = math.nan
    x[3, 4], x[3, 5], x[3, 9] = math.inf, math.nan, math.nan
    x[4, 6] = math.inf
    x[5] = (torch.arange(width) % 3).float()
    x[6, 2], x[6, 3], x[6, 5] = 0.0, -0.0, 0.0
    x[7] = math.nan
    x[8, 1:4] = -math.inf
    return x.to(dtype)


EXTREMES = """v, i = torch.cummax(x, {dim})
w, j = torch.cummin(x, {dim})
return v, i, w, j
"""
PLACES = """v, i = torch.max(x, {dim})
w, j = torch.min(x, {dim}, keepdim=True)
return v, i, w, j, torch.argmax(x, {dim}), torch.argmin(x, {dim}, keepdim=True), torch.argmax(x), torch.argmin(x)
"""


@pytest.mark.parametrize("text", [EXTREMES, PLACES], ids=["running", "of rows"])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("walk", [False, True])
def test_places_of_ties_and_nan_are_those_of_torch(
    text: str, dim: int, walk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if walk:
        walked(monkeypatch)
    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        compare(f"x: {name}[9, 40]\n{text.format(dim=dim)}", special(40, dtype))


def test_running_sums_of_special_values_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    compare("x: f32[9, 40]\nreturn torch.cumsum(x, 1), torch.logcumsumexp(x, 1), torch.cumprod(x, 1)\n", special(40))
    walked(monkeypatch)
    compare("x: f32[9, 40]\nreturn torch.cumsum(x, 1), torch.logcumsumexp(x, 1), torch.cumprod(x, 1)\n", special(40))


@pytest.mark.parametrize("dtype", ["i64", "i32", "i8", "u8"])
def test_places_of_integers(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"x: {dtype}[9, 40]\n{PLACES.format(dim=1)}"
    assert_as_exact_as_eager(text, generated)
    walked(monkeypatch)
    assert_as_exact_as_eager(text, generated)
    assert_as_exact_as_eager(f"x: {dtype}[9, 40]\n{EXTREMES.format(dim=1)}", generated)


REDUCTIONS = {
    "products": "h = 1 + torch.tanh(x.float()) / 16\nreturn torch.prod(h, 1), torch.prod(h, 0, keepdim=True)",
    "counts": "return torch.count_nonzero(F.relu(x)), torch.count_nonzero(x, 0), torch.count_nonzero(x > 0, 1)",
    "ends": "a, b = torch.aminmax(x, dim=1)\nreturn a, b, x.max(), x.min()",
    "one row": "return torch.argmax(x[0] * 1, 0), torch.argmax(x[:, :1], 1), torch.prod(x[:, :1].float(), 1)",
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_products_counts_and_ends(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_as_exact_as_eager(f"x: {dtype}[9, 40]\n{REDUCTIONS[name]}\n", generated)
    walked(monkeypatch)
    assert_as_exact_as_eager(f"x: {dtype}[9, 40]\n{REDUCTIONS[name]}\n", generated)


PARTED = {
    "place in a row": "x: f32[2, 2048]\nreturn torch.argmax(x, 1), torch.argmin(x, 1, keepdim=True)\n",
    "place in all": "x: bf16[48, 96]\nreturn torch.argmax(x), torch.argmin(x.float())\n",
    "place in a column": "x: f32[2048, 3]\nreturn torch.argmax(x, 0)\n",
    "place in all of a turned one": "x: f32[48, 96]\nreturn torch.argmax(x.transpose(0, 1))\n",
    "running sum": "x: f32[2, 2048]\nreturn torch.cumsum(x, 1) * 2\n",
    "running sum of a column": "x: bf16[2048, 3]\nreturn torch.cumsum(x, 0)\n",
    "running sum of integers": "x: i32[1, 2048]\nreturn torch.cumsum(x, 1)\n",
    "product": "x: f32[2, 2048]\nreturn torch.prod(1 + torch.tanh(x) / 2000, 1)\n",
    "running logsumexp": "x: f32[2, 2048]\nreturn torch.logcumsumexp(x * 2, 1)\n",
    "running largest": "x: bf16[2048, 3]\nv, i = torch.cummax(x, 0)\nreturn v * 2\n",
    "running smallest": "x: f32[2, 2048]\nreturn torch.cummin(x, 1)[0]\n",
}


def parted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "SMALLEST", 1000)
    monkeypatch.setattr(split, "SHORTEST", 8)
    monkeypatch.setattr(split, "WANTED", 30)


@pytest.mark.parametrize("name", PARTED)
def test_few_long_rows_in_parts_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parted(monkeypatch)
    assert len(generate(lower(parse(PARTED[name]))).sources) >= 2
    assert_as_exact_as_eager(PARTED[name], generated)


def test_running_products_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """In f32, where a CPU's eager multiplies in f64."""
    parted(monkeypatch)
    compare("x: f32[2, 2048]\nh = 1 + torch.tanh(x) / 2000\nreturn torch.cumprod(h, 1), torch.prod(h)\n",
            torch.randn(2, 2048))  # fmt: skip


def test_parts_with_ties_nan_and_infinities_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    parted(monkeypatch)
    x = special(2048)
    x[5] = 0.0
    compare("x: f32[9, 2048]\nreturn torch.argmax(x, 1), torch.argmin(x, 1)\n", x)
    wanted, (got,) = (
        x.double().cumsum(1),
        generate(lower(parse("x: f32[9, 2048]\nreturn torch.cumsum(x, 1)\n"))).module(x),
    )
    torch.testing.assert_close(got.double(), wanted, equal_nan=True, rtol=1e-5, atol=1e-4)


ORDERS = {
    "sort": "v, i = torch.sort(x, -1)\nreturn v, i",
    "from the largest": "v, i = torch.sort(x, -1, descending=True)\nreturn v * 2, i",
    "the first axis": "v, i = torch.sort(x, 0)\nreturn v, i",
    "places alone": "return torch.argsort(x, -1)",
    "few": "v, i = torch.topk(x, 3, -1)\nreturn v, i",
    "many": "v, i = torch.topk(x, 20, -1)\nreturn v, i",
    "all": "v, i = torch.topk(x, 40, -1)\nreturn v, i",
    "one": "v, i = torch.topk(x, 1, -1)\nreturn v, i",
    "smallest": "v, i = torch.topk(x, 5, -1, largest=False)\nreturn v, i",
    "the smallest one": "v, i = torch.topk(x, 1, -1, largest=False)\nreturn v, i",
    "of a column": "v, i = torch.topk(x, 4, 0)\nreturn v, i",
}


@pytest.mark.parametrize("name", ORDERS)
def test_rows_in_order_with_special_values(name: str) -> None:
    region = parse(f"x: f32[9, 40]\n{ORDERS[name]}\n")
    x = special(40)
    made_ = generate(lower(region))
    assert not made_.kept
    results, wanted = made_.module(x), program(region).module(x)
    dim = 0 if ", 0" in ORDERS[name] else 1
    for got, there in zip(results, wanted, strict=True):
        if got.dtype != torch.int64:
            torch.testing.assert_close(got, there, equal_nan=True)
        elif "sort" in ORDERS[name]:
            assert torch.equal(got, x.sort(dim=dim, descending="True" in ORDERS[name], stable=True).indices)
        else:  # top-k promises no order of equal elements
            torch.testing.assert_close(x.gather(dim, got), x.gather(dim, there), equal_nan=True)
            assert bool((got.sort(dim).values.diff(dim=dim) > 0).all())


@pytest.mark.parametrize("dtype", ["bf16", "f16", "i32", "i16", "i8", "u8"])
def test_orders_of_every_dtype_keep_equal_elements_as_they_were(dtype: str) -> None:
    text = (
        f"x: {dtype}[9, 40]\nv, i = torch.sort(x, -1, descending=True)\nw, j = torch.sort(x, -1)\nreturn v, i, w, j\n"
    )
    region = parse(text)
    x = torch.randint(0, 7, (9, 40)).to(program(region).inputs[0].dtype)
    (v, i, w, j), plain = generate(lower(region)).module(x), x.double()
    for got, place, down in ((v, i, True), (w, j, False)):
        values, places = plain.sort(dim=-1, descending=down, stable=True)
        assert torch.equal(got.double(), values) and torch.equal(place, places)


ROUTERS = {
    "softmax behind": "v, i = torch.topk(x.float(), 6, -1)\nreturn torch.softmax(v, -1), i",
    "softmax before": "v, i = torch.topk(torch.softmax(x.float(), -1), 6, -1)\nreturn v / v.sum(-1, keepdim=True), i",
    "weighted": "v, i = torch.topk(x.float(), 6, -1)\nw = v * w\nreturn w - w.mean(-1, keepdim=True), w.var(-1), i",
    "all kept too": "s = torch.softmax(x.float(), -1)\nv, i = torch.topk(s, 6, -1)\nreturn v, i, s, s.sum(-1)",
}


@pytest.mark.parametrize("name", ROUTERS)
def test_what_is_picked_is_computed_on_in_the_same_kernel(name: str) -> None:
    region = parse(f"x: f32[9, 40]\nw: f32[6]\n{ROUTERS[name]}\n")
    torch.manual_seed(0)
    x, w = torch.randn(9, 40), torch.randn(6)
    result = generate(lower(region))
    assert len(result.sources) == 1
    for got, wanted in zip(result.module(x, w), program(region).module(x, w), strict=True):
        torch.testing.assert_close(got, wanted)


def test_rows_too_long_to_be_put_in_order_stay_calls() -> None:
    result = generate(lower(parse("x: f32[4, 5000]\nv, i = torch.sort(x * 2, 1)\nreturn v + 1, i\n")))
    assert result.kept == ("sort",)
    result = generate(lower(parse("x: f32[4, 5000]\nv, i = torch.topk(x * 2, 9)\nreturn v + 1, i\n")))
    assert result.kept == ()
    result = generate(lower(parse("x: i64[4, 50]\nv, i = torch.topk(x * 2, 3)\nreturn v + 1, i\n")))
    assert result.kept == ("topk",)


EMPTY = ("torch.cumsum(x, 1)", "torch.cumsum(x * 2, 0) + 1", "torch.sort(x, 1)[0] * 2")


@pytest.mark.parametrize("step", EMPTY)
@pytest.mark.parametrize("shape", ["0, 8", "8, 0"])
def test_of_nothing_comes_nothing(step: str, shape: str) -> None:
    rows, columns = (int(n) for n in shape.split(", "))
    compare(f"x: f32[{shape}]\nreturn {step}\n", torch.empty(rows, columns))


TRAINED = {
    "running sum": "y = torch.cumsum(x * 2, -1)",
    "of the first axis": "y = torch.tanh(torch.cumsum(x, 0))",
    "with softmax": "y = torch.cumsum(torch.softmax(x, -1), -1)",
    "largest": "v, i = torch.max(x * 2, 1)\ny = torch.tanh(v)",
    "average of windows": "y = F.avg_pool1d(x, 3, 2, 1) * 2",
    "product": "y = torch.prod(1 + x / 8, 1)",
    "running logsumexp": "y = torch.logcumsumexp(x, 1)",
    "running largest": "v, i = torch.cummax(x, 1)\ny = v * 2",
    "some in order": "v, i = torch.topk(x.float(), 6, -1)\ny = torch.softmax(v, -1)",
    "all in order": "v, i = torch.sort(x * 2, -1)\ny = torch.sigmoid(v)",
    "several axes": "y = x.std(1) * 2 + x.amax((0, 1))",
}


@pytest.mark.parametrize("name", TRAINED)
def test_gradients(name: str) -> None:
    gradients(f"x: f32[9, 40].requires_grad\n{TRAINED[name]}\nreturn y\n")


def test_the_backward_of_a_running_sum_is_one_kernel() -> None:
    result = made(lower(parse("x: f32[9, 40].requires_grad\ny = torch.cumsum(x * 2, -1)\nreturn y\n")))
    assert (len(result.sources), result.kept) == (2, ())


def test_spreads_of_long_rows_around_a_large_mean_are_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    """By f32 alone, where a CPU's eager adds in f64: the squares of 1000 would leave three digits of the spread."""
    x = torch.randn(4, 700) + 1000
    text = "x: f32[4, 700]\nreturn x.var(1), x.std(1, correction=0), x.var((0, 1))\n"
    for walk in (False, True):
        if walk:
            walked(monkeypatch)
        wide = x.double()
        wanted = (wide.var(1), wide.std(1, correction=0), wide.var())
        for got, there in zip(generate(lower(parse(text))).module(x), wanted, strict=True):
            torch.testing.assert_close(got.double(), there, rtol=2e-5, atol=0)


FEW = {
    "sum": ("(x * 2).sum(0)", "flat"),
    "mean of two axes": ("x.float().mean((0, 1)) + 1", "flat"),
    "product": ("x.float().prod(1, keepdim=True)", "flat"),
    "ends": ("x.amax(0), x.amin(0)", "flat"),
    "counts": ("torch.count_nonzero(x, 0)", "flat"),
    "given back to all": ("x * x.sum(0)", "rows"),
    "neighbours": ("x.sum(-1)", "rows"),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32"])
@pytest.mark.parametrize("name", FEW)
def test_few_elements_that_are_far_apart_are_written_out(name: str, dtype: str) -> None:
    step, form = FEW[name]
    text = f"x: {dtype}[4, 2, 37]\nreturn {step}\n"
    assert [s.form for s in generate(lower(parse(text))).sources] == [form]
    assert_as_exact_as_eager(text, generated)


@pytest.mark.parametrize("form", ["torch.min(-x, -1)[0]", "(-x).amax(-1)", "torch.argmin(-x, -1)"])
@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_short_integers_are_negated_in_a_kernel_before_the_least_of_them_is_taken(form: str, dtype: str) -> None:
    """In one kernel Triton 3.6.0 took the least of them for another number, on an H100 and an H200."""
    text = f"x: {dtype}[9, 70]\nreturn {form}\n"
    assert len(generate(lower(parse(text))).sources) == (2 if dtype == "i32" else 1)
    assert_as_exact_as_eager(text, generated)


PARTS_OF_ROWS = {
    "halves of a norm, turned": "h = F.layer_norm(x, (64,))\nreturn cat([-h[:, 32:], h[:, :32]], -1) + h\n",
    "columns of a softmax": "s = softmax(x * 2, -1)\nreturn cat([s[:, 20:], s[:, :20]], -1)\n",
    "rows of a softmax": "s = softmax(x * 2, -1)\nreturn cat([s[2:], s[:2]], 0) * s\n",
    "picked by a sum of all": "v, i = torch.topk(x, 4, -1)\nreturn v / torch.exp(x).sum(-1, keepdim=True)\n",
}


@pytest.mark.parametrize("name", PARTS_OF_ROWS)
def test_a_walk_takes_in_its_whole_row_where_parts_of_the_result_are_read(name: str) -> None:
    assert_as_exact_as_eager(f"x: f32[6, 64]\n{PARTS_OF_ROWS[name]}", generated)


def test_a_scan_of_which_other_rows_are_read_reads_no_row_beyond_the_last() -> None:
    text = "x: f32[6, 64]\ns = torch.cumsum(x, -1)\nreturn cat([s[2:], s[:2]], 0) * 2\n"
    loads = [line for line in generate(lower(parse(text))).text.splitlines() if "tl.load" in line]
    assert len(loads) == 2 and all("in_row & " in line for line in loads)
    assert_as_exact_as_eager(text, generated)
