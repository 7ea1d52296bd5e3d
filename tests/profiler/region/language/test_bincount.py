"""bincount in a region: as long as minlength says, in the type that torch gives, and refused where data decides."""

from __future__ import annotations

import pytest
import torch

from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import RegionError

DECLARED = "x: i64[50].below(9)\nw: f32[50]\nv: f64[50]\nh: f16[50]\n"
CALLS = (
    "torch.bincount(x, minlength=9)", "x.bincount(minlength=12)", "bincount(x, None, 9)", "torch.bincount(x, w, 9)",
    "torch.bincount(x, weights=v, minlength=9)", "x.to(i32).bincount(h, 9)",
)  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_its_size_and_type_are_those_of_torch(call: str) -> None:
    built = program(parse(f"{DECLARED}y = {call}\nreturn y\n"))
    graph = lower(parse(f"{DECLARED}y = {call}\nreturn y\n"))
    values = [torch.randint(0, 9, (50,)), torch.rand(50), torch.rand(50).double(), torch.rand(50).half()]
    ((there,), (lowered,)) = (module(*values) for module in (built.module, graph.module))
    assert (built.outputs[0].shape, built.outputs[0].dtype) == (there.shape, there.dtype)
    assert torch.equal(lowered, there)
    assert graph.output_tensors[0].shape == tuple(there.shape)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("torch.bincount(x)", "depends on the data"),
        ("x.bincount(w)", "depends on the data"),
        ("torch.bincount(w, minlength=9)", "one dimension of integers"),
        ("torch.bincount(x.view(5, 10), minlength=9)", "one dimension of integers"),
        ("torch.bincount(x, w[:3], 9)", "a weight for each value"),
        ("torch.bincount(x, minlength=10**13)", "more than any GPU holds"),
    ],
)
def test_what_has_no_size_or_no_kernel_is_refused(call: str, message: str) -> None:
    with pytest.raises(RegionError, match=message):
        program(parse(f"{DECLARED}y = {call}\nreturn y\n"))


DECLARATIONS = """i: i64[50].below(9)
l: i64[50].below(12)
u: i64[50]
c: u8[50]
s: i8[50]
p: f32[25, 9]
q: f32[50]
"""
BOUNDED = (
    "i", "i.view(5, 10).t().flatten()", "torch.cat([i, i])[3:]", "(u % 9)", "u.clamp(0, 8)",
    "u.clamp(max=8).clamp(min=0)", "p.topk(2)[1].flatten()", "torch.topk(p, 2, dim=-1)[1].view(-1)", "p.argmax(-1)",
    "(l // 2)", "(l - 3).clamp(min=0)",
    "torch.where(q > 0, i, 8)", "(q > 0).to(i64)", "(u & 7)", "i.sort()[0]", "i.chunk(2)[1]", "l.clamp(max=5)",
    "(i.view(2, 25)[0] // 3 * 3 + i[:25] % 3)", "torch.minimum(l, i)", "torch.min(i, l)",
    "p.softmax(-1).multinomial(1).flatten()",
    "torch.randint(2, 9, [50])", "i.to(u8).to(i32)", "torch.max(i, i % 3)",
)  # fmt: skip
UNBOUNDED = {
    "u": "nothing bounds them", "l": "from 0 to 11", "c": "from 0 to 255", "s": "from -128 to 127",
    "(i + 1)": "from 1 to 9", "(i - 1)": "from -1 to 7", "i * 2": "from 0 to 16", "q.to(i64)": "nothing bounds them",
    "(u % -9)": "nothing bounds them", "i.view(i32)": "nothing bounds them",
    "u.clamp(max=8)": "from -9223372036854775808 to 8",
    "(i.clamp(min=10))": "from 10 to 10",
    "torch.max(i, l)": "from 0 to 11", "p.t().argmax(-1)": "from 0 to 24", "torch.where(q > 0, i, u)": "nothing",
    "torch.where(q > 0, i, 9)": "from 0 to 9", "i.cumsum(0)": "nothing bounds them", "p.argmax().view(1)": "0 to 224",
    "(i * 4611686018427387904 // 4611686018427387904)": "nothing bounds them",
    "(i * 4611686018427387904)": "nothing bounds them", "torch.add(i, i, alpha=-1)": "nothing bounds them",
}  # fmt: skip


@pytest.mark.parametrize("values", BOUNDED)
def test_values_that_the_text_bounds_are_counted_and_never_exceed_the_bins(values: str) -> None:
    built = program(parse(f"{DECLARATIONS}y = torch.bincount({values}, minlength=9)\nreturn y\n"))
    for seed in range(5):
        torch.manual_seed(seed)
        given = [
            torch.randint(0, 9, (50,)), torch.randint(0, 12, (50,)), torch.randint(-1000, 1000, (50,)),
            torch.randint(0, 256, (50,), dtype=torch.uint8), torch.randint(-128, 128, (50,), dtype=torch.int8),
            torch.randn(25, 9), torch.randn(50),
        ]  # fmt: skip
        (counted,) = built.module(*given)
        assert counted.shape == built.outputs[0].shape


@pytest.mark.parametrize("values", UNBOUNDED)
def test_values_that_may_be_beyond_the_bins_are_refused_where_they_are_counted(values: str) -> None:
    with pytest.raises(RegionError, match=UNBOUNDED[values]) as caught:
        program(parse(f"{DECLARATIONS}y = torch.bincount({values}, minlength=9)\nreturn y\n"))
    assert caught.value.line == 8


def test_an_input_that_was_written_into_is_no_longer_as_it_was_declared() -> None:
    text = f"{DECLARATIONS}{{}}y = torch.bincount(i, minlength=9)\nreturn y\n"
    program(parse(text.format("v = i.clone()\nv.add_(5)\n")))
    with pytest.raises(RegionError, match="nothing bounds them") as caught:
        program(parse(text.format("v = i.view(5, 10)[1]\nv.add_(5)\n")))
    assert ".below(9)" in caught.value.hint


@pytest.mark.parametrize(
    "call",
    [
        "F.threshold(i, 3, 99, inplace=True)", "F.threshold(i.view(5, 10)[1], 3, 99, True)",
        "F.hardtanh(i, 20, 30, inplace=True)", "F.hardtanh(i, 20, 30, True)",
    ],
)  # fmt: skip
def test_an_input_that_is_worked_on_in_place_is_no_longer_as_it_was_declared(call: str) -> None:
    text = f"{DECLARATIONS}z = {{}}\ny = torch.bincount(i, minlength=9)\nreturn y\n"
    with pytest.raises(RegionError, match="nothing bounds them"):
        program(parse(text.format(call)))
    elsewhere = call.replace(", inplace=True", "").replace(", True", "")
    program(parse(text.format(elsewhere)))


def test_bins_are_held_to_each_size() -> None:
    text = "N: sizes[40, 80]\np: f32[N, 9]\nreturn torch.bincount(p.argmax(0), minlength={})\n"
    for binding in parse(text.format("N")).bindings:
        assert program(parse(text.format("N")), binding).outputs[0].shape == (binding["N"],)
    assert program(parse(text.format(40)), {"N": 40}).outputs[0].shape == (40,)
    with pytest.raises(RegionError, match="0 to 79"):
        program(parse(text.format(40)), {"N": 80})
