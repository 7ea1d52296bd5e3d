"""Softmax along any axis, in every variant, and its backward: what the checks of the operations do not reach."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.ops.shared.tickets import tickets
from kernels.ops.softmax import softmax, softmax_axis, softmax_backward, softmax_long
from kernels.tuning import Variant

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def near(got: torch.Tensor, exact: torch.Tensor) -> bool:
    floor = {torch.float32: 3e-7, torch.float16: 5e-4, torch.bfloat16: 4e-3}[got.dtype]
    return float((got.double() - exact).norm()) <= floor * float(exact.norm())


def poisoned(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.full(x.shape, math.nan, dtype=dtype)


def kinds(variants: list[Variant]) -> list[Variant]:
    """One of each kernel and number of held pieces: warps and stages do not exist in the interpreter."""
    return list({(v.kernel, dict(v.constants).get("HELD")): v for v in variants}.values())


@pytest.mark.parametrize("widen", [False, True])
def test_a_row_longer_than_registers_is_the_same_however_much_of_it_is_held(widen: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 80002).bfloat16()
    x[0, 70000:] = -math.inf
    exact = torch.softmax(x.double(), -1)
    variants = kinds(softmax.space(1, 80002, x.dtype, True, widen))
    assert len({v["HELD"] for v in variants}) >= 4
    for variant in variants:
        y = poisoned(x, torch.float32 if widen else x.dtype)
        softmax.launch(variant, x, y)
        assert near(y, exact), variant


@pytest.mark.parametrize("columns", [16640, 40000])
def test_a_program_that_walks_over_several_rows_leaves_none_out(columns: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, columns).half()
    variants = [v for v in softmax.space(5, columns, x.dtype, True) if v.kernel is softmax.softmax_ahead]
    assert any(v["AHEAD"] for v in variants) == (columns == 40000)
    for variant in {v["AHEAD"]: v for v in variants}.values():
        y = poisoned(x, x.dtype)
        softmax.launch(variant, x, y)
        assert near(y, torch.softmax(x.double(), -1)), variant


@pytest.mark.parametrize(("dtype", "offset"), [(torch.float16, 60000.0), (torch.bfloat16, 3e6), (torch.bfloat16, 1e9)])
def test_a_large_offset_changes_no_weight(dtype: torch.dtype, offset: float) -> None:
    """Neighbouring numbers are far apart there: exp(x - max) is then calculated with another factor."""
    steps = torch.randint(3, (2, 40000), generator=torch.Generator().manual_seed(0))
    x = (offset - steps * (offset * torch.finfo(dtype).eps)).to(dtype)
    for variant in kinds(softmax.space(2, 40000, dtype, True)):
        y = poisoned(x, dtype)
        softmax.launch(variant, x, y)
        assert near(y, torch.softmax(x.double(), -1)), variant


def test_rows_that_are_fully_masked_by_the_least_finite_number_are_uniform() -> None:
    for dtype, columns in ((torch.bfloat16, 16386), (torch.float16, 16386), (torch.float32, 40000)):
        x = torch.full((1, columns), torch.finfo(dtype).min, dtype=dtype)
        variants = softmax.space(1, columns, dtype, dtype != torch.float32)
        for variant in {v.kernel: v for v in variants}.values():
            y = poisoned(x, dtype)
            softmax.launch(variant, x, y)
            torch.testing.assert_close(y, torch.full(x.shape, 1 / columns, dtype=dtype))


def test_programs_that_wait_for_each_other_leave_the_ticket_ready_for_the_next_launch() -> None:
    """One program a row: more would wait forever where programs run one after the other."""
    x = torch.randn(3, 3000)
    variant = softmax_long._variant(softmax_long.softmax_together, 3000, 4096, 8)
    for _ in range(2):
        y = poisoned(x, x.dtype)
        softmax_long.launch(variant, x, y)
        assert near(y, torch.softmax(x.double(), -1))
    ticket = tickets(x.device, variant["PARTS"], 3)
    assert ticket.tolist() == [2, 2, 2]


def test_waiting_programs_are_offered_only_where_all_of_them_are_resident() -> None:
    def together(rows: int, columns: int) -> list[Variant]:
        return [v for v in softmax_long.space(rows, columns, 132) if v.kernel is softmax_long.softmax_together]

    assert together(4, 1 << 20)
    assert all(dict(v.options) == {"launch_cooperative_grid": True} for v in together(4, 1 << 20))
    assert not together(64, 1 << 20)
    assert all(4 * v["PARTS"] * v.warps <= 132 * 32 for v in together(4, 1 << 20))


@pytest.mark.parametrize("shape", [(1, 300, 24), (1, 33, 130)])
def test_every_variant_over_a_middle_axis(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    x[0, :, 3] = -math.inf
    for variant in kinds(softmax_axis.space(*shape, 4, 132)):
        y = poisoned(x, x.dtype)
        softmax_axis.launch(variant, x, y)
        torch.testing.assert_close(y, torch.softmax(x, 1), equal_nan=True)


@pytest.mark.parametrize("columns", [9000, 65538])
def test_backward_however_much_of_a_row_is_held(columns: int) -> None:
    torch.manual_seed(0)
    y, dy = torch.softmax(torch.randn(1, columns), -1).half(), torch.randn(1, columns).half()
    exact = torch._softmax_backward_data(dy.double(), y.double(), -1, torch.float64)
    for variant in kinds(softmax_backward.space(1, columns, y.dtype, True)):
        dx = poisoned(y, y.dtype)
        softmax_backward.launch(variant, dy, y, dx)
        assert float((dx.double() - exact).norm()) <= 1e-3 * float(exact.norm()), variant


def test_backward_is_the_gradient_of_softmax() -> None:
    x, dy = torch.randn(3, 70, dtype=torch.float64, requires_grad=True), torch.randn(3, 70, dtype=torch.float64)
    y = torch.softmax(x, -1)
    (wanted,) = torch.autograd.grad(y, x, dy)
    torch.testing.assert_close(softmax_backward.softmax_backward(dy.float(), y.detach().float()), wanted.float())


def test_what_is_not_taken_is_said() -> None:
    x = torch.zeros(2, 3, dtype=torch.float64)
    for call in (lambda: softmax_long.softmax_long(x), lambda: softmax_axis.softmax_axis(x, 0)):
        with pytest.raises(TypeError, match="float64"):
            call()
    with pytest.raises(ValueError, match="no axis 2"):
        softmax_axis.softmax_axis(x.float(), 2)
    with pytest.raises(ValueError, match="shape"):
        softmax_backward.softmax_backward(x.float(), x.float()[:1])
    with pytest.raises(TypeError, match="float16"):
        softmax_backward.softmax_backward(x.half(), x.float())
