"""f32 products as sums of products of bf16 parts: as exact as f32, in every layout, at both ends of f32's range."""

from __future__ import annotations

import math

import pytest
import torch
import triton

from kernels.agreement import disagreement
from kernels.ops.matmul import bf16_parts, matmul
from kernels.spec import Maker, case
from kernels.tuning import Variant

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
OPERATION = matmul.OPERATIONS[0]


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (variant,) = bf16_parts.tiles(a, b)
    c = torch.full((a.shape[0], b.shape[1]), torch.nan)
    bf16_parts.launch(variant, a, b, c)
    return c


def parts_of(x: torch.Tensor, k_rows: bool) -> torch.Tensor:
    described, pitch = bf16_parts._parts(x, k_rows, 64, 32)
    whole, columns = described.base, x.shape[1]
    if k_rows:
        return torch.stack([whole[:, i * pitch : i * pitch + columns] for i in range(3)])
    return whole.view(3, x.shape[0], pitch)[:, :, :columns]


@pytest.mark.parametrize("k_rows", [False, True])
def test_three_parts_are_the_number_and_each_is_of_bf16(k_rows: bool) -> None:
    x = torch.randn(37, 45, generator=torch.Generator().manual_seed(1)) * 1e3
    parts = parts_of(x, k_rows)
    assert torch.equal(parts, parts.to(torch.bfloat16).float())
    assert torch.equal(parts.double().sum(0), x.double())


def test_a_number_near_the_largest_is_not_rounded_to_infinity() -> None:
    largest = torch.finfo(torch.float32).max
    x = torch.tensor([[largest, -largest, math.inf, -math.inf, math.nan, 0.0, 1e-30, -3.39e38]])
    parts = parts_of(x, False)
    assert torch.equal(parts.double().sum(0)[0, [0, 1, 5, 6, 7]], x.double()[0, [0, 1, 5, 6, 7]])
    assert torch.equal(parts[0, 0, 2:4], x[0, 2:4]) and torch.isnan(parts[0, 0, 4])
    assert torch.equal(parts[1:, 0, 2:5], torch.zeros(2, 3)), "an infinity has no rest"


@pytest.mark.parametrize("across", ["", "a", "b", "ab"])
@pytest.mark.parametrize("form", ["plain", "strided", "misaligned", "special"])
@pytest.mark.parametrize(("m", "k", "n"), [(70, 100, 67), (64, 64, 64), (130, 5, 3)])
def test_products_in_every_layout_are_as_exact_as_f32(across: str, form: str, m: int, k: int, n: int) -> None:
    arguments = OPERATION.inputs(case("f32", m=m, k=k, n=n, transposed=across, precision="bf16x6"), Maker(form=form))
    assert disagreement(OPERATION, product(*arguments[:2]), arguments) == ""


def test_columns_of_both_strides() -> None:
    a, b = torch.randn(40, 120)[:, ::3], torch.randn(120, 50)[::3, ::2]
    assert disagreement(OPERATION, product(a, b), (a, b)) == ""


def test_one_product_of_large_parts_alone_would_not_pass() -> None:
    arguments = OPERATION.inputs(case("f32", m=64, k=200, n=64), Maker())
    rounded = tuple(x.to(torch.bfloat16).float() for x in arguments)
    assert disagreement(OPERATION, rounded[0] @ rounded[1], arguments) != ""


def test_an_infinity_beside_parts_of_the_other_sign_stays_one() -> None:
    a, b = torch.ones(64, 64), torch.full((64, 64), 0.9990001)
    a[3, 7], a[5, 9] = math.inf, -math.inf
    b[:, 1] = 1.0  # whose second and third parts are zero
    got = product(a, b)
    assert (got[3] == math.inf).all() and (got[5] == -math.inf).all()
    others = [i for i in range(64) if i not in (3, 5)]
    assert torch.isfinite(got[others]).all()


def test_sums_of_chunks_are_added_over_all_of_k() -> None:
    a, b = torch.ones(64, 1000), torch.ones(1000, 64)
    (variant,) = bf16_parts.tiles(a, b)
    assert variant["CHUNK"] * 4 < 1000
    assert torch.equal(product(a, b), torch.full((64, 64), 1000.0))


def test_it_is_offered_for_large_products_with_tma_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)

    def offered(size: int, precision: str = "bf16x6") -> list[Variant]:
        a = torch.empty((size, size), device="meta")
        return [v for v in matmul.space(a, a.T, False, precision) if v.kernel is bf16_parts.parts_product]

    assert not offered(4096), "no TMA"
    monkeypatch.setattr(bf16_parts, "has_tma", lambda device: True)
    assert offered(4096) and not offered(256)
    assert not offered(4096, "ieee") and not offered(4096, "tf32x3")
    assert {(v["A_K_ROWS"], v["B_K_ROWS"]) for v in offered(4096)} == {(False, False)}
