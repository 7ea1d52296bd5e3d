"""Helion's source computes the region, in few lines, and what it cannot say is refused with the reason."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest
import torch

from kernels.codegen.generated import attempt
from kernels.codegen.helion.source import text_of, write
from kernels.codegen.index import Unsupported
from kernels.measure.candidate.inputs import one_input
from kernels.measure.candidate.reference import reference
from kernels.starter_kit.lines import code_lines
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.codegen.helion.regions import REGIONS
from tests.kernels.codegen.helion.tile_by_tile import run


@pytest.mark.parametrize("name", REGIONS)
def test_every_tile_computes_what_the_region_does(name: str) -> None:
    region = parse(REGIONS[name])
    module = program(region, None, "cpu").module
    values = [one_input(item, {}, "cpu", number) for number, item in enumerate(region.inputs)]
    eager = module(*values)
    outputs = reference(module, values, [False] * len(values), [None] * len(eager)).outputs
    text = write(lower(region)).text
    for block in (13, 1024):  # tiles that divide nothing, and one tile
        for got, own, exact in zip(run(text, values, block), eager, outputs, strict=True):
            assert (got.shape, got.dtype) == (own.shape, own.dtype)
            error, floor = ((t.double() - exact).norm() / exact.double().norm() for t in (got, own))
            assert error <= 2 * floor + 1e-6


@pytest.mark.parametrize("name", REGIONS)
def test_the_source_is_python_and_shorter_than_the_triton_kernel(name: str) -> None:
    graph = lower(parse(REGIONS[name]))
    source = write(graph)
    assert source.code_lines < code_lines(source.text) < code_lines(attempt(graph).text)
    assert all(len(line) <= 120 for line in source.text.splitlines())
    assert {type(n).__name__ for n in ast.parse(source.text).body} <= {"Import", "FunctionDef"}


@pytest.mark.parametrize(
    ("text", "why"),
    [("x: bf16[64, 96].requires_grad\nreturn gelu(x)\n", "backward"),
     ("x: bf16[64, 96]\nreturn x.float().sum(0)\n", "another dimension than the last"),
     ("x: bf16[64, 96]\nw: bf16[96, 96]\nreturn (x @ w) @ w\n", "several matrix products"),
     ("x: bf16[64, 96]\nw: bf16[96, 96]\nreturn softmax(x @ w, -1)\n", "next to a matrix product"),
     ("x: bf16[64, 96]\nreturn x.float().cumsum(-1) * 2\n", "cumsum is not in"),
     ("x: bf16[64, 96]\nb: bf16[64]\nreturn x.float().sum(-1) + b\n", "among 64 rows of 96"),
     ("x: bf16[4, 8, 96]\ns: bf16[4, 1, 96]\nreturn x * s\n", "among 32 rows of 96"),
     ("x: bf16[64, 96]\nreturn gelu(x).t() * 2\n", "transposed intermediate"),
     ("x: f32[64, 64]\nreturn x.sum(-1) + x\n", "without a dimension of its own"),
     ("x: bf16[64, 96]\nw: i8[96, 48]\ns: bf16[48]\nreturn (x @ w.to(bf16)) * s\n", "computed in the region"),
     ("x: bf16[64, 96]\nw: bf16[96, 48]\nreturn F.relu(x * 2) @ w\n", "computed in the region"),
     ("x: f32[64, 96]\nw: f32[96, 48]\nreturn x.to(bf16) @ w.to(bf16)\n", "computed in the region"),
     ("x: f64[64, 96]\nw: f64[96, 48]\nreturn x @ w\n", "a product of torch.float64"),
     ("x: f32[64, 96]\ny: f32[64, 96]\nreturn torch.logical_and(x, y)\n", "logical_and of numbers"),
     ("x: i32[64, 96]\nreturn torch.logical_not(x)\n", "logical_not of numbers"),
     ("x: f32[64, 96]\nreturn x.sum(-1, dtype=f64)\n", "sum in torch.float64"),
     ("x: i64[64].below(9)\nw: bf16[9, 96]\nreturn w[x] * 2\n", "index is not in")],
)  # fmt: skip
def test_what_has_no_such_source_is_refused_with_the_reason(text: str, why: str) -> None:
    graph = lower(parse(text))
    with pytest.raises(Unsupported, match=why):
        write(graph)
    assert text_of(graph) == ""


def test_a_number_is_compared_as_the_tensors_dtype_holds_it() -> None:
    text = write(lower(parse("x: bf16[4, 96]\nreturn (x > 0.1).to(f32)\n"))).text
    (got,) = run(text, [torch.full((4, 96), 0.1, dtype=torch.bfloat16)], 16)
    assert not got.any()  # bf16's number for it is larger than 0.1


def test_a_cast_to_8_bits_rounds_in_the_middle() -> None:
    text = "x: f32[64, 96]\ns: f32[64, 1]\nreturn (x / s).to(f8e4m3).to(bf16).float() * s\n"
    values = [torch.linspace(-400.0, 400.0, 64 * 96).view(64, 96), torch.linspace(1.0, 2.0, 64).view(64, 1)]
    (own,) = program(parse(text), None, "cpu").module(*values)
    (got,) = run(write(lower(parse(text))).text, values, 16)
    torch.testing.assert_close(got, own)


def test_helions_own_reference_mode_agrees_and_its_compiler_takes_the_source() -> None:
    pytest.importorskip("helion")
    command = [sys.executable, "-m", "tests.kernels.codegen.helion.in_helion"]
    for interpret in ("1", "0"):
        environment = {**os.environ, "HELION_INTERPRET": interpret}
        checked = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert checked.stdout.count("ok") == len(REGIONS)
