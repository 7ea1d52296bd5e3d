"""Prices of whole programs on programs that no point was drawn from, and what they are added up from."""

from __future__ import annotations

import math

import pytest

from app.accuracy.case import Case, cases
from app.accuracy.corpus.measured import load_measured
from app.accuracy.question import question
from app.atlas.item import alignment
from app.atlas.operation_items import operation_item, site_operation
from app.atlas.price import CALL_US, Cache, Part, Total
from app.estimate import predict
from app.estimate.rates import FITTED, WITHOUT_ATLAS, Rates
from profiler.oracle.model import CallSite, Operand
from profiler.region.graph.lowering import lower
from profiler.region.graph.operation import Operation, Tensor
from profiler.region.language.text import parse


def off(measured: list[Case], rates: Rates) -> list[float]:
    """|log(predicted over measured)| of eager's device time."""
    errors = []
    for case in measured:
        asked, eager = question(case).prepared, case.candidate("eager")
        predicted = predict.eager(asked.facts, asked.device, rates)
        if predicted is not None and eager is not None and eager.time_us is not None:
            errors.append(abs(math.log(predicted.time_us.mid / eager.time_us.median)))
    return errors


def test_the_atlas_is_nearer_to_programs_of_the_corpus_than_rates_that_were_fitted_on_others() -> None:
    measured = list(cases(load_measured("development")))
    with_atlas, without = off(measured, FITTED), off(measured, WITHOUT_ATLAS)
    assert len(with_atlas) >= 60
    near = [sum(e <= math.log(1.2) for e in errors) / len(errors) for errors in (with_atlas, without)]
    assert near[0] > near[1]
    assert math.hypot(*with_atlas) < 0.6 * math.hypot(*without)


def operation(text: str) -> Operation:
    return next(o for o in lower(parse(text)).operations if o.kind not in ("view", "constant"))


@pytest.mark.parametrize(
    ("text", "name", "inputs", "output"),
    [
        ("x: bf16[512, 256]\nw: bf16[256, 1024]\nreturn x @ w\n", "mm", [(512, 256), (256, 1024)], (512, 1024)),
        (
            "x: bf16[8, 64, 32]\nw: bf16[8, 32, 16]\nreturn torch.bmm(x, w)\n",
            "bmm", [(8, 64, 32), (8, 32, 16)], (8, 64, 16),
        ),
        (
            "x: f32[4, 64, 32, 32]\nw: f32[128, 64, 3, 3]\nreturn F.conv2d(x, w, padding=1)\n",
            "convolution", [(4, 64, 32, 32), (128, 64, 3, 3)], (4, 128, 32, 32),
        ),
    ],
)  # fmt: skip
def test_a_library_call_of_the_compiler_is_described_as_eagers_own(
    text: str, name: str, inputs: list[tuple[int, ...]], output: tuple[int, ...]
) -> None:
    dtype = "f32" if "f32" in text else "bf16"
    site = CallSite(
        tuple(Operand(dtype, s, contiguous(s)) for s in inputs), (Operand(dtype, output, contiguous(output)),),
        tuple(str(n) for n in range(len(inputs))),
    )  # fmt: skip
    called = site_operation(name, site)
    assert called is not None
    assert called.flops == operation(text).flops
    one, other = operation_item(called), operation_item(operation(text))
    assert one is not None and other is not None
    assert (one.group, one.bytes_moved) == (other.group, other.bytes_moved)
    assert one.numbers == pytest.approx(other.numbers)


QKV = "".join(f"{n}: bf16[2, 16, 512, 64]\n" for n in "qkv")


def attention(name: str, causal: bool, given: int) -> CallSite:
    operand = Operand("bf16", (2, 16, 512, 64), contiguous((2, 16, 512, 64)))
    return CallSite((operand,) * given, (operand,) * (given - 2), ("",) * given, (("is_causal", causal),))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_inside_compiled_code_is_eagers_with_its_causal_order(causal: bool) -> None:
    called = site_operation("aten._scaled_dot_product_flash_attention", attention("", causal, 3))
    eager = operation(f"{QKV}return F.scaled_dot_product_attention(q, k, v, is_causal={causal})\n")
    assert called is not None
    one, other = operation_item(called), operation_item(eager)
    assert one is not None and other is not None
    assert (called.flops, one.group) == (eager.flops, other.group)
    assert one.numbers == pytest.approx(other.numbers)


def test_a_backward_of_attention_that_nobody_measured_costs_its_products() -> None:
    called = site_operation("aten._scaled_dot_product_flash_attention_backward", attention("", False, 6))
    forward = operation(f"{QKV}return F.scaled_dot_product_attention(q, k, v)\n")
    assert called is not None and called.flops == 2.5 * forward.flops


def test_scales_behind_a_products_matrices_are_none_of_its_matrices() -> None:
    shapes = [(512, 1024), (1024, 256), (512, 1), (1, 256)]
    site = CallSite(
        tuple(Operand("f8e4m3" if n < 2 else "f32", s, contiguous(s)) for n, s in enumerate(shapes)),
        (Operand("bf16", (512, 256), (256, 1)),), ("self", "mat2", "scale_a", "scale_b"),
    )  # fmt: skip
    called = site_operation("aten._scaled_mm", site)
    assert called is not None and called.flops == 2 * 512 * 256 * 1024


@pytest.mark.parametrize(("shape", "constants"), [((), ()), ((64, 8), (("dim", 0),))])
def test_a_sort_goes_along_the_axis_that_it_is_given(
    shape: tuple[int, ...], constants: tuple[tuple[str, int], ...]
) -> None:
    operand = Operand("f32", shape, contiguous(shape))
    called = site_operation("aten.sort", CallSite((operand,), (operand,), ("self",), constants))
    assert called is not None
    assert called.axes == ((0,) if shape else ())
    operation_item(called)  # of a number alone too


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[n + 1 :]) for n in range(len(shape)))


def test_what_was_just_written_is_read_from_l2_until_so_much_else_was_used() -> None:
    def tensor(storage: int, moved: int) -> Tensor:
        return Tensor((moved,), (1,), "u8", storage, moved)

    cache = Cache(1000)
    cache.touch([tensor(1, 400)])
    assert cache.share_held([tensor(1, 400), tensor(2, 400)]) == 0.5
    cache.touch([tensor(3, 900)])
    assert cache.share_held([tensor(1, 400)]) == 0.0
    assert cache.share_held([tensor(3, 900)]) == 1.0


def test_a_sum_is_as_uncertain_as_half_of_its_parts_errors_being_common() -> None:
    one = Total((Part("a", 10.0, 0.2),))
    many = Total(tuple(Part(str(n), 10.0, 0.2) for n in range(100)))
    assert one.time_us == pytest.approx(CALL_US + 10)
    assert one.deviation == pytest.approx(0.2)
    assert many.deviation == pytest.approx(0.2 * math.sqrt(0.5 + 0.5 / 100))
    assert Total((Part("a", 30.0, 0.2), Part("b", 10.0, None))).known == pytest.approx(0.75)


@pytest.mark.parametrize(("size", "times"), [(1, 0), (12, 2), (50257, 0), (50304, 7), (4096, 7), (0, 7)])
def test_alignment_counts_factors_of_two(size: int, times: int) -> None:
    assert alignment(size) == times
