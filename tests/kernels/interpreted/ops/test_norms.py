"""Norm kernels beyond the catalogue's checks: every variant offered, what is refused, gradients against autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from kernels.agreement import disagreement
from kernels.ops.norm import add_rms_norm, channel_norm, layer_norm, layer_norm_backward, rms_norm
from kernels.ops.norm import backward as norm_backward
from kernels.ops.norm import rms_norm_backward as rms_backward
from kernels.ops.norm.backward import Form
from kernels.spec import Maker, Operation, case
from kernels.tuning import Tuner, Variant

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def nth(index: int) -> Callable[..., Variant]:
    """A tuner's pick that takes one variant of the space whatever its time."""

    def pick(self: Tuner, key: Any, space: Callable[[], Sequence[Variant]], *rest: Any) -> Variant:
        found = space()
        return found[index % len(found)]

    return pick


EVERY = [
    (rms_norm.OPERATIONS[1], {"columns": 2050}), (add_rms_norm.OPERATIONS[0], {"columns": 1536}),
    (layer_norm.OPERATIONS[0], {"columns": 2050}), (rms_backward.OPERATIONS[0], {"columns": 2050}),
    (layer_norm_backward.OPERATIONS[0], {"columns": 1536}), (layer_norm_backward.OPERATIONS[0], {"columns": 200}),
]  # fmt: skip


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize(("operation", "sizes"), EVERY, ids=lambda v: v.name if isinstance(v, Operation) else str(v))
def test_every_variant_is_as_exact(
    operation: Operation, sizes: dict[str, int], index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tuner, "pick", nth(index))
    arguments = operation.inputs(case("bf16", rows=3, **sizes), Maker(seed=index))
    assert disagreement(operation, operation.run(*arguments), arguments) == ""


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("columns", [1024, 1000])
def test_a_team_of_one_walks_its_rows(centered: bool, columns: int) -> None:
    operation = (layer_norm_backward if centered else rms_backward).OPERATIONS[0]
    dy, x, weight, *stats = operation.inputs(case("bf16", rows=5, columns=columns), Maker(seed=1))
    form = Form(centered=centered, bias=centered)
    variant = norm_backward.team(columns // 2, 2, torch.bfloat16, form, 4, 1)
    assert variant["TEAM"] == 1 and variant["WHOLE"] == (columns == 1024)
    dx, dw, db = torch.empty_like(x), torch.empty(columns), torch.empty(columns)
    norm_backward.launch(variant, dy, x, weight, stats[0], stats[-1], dx, dw, db, 0.0)
    got = (dx, dw.bfloat16(), db.bfloat16()) if centered else (dx, dw.bfloat16())
    assert disagreement(operation, got, (dy, x, weight, *stats)) == ""


@pytest.mark.parametrize("operation", [add_rms_norm.OPERATIONS[0], layer_norm.OPERATIONS[0]], ids=lambda o: o.name)
def test_a_program_that_asks_for_its_next_row_leaves_none_out(
    operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asking(self: Tuner, key: Any, space: Callable[[], Sequence[Variant]], *rest: Any) -> Variant:
        return next(v for v in space() if dict(v.constants).get("AHEAD"))

    monkeypatch.setattr(Tuner, "pick", asking)
    arguments = operation.inputs(case("bf16", rows=5, columns=33000), Maker(seed=3))
    assert disagreement(operation, operation.run(*arguments), arguments) == ""


def test_a_row_held_and_the_same_row_walked_are_equally_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    def walking(self: Tuner, key: Any, space: Callable[[], Sequence[Variant]], *rest: Any) -> Variant:
        return next(v for v in space() if v.kernel is rms_norm.rms_norm_loop)

    monkeypatch.setattr(Tuner, "pick", walking)
    for operation in (rms_norm.OPERATIONS[1], layer_norm.OPERATIONS[0]):
        arguments = operation.inputs(case("f32", rows=3, columns=4100), Maker(seed=3))
        assert disagreement(operation, operation.run(*arguments), arguments) == ""


def test_backwards_are_the_gradients_of_the_forwards() -> None:
    torch.manual_seed(4)
    x, w, b = torch.randn(3, 5, 70, requires_grad=True), torch.randn(70, requires_grad=True), torch.zeros(70)
    b.requires_grad_()
    dy = torch.randn(3, 5, 70)
    y, rstd = rms_norm.rms_norm_with_rstd(x.detach(), w.detach(), 1e-6)
    plain = rms_norm.reference(x, w, 1e-6)
    torch.testing.assert_close(y, plain.detach())
    dx, dw = rms_backward.rms_norm_backward(dy, x.detach(), w.detach(), rstd)
    for got, wanted in zip((dx, dw), torch.autograd.grad(plain, (x, w), dy), strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-4)
    normal = layer_norm.reference(x, w, b, 1e-5)
    found = layer_norm_backward.layer_norm_both(dy, x.detach(), w.detach(), b.detach())
    for got, wanted in zip(found, (normal, *torch.autograd.grad(normal, (x, w, b), dy)), strict=True):
        torch.testing.assert_close(got, wanted.detach(), atol=1e-5, rtol=1e-4)


def test_a_large_mean_costs_a_long_row_no_digits() -> None:
    x = torch.randn(2, 40000) + 512.0
    exact = torch.nn.functional.layer_norm(x.double(), (40000,))
    assert float((layer_norm.layer_norm(x).double() - exact).abs().max()) < 1e-4


def test_without_weight_only_dx_comes_back() -> None:
    x = torch.randn(4, 64)
    rstd = torch.rsqrt(x.pow(2).mean(-1))
    dx = rms_backward.rms_norm_backward(torch.ones_like(x), x, None, rstd)
    torch.testing.assert_close(dx, rms_backward.reference(torch.ones_like(x), x, None, rstd))


def test_what_they_do_not_take_is_said() -> None:
    x, w, rstd = torch.zeros(2, 8), torch.zeros(8), torch.zeros(2)
    with pytest.raises(TypeError, match="float64"):
        layer_norm.layer_norm(x.double())
    with pytest.raises(ValueError, match="bias has shape"):
        layer_norm.layer_norm(x, w, torch.zeros(7))
    with pytest.raises(TypeError, match="residual"):
        add_rms_norm.add_rms_norm(x, x.half())
    with pytest.raises(ValueError, match="residual"):
        layer_norm.add_layer_norm(x, x[:1])
    with pytest.raises(ValueError, match="the gradient has shape"):
        rms_backward.rms_norm_backward(x[:1], x, w, rstd)
    with pytest.raises(TypeError, match="rstd is"):
        rms_backward.rms_norm_backward(x, x, w, rstd.half())
    with pytest.raises(ValueError, match="given together"):
        layer_norm_backward.layer_norm_backward(x, x, w, mean=rstd)
    with pytest.raises(IndexError, match="none is 3"):
        channel_norm.channel_rms_norm(x, dim=3)
    with pytest.raises(ValueError, match="axis 0"):
        channel_norm.channel_rms_norm(x, w, dim=0)
