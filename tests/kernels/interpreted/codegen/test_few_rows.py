"""Softmax and norms over few, long rows are split: every multiprocessor has work, and infinities count as before."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.codegen.generated import generate, trained
from kernels.codegen.graph import split
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.interpreted.checking import assert_as_exact_as_eager, generated
from tests.kernels.interpreted.codegen.test_generated_axes import gradients

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def small_rows_count_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "SMALLEST", 1000)
    monkeypatch.setattr(split, "SHORTEST", 8)
    monkeypatch.setattr(split, "WANTED", 30)


FORWARD = {
    "softmax": "x: {d}[3, 720]\nreturn softmax(x * 3, -1)\n",
    "softmax over the first axis": "x: {d}[720, 5]\nreturn softmax(x, 0) * 2\n",
    "softmax over the middle": "x: {d}[2, 720, 3]\nreturn softmax(x + 1, 1)\n",
    "softmax of a turned tensor": "x: {d}[4, 720].strides(1, 4)\nreturn softmax(x, 1)\n",
    "logarithms": "x: {d}[3, 720]\nreturn log_softmax(x * 20, -1)\n",
    "layer norm": "x: {d}[3, 720]\nw: {d}[720]\nb: {d}[720]\nreturn F.layer_norm(x + 100, (720,), w, b)\n",
    "layer norm over two axes": "x: {d}[2, 24, 60]\nw: {d}[24, 60]\nreturn F.layer_norm(x, (24, 60), w)\n",
    "layer norm of everything": "x: {d}[24, 60]\nreturn F.layer_norm(x, (24, 60))\n",
    "RMSNorm": "x: {d}[3, 720]\nw: {d}[720]\nreturn F.rms_norm(x, (720,), w, 1e-6)\n",
    "group norm": "x: {d}[2, 4, 360]\nw: {d}[4]\nb: {d}[4]\nreturn F.group_norm(x, 2, w, b)\n",
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", FORWARD)
def test_a_row_in_parts_gives_what_the_whole_gives(name: str, dtype: str) -> None:
    text = FORWARD[name].format(d=dtype)
    assert_as_exact_as_eager(text, generated)
    assert len(generate(lower(parse(text))).sources) >= 3


TRAINED = {
    "softmax": "x: {d}[3, 720].requires_grad\nreturn softmax(x * 3, -1)\n",
    "softmax over the first axis": "x: {d}[720, 5].requires_grad\nreturn softmax(x, 0)\n",
    "logarithms": "x: {d}[3, 720].requires_grad\nreturn log_softmax(x, -1)\n",
    "layer norm": "x: {d}[3, 720].requires_grad\nw: {d}[720].requires_grad\nb: {d}[720].requires_grad\n"
    "return F.layer_norm(x, (720,), w, b)\n",
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_rows_in_parts(name: str, dtype: str) -> None:
    text = TRAINED[name].format(d=dtype)
    gradients(text)
    assert len(trained(lower(parse(text))).backward.sources) >= 2


@pytest.mark.parametrize("call", ["softmax(x, -1)", "log_softmax(x, -1)"])
def test_parts_and_rows_of_infinities(call: str) -> None:
    """A part of -inf alone counts for nothing; a row of them alone, one with +inf and one with NaN are as torch's."""
    region = parse(f"x: f32[6, 720]\nreturn {call}\n")
    x = torch.randn(6, 720) - 1000
    x[0, :400] = -math.inf
    x[1] = -math.inf
    x[2, 5] = math.inf
    x[3, 700] = math.nan
    x[4, 1:] = -math.inf
    (wanted,) = program(region).module(x)
    (got,) = generate(lower(region)).module(x)
    torch.testing.assert_close(got, wanted, equal_nan=True)


def test_many_rows_stay_in_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert len(generate(lower(parse("x: bf16[8192, 4096]\nreturn softmax(x, -1)\n"))).sources) == 1
    assert len(generate(lower(parse("x: bf16[4, 1048576]\nreturn softmax(x, -1)\n"))).sources) == 3


READ_BY_ANOTHER = {
    "scales of blocks": "x: {d}[5, 64]\nh = F.rms_norm(x.float(), (64,))\nb = h.view(5, 8, 8)\n"
    "s = b.abs().amax(-1, keepdim=True) / 127\nreturn (b / s).view(5, 64), s.squeeze(-1)\n",
    "a sum of shares": "x: {d}[7, 30]\np = softmax(x.float(), -1)\nreturn p.sum(0) * 2\n",
    "a mean of a layer norm": "x: {d}[7, 30]\nw: {d}[30]\nreturn F.layer_norm(x, (30,), w).float().mean(0)\n",
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", READ_BY_ANOTHER)
def test_what_another_reduction_reads_is_made_again_from_statistics(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    text = READ_BY_ANOTHER[name].format(d=dtype)
    assert_as_exact_as_eager(text, generated)
    first = generate(lower(parse(text))).sources[0]
    assert all(output.shape[-1] == 1 for output in first.outputs if len(output.shape) == 2)
