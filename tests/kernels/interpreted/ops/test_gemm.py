"""Matrix products: every variant, not only the one that is picked; both tile orders; ties; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.agreement import disagreement
from kernels.ops.matmul import matmul, matmul_argmin, matmul_epilogue, matmul_layer_norm, matmul_logsumexp
from kernels.ops.matmul.gemm import descriptor, tma_takes, transposed
from kernels.spec import Maker, Operation, case
from kernels.tuning import Variant

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def _variants(space: Callable[..., list[Variant]], *arguments: Any) -> list[Variant]:
    """Of large and of small problems, with and without TMA, by the constants that say how they run."""
    found = [v for tma in (True, False) for v in space(*arguments, tma)]
    return list({v.choice: v for v in found}.values())


def _large(rows: int, columns: int) -> torch.Tensor:
    """Of a size for which the large tiles are offered; K as in SMALL, and no memory behind it."""
    return torch.empty((rows, columns), dtype=torch.float16, device="meta")


def _assert_agrees(operation: Operation, got: Any, arguments: tuple[Any, ...], variant: Variant) -> None:
    assert disagreement(operation, got, arguments) == "", str(variant)


@pytest.mark.parametrize("across", ["", "b", "ab"])
def test_every_variant_of_a_product(across: str) -> None:
    a, b = matmul.inputs(case("f16", m=136, k=72, n=72, transposed=across), Maker())
    wide_a, wide_b = _large(8192, 72), _large(72, 8192)
    if "a" in across:
        wide_a = _large(72, 8192).T
    if "b" in across:
        wide_b = _large(8192, 72).T
    few = matmul.space(_large(32, 4096), _large(4096, 512), True) if not across else []
    for variant in (*_variants(matmul.space, wide_a, wide_b), *few):
        if variant.kernel is matmul.matmul_kernel and variant["EVEN_K"] and 72 % variant["BK"]:
            continue  # chosen for another K
        if dict(variant.constants).get("TMA") and (variant["A_T"], variant["B_T"]) != (transposed(a), transposed(b)):
            continue  # and for other strides
        c = torch.full((136, 72), torch.nan, dtype=torch.float16)
        matmul.launch(variant, a, b, c)
        _assert_agrees(matmul.OPERATIONS[0], c, (a, b), variant)


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize(("k", "parts"), [(72, 2), (300, 8), (40, 4)])
def test_parts_of_k_with_none_left_for_the_last(k: int, parts: int, join: bool) -> None:
    a, b = matmul.inputs(case("f32", m=20, k=k, n=70), Maker())
    variant = matmul._split(16, 64, 64, parts, "ieee", join)
    for _ in range(2):  # the counters that the first launch leaves serve the second
        c = torch.full((20, 70), torch.nan)
        matmul.launch(variant, a, b, c)
        _assert_agrees(matmul.OPERATIONS[0], c, (a, b), variant)


@pytest.mark.parametrize("name", ["plain order", "grouped order", "smallest tile"])
def test_every_order_of_tiles_reaches_all_of_them(name: str) -> None:
    a, b = matmul.inputs(
        case("f16", m=300 if "order" in name else 150, k=16, n=520 if "order" in name else 40), Maker()
    )
    variant, c = matmul.order_of_programs(a, b)[name], torch.full((a.shape[0], b.shape[1]), torch.nan).half()
    matmul.launch(variant, a, b, c)
    _assert_agrees(matmul.OPERATIONS[0], c, (a, b), variant)


def test_plain_and_grouped_order_differ_in_nothing_but_the_order() -> None:
    plain, grouped = (
        matmul.order_of_programs(_large(64, 64), _large(64, 64))[f"{w} order"] for w in ("plain", "grouped")
    )
    assert {n for (n, x), (_, y) in zip(plain.constants, grouped.constants, strict=True) if x != y} == {"GROUP_M"}
    assert (plain.warps, plain.stages) == (grouped.warps, grouped.stages)


@pytest.mark.parametrize("kind", ["dtype", "bool"])
def test_every_variant_of_an_epilogue(kind: str) -> None:
    c = case("f16", m=136, k=72, n=72, mask=kind, residual=1)
    a, b, bias, activation, mask, residual = arguments = matmul_epilogue.inputs(c, Maker())
    after = matmul_epilogue._after(bias, activation, mask, residual, a.dtype)
    held = mask.view(torch.uint8) if kind == "bool" else mask

    def space(tma: bool) -> list[Variant]:
        return matmul_epilogue.space(_large(8192, 72), _large(72, 8192), after, tma)

    for variant in _variants(space):
        y = torch.full((136, 72), torch.nan, dtype=torch.float16)
        matmul_epilogue.launch(variant, a, b, y, bias, held, residual)
        _assert_agrees(matmul_epilogue.OPERATIONS[0], y, arguments, variant)


@pytest.mark.parametrize("module", [matmul_logsumexp, matmul_argmin])
def test_every_variant_of_a_strip(module: Any) -> None:
    arguments = module.inputs(case("f16", m=40, k=40, n=552), Maker())
    a, b = arguments[0], arguments[1] if module is matmul_logsumexp else arguments[1].T
    for variant in _variants(module.space, _large(32768, 40), _large(32760, 40).T):
        y = torch.zeros(40, dtype=torch.int64 if module is matmul_argmin else torch.float32)
        module.launch(variant, a, b, y, *([1.0] if module is matmul_logsumexp else []))
        _assert_agrees(module.OPERATIONS[0], y, arguments, variant)


def test_every_variant_of_layer_norm() -> None:
    arguments = a, b, weight, bias = matmul_layer_norm.inputs(case("f16", m=150, k=72, n=136), Maker())
    for variant in _variants(matmul_layer_norm.space, a, b):
        y = torch.full((150, 136), torch.nan, dtype=torch.float16)
        matmul_layer_norm.launch(variant, a, b, weight, bias, y, 1e-5)
        _assert_agrees(matmul_layer_norm.OPERATIONS[0], y, arguments, variant)


def test_layer_norm_of_rows_far_from_zero_keeps_its_digits() -> None:
    # The mean is a thousand times the deviation: a variance as mean of squares less square of mean would be noise.
    a, b, weight, bias = matmul_layer_norm.inputs(case("f32", m=20, k=8, n=64), Maker())
    a[:, 0], b[0] = 1000.0, 1.0
    _assert_agrees(
        matmul_layer_norm.OPERATIONS[0], matmul_layer_norm.matmul_layer_norm(a, b, weight, bias),
        (a, b, weight, bias), matmul_layer_norm.space(a, b, False)[0],
    )  # fmt: skip


@pytest.mark.parametrize("tanh", [False, True])
def test_gelu_by_a_polynomial_is_far_below_the_rounding_of_16_bits(tanh: bool) -> None:
    # One row of A is 1 alone, so that the product is B itself.
    x = torch.linspace(-60, 60, 1201).half()
    a, b = torch.ones((1, 1), dtype=torch.float16), x[None, :]
    got = matmul_epilogue.matmul_epilogue(a, b, None, "gelu_tanh" if tanh else "gelu")[0].double()
    wanted = torch.nn.functional.gelu(x.double(), approximate="tanh" if tanh else "none")
    assert float((got - wanted).abs().sub(wanted.abs() * 2**-11).max()) < 6e-5
    assert bool((got[x > 5] == x[x > 5].double()).all()) and bool((got[x < -5] == 0).all())


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_gelu_by_a_polynomial_keeps_nan_and_infinity(name: str) -> None:
    b = torch.tensor([[torch.nan, torch.inf, 60000.0, -60000.0]], dtype=torch.float16)
    got = matmul_epilogue.matmul_epilogue(torch.ones((1, 1), dtype=torch.float16), b, None, name)[0]
    assert torch.isnan(got[0]) and got[1] == torch.inf and got[2] == 60000.0 and got[3] == 0.0


def test_of_equal_distances_the_lowest_index_is_taken() -> None:
    a, codebook = matmul_argmin.inputs(case("f32", m=40, k=24, n=64), Maker())
    # The same rows again, in another tile and in another strip.
    index = matmul_argmin.matmul_argmin(a, codebook.repeat(20, 1))
    assert torch.equal(index, matmul_argmin.reference(a.double(), codebook.double()))


def test_nan_among_the_distances_is_the_least_of_them_as_in_torch() -> None:
    a, codebook = matmul_argmin.inputs(case("f32", m=9, k=24, n=300), Maker())
    codebook[200, 3] = torch.nan
    a[4] = torch.nan
    assert torch.equal(matmul_argmin.matmul_argmin(a, codebook), matmul_argmin.reference(a, codebook))


def test_a_wrong_index_does_not_agree() -> None:
    arguments = matmul_argmin.inputs(case("f32", m=9, k=24, n=30), Maker())
    right = matmul_argmin.matmul_argmin(*arguments)
    matmul_argmin.agree((right,), arguments)
    with pytest.raises(AssertionError, match="nearer"):
        matmul_argmin.agree(((right + 1) % 30,), arguments)


def test_logsumexp_of_infinite_logits_in_some_strips_only() -> None:
    a = torch.ones((3, 2))
    b = torch.zeros((2, 1100))
    b[:, :1024] = -torch.inf
    assert torch.allclose(matmul_logsumexp.matmul_logsumexp(a, b), torch.full((3,), 76.0).log())
    b[0, 5] = torch.inf
    b[1, 5] = 1.0
    assert bool((matmul_logsumexp.matmul_logsumexp(a, b) == torch.inf).all())
    assert bool((matmul_logsumexp.matmul_logsumexp(a, b[:, :0]) == -torch.inf).all())


@pytest.mark.parametrize("columns", [5, 128, 1100])
def test_logsumexp_of_logits_scaled_by_nothing_is_that_of_zeros(columns: int) -> None:
    tensor = matmul_logsumexp.matmul_logsumexp(torch.ones((3, 2)), torch.ones((2, columns)), 0.0)
    assert torch.allclose(tensor, torch.full((3,), float(columns)).log())


def test_a_walk_along_a_long_stride_does_not_overflow_32_bits() -> None:
    # Column-major A and B of which only the parts that are read exist: 66 steps of 2^25 elements.
    stride, k = 1 << 25, 130
    room = torch.empty(stride * (k - 1) + 16, dtype=torch.float16)  # never touched beyond the columns: costs no memory
    a = room.as_strided((16, k), (1, stride)).normal_()
    b = torch.randn((k, 16), dtype=torch.float16)
    torch.testing.assert_close(matmul.matmul(a, b).float(), a.float() @ b.float(), atol=2e-2, rtol=1e-2)


def test_tma_is_left_out_where_it_cannot_be() -> None:
    x = torch.zeros((64, 64), dtype=torch.float16)
    assert tma_takes(x, x.T)
    assert not tma_takes(x.float())
    assert not tma_takes(x[:, 1:]), "the base is no multiple of 16 bytes"
    assert not tma_takes(torch.zeros((64, 60), dtype=torch.float16)), "nor the stride"
    assert not tma_takes(x[:, ::2]), "no unit stride"
    assert not tma_takes(x[:0])
    assert descriptor(x[:32].T, (16, 8)).block_shape == [8, 16]


MATRIX, OTHER = torch.zeros((4, 6)), torch.zeros((6, 5))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: matmul.matmul(MATRIX, OTHER.half()), TypeError, "alike"),
        (lambda: matmul.matmul(MATRIX.double(), OTHER.double()), TypeError, "float64"),
        (lambda: matmul.matmul(MATRIX, MATRIX), ValueError, r"\[4, 6\] and \[4, 6\]"),
        (lambda: matmul.matmul(MATRIX, OTHER, "tf64"), ValueError, "tf32x3"),
        (lambda: matmul_epilogue.matmul_epilogue(MATRIX, OTHER, None, "elu"), ValueError, "gelu_tanh"),
        (lambda: matmul_epilogue.matmul_epilogue(MATRIX, OTHER, torch.zeros(4)), ValueError, "bias"),
        (lambda: matmul_epilogue.matmul_epilogue(MATRIX, OTHER, torch.zeros(5).bool()), TypeError, "bias"),
        (lambda: matmul_epilogue.matmul_epilogue(MATRIX, OTHER, mask=MATRIX), ValueError, "mask"),
        (lambda: matmul_layer_norm.matmul_layer_norm(MATRIX, OTHER, MATRIX[0], MATRIX[0]), ValueError, "5 elements"),
        (
            lambda: matmul_layer_norm.matmul_layer_norm(MATRIX, torch.zeros((6, 513)), MATRIX[0], MATRIX[0]),
            ValueError, "512",
        ),
        (lambda: matmul_argmin.matmul_argmin(MATRIX, MATRIX[:0]), ValueError, "one row"),
        (lambda: matmul_argmin.matmul_argmin(MATRIX, OTHER), ValueError, r"\[5, 6\]|\[6, 5\]|\[4, 6\]"),
    ],
)  # fmt: skip
def test_what_is_refused_says_why(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
