"""Products with stored weights: every variant, bytes whose rows are no whole words, bf16 without the matrix units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.agreement import disagreement
from kernels.ops.quantised import weight_only_gemm as file
from kernels.ops.quantised.weight_only_gemm import OPERATIONS, inputs, launch, reference, space, weight_only_gemm
from kernels.spec import Maker, case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

(STORED,) = OPERATIONS
AFTER = (("ZERO", True), ("NUMBER", False), ("BIAS", True))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [0, 32, 128])
@pytest.mark.parametrize("m", [1, 3, 20])
def test_every_variant_agrees(bits: int, group: int, m: int) -> None:
    """Those that are offered where N is small, with parts of K, and words or bytes; K is no multiple of any tile."""
    c = case("f16", m=m, k=896, n=70, bits=bits, group=group, zero="tensor", bias=1)
    arguments = x, w, scale, zero, bias = inputs(c, Maker())
    k = 896
    scale, zero = scale.reshape(70, -1), zero.reshape(70, -1)
    for words in (True, False) if bits == 4 else (False,):
        variants = space(m, 8192, k, group or k, bits == 4, words, AFTER)
        variants += [v for v in space(m, 512, k, group or k, bits == 4, words, AFTER) if v["SPLIT_K"] > 1]
        for variant in variants[:: 2 if group else 1]:
            y = torch.full((m, 70), torch.nan, dtype=torch.float16)
            launch(variant, x, w, scale, zero, 0.0, bias, y)
            assert disagreement(STORED, y, arguments) == "", str(variant)


@pytest.mark.parametrize("m", [1, 4])
def test_few_rows_in_bf16_need_no_matrix_units(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file.tuner, "chosen", {})
    for bits, group in ((4, 64), (8, 0)):
        arguments = inputs(case("bf16", m=m, k=256, n=40, bits=bits, group=group, zero="number"), Maker())
        assert disagreement(STORED, weight_only_gemm(*arguments), arguments) == ""


@pytest.mark.parametrize("shift", [0, 1, 2, 4])
def test_weights_that_begin_within_a_word_or_are_cut_from_wider_ones(shift: int) -> None:
    x, w, scale, *_ = inputs(case("f16", m=2, k=128, n=20, bits=4, group=32), Maker())
    wide = torch.zeros((20, 64 + 7), dtype=torch.uint8)
    part = wide[:, shift : shift + 64]
    part.copy_(w)
    assert torch.equal(weight_only_gemm(x, part, scale), weight_only_gemm(x, w, scale))
    across = w.T.contiguous().T
    assert torch.equal(weight_only_gemm(x, across, scale), weight_only_gemm(x, w, scale))


def test_the_low_half_of_a_byte_is_the_even_column() -> None:
    x = torch.zeros((1, 64), dtype=torch.float16)
    w = torch.full((1, 32), 0x53, dtype=torch.uint8)
    for column, number in ((0, 3.0), (1, 5.0), (40, 3.0), (41, 5.0)):
        x.zero_()[0, column] = 1.0
        y = weight_only_gemm(x, w, torch.ones(1), 1.0)
        assert float(y) == number - 1.0 == float(reference(x, w, torch.ones(1), 1.0))


def test_bytes_with_and_without_a_sign() -> None:
    x = torch.ones((1, 32), dtype=torch.float16)
    w = torch.full((2, 32), 255, dtype=torch.uint8)
    assert weight_only_gemm(x, w, torch.ones(2)).tolist() == [[8160.0, 8160.0]]
    assert weight_only_gemm(x, w.view(torch.int8), torch.ones(2)).tolist() == [[-32.0, -32.0]]


X, W, ONES = torch.zeros((2, 64), dtype=torch.float16), torch.zeros((3, 64), dtype=torch.int8), torch.ones(3)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: weight_only_gemm(X.float(), W, ONES), TypeError, "float32"),
        (lambda: weight_only_gemm(X, W.short(), ONES), TypeError, "int16"),
        (lambda: weight_only_gemm(X, W, ONES.double()), TypeError, "float64"),
        (lambda: weight_only_gemm(X, W[:, :16], ONES), ValueError, r"\[N, 32\] bytes of two"),
        (lambda: weight_only_gemm(X, W, torch.ones(4)), ValueError, r"scales are \[3\]"),
        (lambda: weight_only_gemm(X, W, torch.ones((3, 4))), ValueError, "multiple of 32 numbers, not 16"),
        (lambda: weight_only_gemm(X, W, torch.ones((2, 3))), ValueError, r"scales are \[3, 2\]"),
        (lambda: weight_only_gemm(X, W, ONES, torch.ones((3, 2))), ValueError, "as many as scales"),
        (lambda: weight_only_gemm(X, W, torch.ones((3, 2)), torch.ones((2, 3))), ValueError, r"not \[2, 3\]"),
        (lambda: weight_only_gemm(X, W, ONES, None, torch.ones(2)), ValueError, r"bias is \[3\]"),
    ],
)
def test_what_is_refused_says_why(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
