"""Regions of scalars, of no elements, of strides of zero, divided by zero: PyTorch takes them, so there is advice."""

from __future__ import annotations

import json

import pytest

from app.analysis.service import advise_region

TEXTS = {
    "a scalar, flattened": "x: f32[()]\ny = x.flatten()\nreturn y\n",
    "a dot product by einsum": "x: f32[1024]\nreturn einsum('i,i->', x, x)\n",
    "an inner product": "x: f32[1024]\nreturn inner(x, x)\n",
    "a loss of one element plus 1": "x: f32[256, 512]\nl = x.pow(2).mean()\nreturn l.reshape(1) + 1\n",
    "scores over zero": "x: f32[16, 64]\nreturn softmax(x @ x.mT / 0.0, -1) @ x\n",
    "scores times infinity": "x: f32[16, 64]\nreturn softmax(x @ x.mT * float('inf'), -1) @ x\n",
    "a temperature of zero": "x: f32[16, 64]\nreturn gumbel_softmax(x, 0)\n",
    "index_fill of a scalar": "x: f32[()].requires_grad\nreturn x.index_fill(0, arange(1), 0)\n",
    "index_select by a scalar": "x: f32[64, 8]\ni: i64[()]\nreturn x.index_select(0, i)\n",
    "index_select of a scalar": "x: f32[()]\ni: i64[1]\nreturn x.index_select(0, i) * 2\n",
    "gather of a scalar": "x: bf16[()]\ni: i32[()]\nreturn gather(x, 0, i)\n",
    "the gradient of scatter into a scalar": (
        "x: f16[()].requires_grad\nw: f16[()].requires_grad\ni: i64[()]\nreturn stack([x.scatter(0, i, w), x], 0)\n"
    ),
    "the gradient of index_add into a scalar": (
        "x: f32[()].requires_grad\ni: i64[()]\ny = x * x\nreturn y.index_add(-1, i, x)\n"
    ),
    "a mask of u8": "x: f32[64, 8, 1]\ni: u8[()]\nreturn index_put(x, (i,), x, accumulate=True)\n",
    "one operand three times": "m: f32[64, 64]\nreturn aten._addmm_activation(m, m, m)\n",
    "a row of one number": "x: f32[65536].strides(0)\nw: f32[64]\nreturn (x * 2).sum() * w\n",
    "a softmax of 8-bit floats, widened": "x: f8e4m3[64, 128]\nreturn softmax(x.float(), -1)\n",
    "a softmax narrowed to 8-bit floats": "x: f32[64, 128]\nreturn softmax(x, -1).to(f8e5m2)\n",
    "a norm from one 8-bit float to the other": (
        "x: f8e4m3[64, 128]\nw: f32[128]\nreturn rms_norm(x.float(), (128,), w).to(f8e5m2)\n"
    ),
}
EMPTY = {
    "no rows": "x: bf16[0, 64]\nw: bf16[64, 128]\nreturn relu(x @ w)\n",
    "no columns": "x: bf16[64, 64]\nw: bf16[64, 0]\nreturn relu(x @ w)\n",
    "no heads": "q: bf16[0, 16, 8]\nreturn softmax(q @ q.mT * 0.125, -1) @ q\n",
    "a norm of no rows": "x: f32[0, 64]\nw: f32[64]\nreturn rms_norm(x, (64,), w)\n",
    "a sum along nothing but no rows": "x: f32[0, 64]\nreturn (x * 2).sum(-1)\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_it_has_advice_and_finite_figures(text: str) -> None:
    region = advise_region(text, device="H200")
    json.dumps(region, allow_nan=False)
    assert region["advice"]["tool"] in ("skip", "library", "compile", "triton", "cuda")
    assert region["advice"]["floor_us"] >= 0


@pytest.mark.parametrize("text", EMPTY.values(), ids=EMPTY)
def test_a_result_of_no_elements_moves_no_bytes_and_has_a_floor_of_zero(text: str) -> None:
    region = advise_region(text, device="H200")
    json.dumps(region, allow_nan=False)
    assert region["cost"]["unfused"]["bytes_moved"] == region["cost"]["ideal"]["bytes_moved"] == 0
    assert region["cost"]["ideal"]["flops"] == 0
    assert region["advice"]["floor_us"] == 0


def test_a_product_along_nothing_still_writes_its_zeros() -> None:
    """[64, 0] @ [0, 128] is 64 x 128 zeros: their bytes, and no FLOP."""
    region = advise_region("x: bf16[64, 0]\nw: bf16[0, 128]\nreturn x @ w\n", device="H200")
    assert region["cost"]["ideal"]["bytes_read"] == 0
    assert region["cost"]["ideal"]["bytes_written"] == 64 * 128 * 2
    assert region["cost"]["ideal"]["flops"] == 0
