"""Generated scatters, runs of rows and bags against float64: duplicates, negative places, odd sizes, empty runs."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.agreement import FLOOR
from kernels.codegen.generated import Kernel, generate, trained
from kernels.measure.candidate.reference import reference
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.interpreted.checking import assert_as_exact_as_eager, distance, generated, inputs_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:index_reduce:UserWarning")

SCATTERS = {
    "index_add": "x: {d}[60, 33]\ni: i64[60].below(7)\nreturn zeros(7, 33, dtype={d}).index_add(0, i, x * 2) + 1\n",
    "index_add along rows": "t: {d}[12, 7]\nx: {d}[12, 40]\ni: i64[40].below(7)\n"
    "y = t.index_add(1, i, torch.sigmoid(x), alpha=0.5)\nreturn y * 2, t + 1\n",
    "into a slice": "t: {d}[9, 80]\nx: {d}[40, 64]\ni: i64[40].below(7)\nreturn t[1:, 3:67].index_add(0, i, x)\n",
    "transposed source": "x: {d}[33, 60]\ni: i64[60].below(7)\nreturn zeros(7, 33, dtype={d}).index_add(0, i, x.t())\n",
    "scatter_add": "x: {d}[30, 20]\ni: i64[30, 20].below(7)\n"
    "return torch.ones(9, 25, dtype={d}).scatter_add(0, i, x)\n",
    "one place for a row": "x: {d}[40, 64]\ni: i64[40].below(7)\n"
    "return zeros(40, 8, dtype={d}).scatter_add(1, i[:, None].expand(-1, 64), torch.sigmoid(x))\n",
    "sum": "t: {d}[7, 20]\nx: {d}[30, 20]\ni: i64[30, 20].below(7)\nreturn t.scatter_reduce(0, i, x, 'sum')\n",
    "sum without itself": "t: {d}[9, 20]\nx: {d}[30, 20]\ni: i64[30, 20].below(7)\n"
    "return t.scatter_reduce(0, i, x, 'sum', include_self=False)\n",
    "mean": "t: {d}[9, 20]\nx: {d}[30, 20]\ni: i64[30, 20].below(7)\nreturn t.scatter_reduce(0, i, x, 'mean') * 2\n",
    "mean of rows": "x: {d}[30, 20]\ni: i64[30].below(7)\n"
    "return zeros(9, 20, dtype={d}).scatter_reduce(0, i[:, None].expand(-1, 20), x, 'mean', include_self=False)\n",
    "mean of one column": "t: {d}[7, 3]\nx: {d}[30, 1]\ni: i64[30, 1].below(7)\n"
    "return t.scatter_reduce(0, i, x, 'mean') * 2\n",
    "mean of one row": "t: {d}[3, 7]\nx: {d}[1, 30]\ni: i64[1, 30].below(7)\n"
    "return t.scatter_reduce(1, i, x, 'mean', include_self=False)\n",
    "amax": "t: {d}[9, 20]\nx: {d}[30, 20]\ni: i64[30, 20].below(7)\nreturn t.scatter_reduce(0, i, x, 'amax')\n",
    "amin without itself": "t: {d}[9, 20]\nx: {d}[30, 20]\ni: i64[30, 20].below(7)\n"
    "return t.scatter_reduce(0, i, -x, 'amin', include_self=False) + 1\n",
    "index_reduce": "t: {d}[9, 20]\nx: {d}[30, 20]\ni: i64[30].below(7)\nreturn t.index_reduce(0, i, x, 'amax')\n",
    "index_put": "t: {d}[20, 30]\nv: {d}[40]\ni: i64[40].below(20)\nj: i64[40].below(30)\n"
    "return torch.index_put(t, (i - 1, j), v * 2, accumulate=True)\n",
    "index_put of blocks": "t: {d}[5, 30, 8]\nv: {d}[6, 7, 8]\ni: i64[6, 1].below(5)\nj: i64[7].below(30)\n"
    "return torch.index_put(t, (i, j), torch.sigmoid(v), accumulate=True)\n",
    "embedding backward": "g: {d}[6, 5, 20]\ni: i64[6, 5].below(9)\n"
    "return aten.embedding_dense_backward(g * 2, i, 9, 3, False)\n",
    "gather, scale, scatter": "x: {d}[9, 20]\nw: {d}[60]\ns: i64[60].below(7)\ni: i64[60].below(7)\n"
    "y = zeros(9, 20, dtype={d}).index_add(0, i, x[s] * w[:, None])\nreturn F.relu(y) + x\n",
    "copied rows": "t: {d}[20, 9]\nv: {d}[5, 9]\nreturn t.index_copy(0, arange(5) * 3, v + 1)\n",
    "filled rows": "t: {d}[20, 9]\ni: i64[5].below(7)\nreturn t.index_fill(0, i, 2.5) * 2\n",
    "filled rows from the end": "t: {d}[20, 9]\ni: i64[5].below(7)\nreturn t.index_fill(0, i - 3, 2.5) * 2\n",
    "filled columns from the end": "t: {d}[9, 20]\ni: i64[5].below(7)\nreturn t.index_fill(-1, i - 3, 2.5) * 2\n",
    "set by one number": "t: {d}[20, 9]\ni: i64[4, 9].below(7)\nreturn t.scatter(0, i, -1.0)\n",
    "a scalar": "v: {d}[()]\ni: i64[()].below(7)\n"
    "return zeros(9, dtype={d}).scatter_add(0, i.reshape(1), v.reshape(1))\n",
    "histogram": "x: {d}[500]\nreturn torch.histc(x.float(), 20, -1.0, 1.0) + 1\n",
    "bincount": "i: i64[600].below(7)\nreturn torch.bincount(i, minlength=9) * 2\n",
    "bincount of places that are computed": "i: i32[600].below(7)\nreturn (i % 4).bincount(minlength=7)\n",
    "bincount of weights": "i: i64[600].below(7)\nw: {d}[600]\n"
    "return torch.bincount(i, torch.sigmoid(w.float()), 7) / 600\n",
    "counts": "i: i64[600].below(7)\nreturn zeros(8, dtype=f32).index_add(0, i, ones(600, dtype=f32)) / 600\n",
}

INTEGERS = {
    "i64": "v: i64[60]\ni: i64[60].below(7)\nreturn zeros(8, dtype=i64).scatter_add(0, i, v)\n",
    "i8": "v: i8[60]\ni: i64[60].below(7)\nreturn zeros(8, dtype=i8).scatter_add(0, i, v)\n",
    "largest": "v: i32[60]\ni: i64[60].below(7)\nreturn zeros(8, dtype=i32).scatter_reduce(0, i, v - 3, 'amax')\n",
}

RUNS = {
    "segment sum": "x: f32[60, 33]\no: i64[9].offsets(60)\n"
    "return torch.segment_reduce(x * 2, 'sum', offsets=o).relu()\n",
    "segment mean": "x: f32[60, 2, 3]\no: i64[9].offsets(60)\nreturn torch.segment_reduce(x, 'mean', offsets=o)\n",
    "segment max": "x: f32[60]\no: i64[9].offsets(60)\nreturn torch.segment_reduce(x, 'max', offsets=o)\n",
    "softmax of segments": "x: f32[60, 20]\no: i64[9].offsets(60)\ns = torch.segment_reduce(x, 'sum', offsets=o)\n"
    "return softmax(s, -1), s.amax(-1)\n",
    "segments by length": "x: f32[60, 4]\nn: i64[6].below(2)\n"
    "return torch.segment_reduce(x, 'sum', lengths=n * 0 + 10, unsafe=True)\n",
    "bag": "t: {d}[7, 20]\ni: i64[60].below(7)\no: i64[9].offsets(60)\n"
    "return F.embedding_bag(i, t, o[:-1], mode='sum')\n",
    "bag mean": "t: {d}[7, 20]\ni: i64[60].below(7)\no: i64[9].offsets(60)\n"
    "return torch.tanh(F.embedding_bag(i, t, o[:-1], mode='mean'))\n",
    "bag max": "t: {d}[7, 20]\ni: i64[60].below(7)\no: i64[9].offsets(60)\n"
    "return F.embedding_bag(i, t, o[:-1], mode='max')\n",
    "weighted bag": "t: f32[7, 20]\ni: i64[60].below(7)\no: i64[9].offsets(60)\nw: f32[60]\n"
    "return F.embedding_bag(i, t, o, mode='sum', per_sample_weights=w, include_last_offset=True)\n",
    "jagged mean": "x: {d}[60, 20]\no: i64[9].offsets(60)\nn = o[1:] - o[:-1]\n"
    "s = repeat_interleave(arange(8), n, output_size=60)\n"
    "y = zeros(8, 20, dtype={d}).index_add(0, s, torch.sigmoid(x))\nreturn y / n.clamp(min=1)[:, None]\n",
    "jagged softmax": "x: f32[60, 20]\no: i64[9].offsets(60)\nn = o[1:] - o[:-1]\n"
    "s = repeat_interleave(n, output_size=60)\n"
    "m = full((8, 20), float('-inf'), dtype=f32).scatter_reduce(0, s[:, None].expand(-1, 20), x, 'amax')\n"
    "e = torch.exp(x - m[s])\nreturn e / zeros(8, 20, dtype=f32).index_add(0, s, e)[s]\n",
}
OFFSETS = torch.tensor([0, 3, 3, 10, 25, 26, 40, 59, 60])


def check(text: str, seed: int = 0) -> list[str]:
    """Holds the generated region to float64, with runs of several lengths; gives what stayed aten."""
    region = parse(text)
    made = generate(lower(region))
    values = [
        OFFSETS.clone() if tuple(v.shape) == (9,) and v.dtype == torch.int64 else v for v in inputs_of(region, seed)
    ]
    module = program(region).module
    plain = module(*values)
    exact = reference(module, values, [False] * len(values), [None] * len(plain)).outputs
    for mine, eager, wanted in zip(made.module(*values), plain, exact, strict=True):
        assert (mine.shape, mine.dtype, mine.stride()) == (eager.shape, eager.dtype, eager.stride())
        tolerance = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[mine.dtype]
        torch.testing.assert_close(mine.double(), wanted.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
    return list(made.kept)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", SCATTERS)
def test_scatters(name: str, dtype: str) -> None:
    text = SCATTERS[name].format(d=dtype)
    assert not generate(lower(parse(text))).kept
    assert_as_exact_as_eager(text, generated, seed=1)


@pytest.mark.parametrize("tail", ["return y\n", "return y / 20000\n"])
def test_many_weights_in_two_bins_are_added_as_exactly_as_partial_sums_are(tail: str) -> None:
    region = parse(f"i: i64[20000].below(2)\nw: f32[20000]\ny = torch.bincount(i, w, 2)\n{tail}")
    generator = torch.Generator().manual_seed(0)
    i = torch.randint(0, 2, (20000,), generator=generator)
    w = torch.rand(20000, generator=generator)  # of like sign: each addition rounds to the sum's size
    exact = torch.stack([w[i == bin].double().sum() for bin in range(2)]) / (20000 if "/" in tail else 1)
    (got,) = generate(lower(region)).module(i, w)
    assert got.dtype == torch.float32
    assert distance(got, exact) < FLOOR[torch.float32]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_added_exactly(name: str) -> None:
    assert not generate(lower(parse(INTEGERS[name]))).kept
    assert_as_exact_as_eager(INTEGERS[name], generated)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", RUNS)
def test_runs_and_bags_also_empty_ones(name: str, dtype: str) -> None:
    kept = check(RUNS[name].format(d=dtype))
    assert set(kept) <= {"repeat_interleave"}


def test_not_a_number_is_the_largest_and_the_smallest() -> None:
    region = parse(
        "x: f32[40]\ni: i64[40].below(8)\na = full((8,), float('-inf')).scatter_reduce(0, i, x, 'amax')\n"
        "b = full((8,), float('inf')).scatter_reduce(0, i, x, 'amin')\nreturn a, b\n"
    )
    x = torch.randn(40, generator=torch.Generator().manual_seed(0))
    x[3], x[9], x[20] = math.nan, -math.nan, -0.0
    i = torch.arange(40) % 8
    largest, smallest = generate(lower(region)).module(x, i)
    for mine, wanted in zip((largest, smallest), program(region).module(x, i), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=0, equal_nan=True)


TARGETS = {
    "an input": "t",
    "a view": "t[2:7].view(5)",
    "what its kernel takes over": "(t * 2)",
    "a number": "full((5,), float('nan'))",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", ["amax", "amin"])
def test_not_a_number_in_the_target_stays_whatever_its_sign(how: str, target: str) -> None:
    size = 9 if target == "a view" else 5
    region = parse(
        f"t: f32[{size}]\nx: f32[10]\ni: i64[10].below(5)\n"
        f"return {TARGETS[target]}.scatter_reduce(0, i, x * 1.0, '{how}')\n"
    )
    made = generate(lower(region))
    assert not made.kept
    kernels = [n.target for n in made.module.graph.nodes if isinstance(n.target, Kernel)]
    assert any(k.into is not None for k in kernels) == (target == "what its kernel takes over")
    for kernel in kernels:
        kernel._held_apart = kernel._held_apart and target != "what its kernel takes over"  # as on a GPU
    nan = torch.tensor(math.nan)
    held = torch.tensor([0.0, -0.0, math.inf, 1.0, 2.0, -1.0, -math.inf, 3.0, 4.0])[9 - size :]
    first = 2 if target == "a view" else 0
    held[first], held[first + 1] = nan, torch.copysign(nan, torch.tensor(-1.0))
    x = torch.tensor([1.0, 2.0, -math.inf, math.inf, -0.0, -1.0, -2.0, math.inf, -math.inf, 0.0])
    i = torch.arange(10) % 5
    got, wanted = made.module(held, x, i)[0], program(region).module(held, x, i)[0]
    assert wanted[:2].isnan().all()
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


def test_a_place_outside_of_the_target_is_never_written() -> None:
    region = parse("x: f32[4]\ni: i64[4].below(4)\nreturn zeros(4).scatter_add(0, i, x)\n")
    got = generate(lower(region)).module(torch.ones(4), torch.tensor([0, 9, -1, 3]))[0]
    assert got.tolist() == [1, 0, 0, 1]
    assert "tl.device_assert" in generate(lower(region)).text


def test_nothing_to_scatter_leaves_the_target() -> None:
    region = parse("x: f32[0, 5]\ni: i64[0].below(4)\nt: f32[4, 5]\nreturn t.index_add(0, i, x) * 2\n")
    t = torch.randn(4, 5)
    got = generate(lower(region)).module(torch.empty(0, 5), torch.empty(0, dtype=torch.int64), t)[0]
    assert torch.equal(got, t * 2)


def test_the_backward_of_a_lookup_adds_what_is_looked_up_twice() -> None:
    region = parse("t: f32[9, 12].requires_grad\ni: i64[6, 5].below(9)\nreturn torch.tanh(embedding(i, t))\n")
    made = trained(lower(region))
    assert not made.kept
    i = torch.randint(0, 9, (6, 5), generator=torch.Generator().manual_seed(0))
    mine, plain = (torch.linspace(-1, 1, 108).view(9, 12).requires_grad_() for _ in range(2))
    made(mine, i)[0].square().sum().backward()
    torch.tanh(torch.nn.functional.embedding(i, plain)).square().sum().backward()
    torch.testing.assert_close(mine.grad, plain.grad)


def test_a_bag_and_its_backward_are_generated() -> None:
    region = parse(
        "t: f32[9, 12].requires_grad\ni: i64[60].below(9)\no: i64[9].offsets(60)\n"
        "return F.embedding_bag(i, t, o[:-1], mode='mean')\n"
    )
    made = trained(lower(region))
    i = torch.randint(0, 9, (60,), generator=torch.Generator().manual_seed(0))
    mine, plain = (torch.linspace(-1, 1, 108).view(9, 12).requires_grad_() for _ in range(2))
    made(mine, i, OFFSETS)[0].square().sum().backward()
    torch.nn.functional.embedding_bag(i, plain, OFFSETS[:-1], mode="mean").square().sum().backward()
    torch.testing.assert_close(mine.grad, plain.grad)


@pytest.mark.parametrize(("source", "taken"), [("x", True), ("torch.sigmoid(t)", True), ("u", False), ("u * 2", True)])
def test_what_a_scatter_adds_to_is_taken_over_where_nobody_else_needs_it(source: str, taken: bool) -> None:
    region = parse(
        "t: f32[9, 12]\nx: f32[9, 12]\ni: i64[9, 12].below(9)\nu = torch.tanh(t)\n"
        f"y = u.scatter_add(0, i, {source})\nreturn y * 2\n"
    )
    made = generate(lower(region))
    kernels = [n.target for n in made.module.graph.nodes if isinstance(n.target, Kernel)]
    assert any(k.into is not None for k in kernels) == taken
    for kernel in kernels:
        kernel._held_apart = False  # as on a GPU
    values = inputs_of(region)
    for _ in range(2):
        torch.testing.assert_close(made.module(*values)[0], program(region).module(*values)[0])


def test_a_number_set_where_all_is_that_number_is_no_kernel() -> None:
    text = SCATTERS["mean of rows"].format(d="f32")
    assert [s.form for s in generate(lower(parse(text))).sources].count("flat") == 3  # sum, count, quotient
