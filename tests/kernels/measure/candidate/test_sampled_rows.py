"""Where float64 does not fit, some rows are checked: only of regions whose rows are by themselves, which is tried."""

from __future__ import annotations

import pytest
import torch

from kernels.measure.candidate import checker as checking
from kernels.measure.candidate.inputs import input_set
from kernels.measure.candidate.sampled_rows import FEW_ROWS, rows_of
from kernels.measure.candidate.worker import Worker
from kernels.measure.judge import judge
from kernels.measure.messages import Case
from profiler.region.language.text import parse
from tests.kernels.measure.candidate.test_inherent import Silent

BY_ROWS = {
    "a norm": ("x: bf16[1024, 64]\nw: bf16[64]\nreturn F.rms_norm(x, (64,), w)", (0, None), (0,)),
    "heads": ("x: bf16[1024, 8, 32]\ny = x.view(1024, 256)\nreturn torch.softmax(y, -1)", (0,), (0,)),
    "a product": ("x: f32[512, 64]\nw: f32[64, 32]\nreturn F.silu(x @ w)", (0, None), (0,)),
    "columns first": ("x: f32[32, 4096]\nreturn torch.softmax(x, 0)", (1,), (1,)),
    "with gradients": ("x: f32[1024, 64].requires_grad\nreturn torch.softmax(x, -1)", (0,), (0, 0)),
}
TOGETHER = {
    "a mean over the rows": "x: f32[1024, 64]\nreturn x.mean(0)",
    "a sum along them": "x: f32[1024, 64]\nreturn torch.cumsum(x, 0)",
    "a neighbour": "x: f32[1024, 64]\nreturn torch.roll(x, 1, 0)",
    "their largest": "x: f32[1024, 64]\nreturn x / x.amax()",
    "a weight's gradient": "x: f32[1024, 64].requires_grad\nw: f32[64].requires_grad\nreturn x * w",
    "a square": "x: f32[1024, 1024]\nreturn x @ x",
    "few rows": "x: f32[128, 64]\nreturn x * 2",
}


@pytest.mark.parametrize("name", BY_ROWS)
def test_rows_that_are_by_themselves_are_seen(name):
    text, inputs, outputs = BY_ROWS[name]
    rows = rows_of(parse(text), {}, "cpu")
    assert rows is not None
    assert (rows.inputs, rows.outputs) == (inputs, outputs)


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_that_depend_on_each_other_are_never_sampled(name):
    assert rows_of(parse(TOGETHER[name]), {}, "cpu") is None


def test_the_first_and_the_last_row_are_always_among_them():
    rows = rows_of(parse("x: f32[5000, 64]\nreturn x * 2"), {}, "cpu")
    assert rows is not None
    some = rows.some(100, 7)
    assert (some[0], some[-1], len(set(some))) == (0, 4999, 100)
    assert some == rows.some(100, 7)
    assert some != rows.some(100, 8)
    assert rows.some(10**6, 7) == list(range(5000))


TEXT = "x: bf16[4096, 64]\nw: bf16[64]\nreturn F.rms_norm(x, (64,), w)"


@pytest.fixture
def short_of_memory(monkeypatch):
    """float64 of the whole does not fit, of some rows it does: more than 1,000 rows are too many."""
    original = checking.reference

    def reference(module, inputs, *rest):
        if inputs[0].shape[0] > 1000:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80.00 GiB")
        return original(module, inputs, *rest)

    monkeypatch.setattr(checking, "reference", reference)
    monkeypatch.setattr(checking, "MOST_ELEMENTS", 2**16)


def checked(text, change):
    region = parse(text)
    worker = Worker(Silent())
    task = worker._build(lambda *_: change, "any", region, {})
    values = input_set(region, {}, "cpu", 3)
    seen = worker.checker.reference(task, values)
    return seen, Case("normal", seen.expected.precision, worker.checker.against(seen, change(*values)))


def right(x, w):
    return (torch.nn.functional.rms_norm(x, (64,), w),)


def wrong_in_one_column(x, w):
    (out,) = right(x, w)
    out[:, 3] += 0.5
    return (out,)


def not_written_in_one_row(x, w):
    (out,) = right(x, w)
    out[1234] = float("nan")
    return (out,)


@pytest.mark.parametrize(
    ("change", "ok"), [(right, True), (wrong_in_one_column, False), (not_written_in_one_row, False)]
)
def test_some_rows_tell_right_from_wrong(short_of_memory, change, ok):
    seen, case = checked(TEXT, change)
    assert seen.text == "float64 did not fit: compared on 511 of 4,096 rows"
    assert seen.expected.precision == "float64"
    _, eager = checked(TEXT, right)
    assert judge([case], [eager]).ok is ok


def test_gradients_of_some_rows_are_held_against_those_rows_gradients(short_of_memory):
    text = "x: bf16[4096, 64].requires_grad\nreturn torch.softmax(x, -1)"
    region = parse(text)
    worker = Worker(Silent())
    task = worker._build(lambda *_: lambda x: (torch.softmax(x, -1),), "any", region, {})
    (x,) = input_set(region, {}, "cpu", 3)
    seen = worker.checker.reference(task, [x.requires_grad_()])
    given, gradient = (t.detach() for t in task.call(x.requires_grad_()))
    assert len(seen.expected.outputs) == 2
    fine = worker.checker.against(seen, (given, gradient))
    assert max(e.error for e in fine) < 5e-3
    torch.set_grad_enabled(True)
    other = worker.checker.against(seen, (given, gradient * 1.05))
    assert other[1].error > 0.04
    torch.set_grad_enabled(True)


def test_where_rows_are_not_by_themselves_float32_is_the_reference(monkeypatch):
    original = checking.reference

    def reference(module, inputs, needs, upstream, wide=torch.float64, watched=()):
        if wide == torch.float64:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80.00 GiB")
        return original(module, inputs, needs, upstream, wide, watched)

    monkeypatch.setattr(checking, "reference", reference)
    seen, _ = checked("x: f32[1024, 64]\nreturn torch.cumsum(x, 0)", lambda x: (x.cumsum(0),))
    assert seen.expected.precision == "float32"


ATTENTION = """q: bf16[4, 16, 96, 32].requires_grad
k: bf16[4, 16, 96, 32].requires_grad
v: bf16[4, 16, 96, 32].requires_grad
bias: f32[16, 96, 96]
s = q @ k.transpose(-2, -1) * 0.17 + bias
return torch.softmax(s, -1).to(torch.bfloat16) @ v
"""


def test_the_heads_of_an_attention_are_rows_where_few_are_enough() -> None:
    region = parse(ATTENTION)
    assert rows_of(region, {}, "cpu") is None  # a query's row needs every key, and there are fewer heads
    rows = rows_of(region, {}, "cpu", FEW_ROWS)
    assert rows is not None and rows.count == 16
    assert rows.inputs == (1, 1, 1, 0) and rows.outputs == (1, 1, 1, 1)
    assert rows.some(2, 7) == [0, 15]
