"""Predictions, against kernels counted by hand from what Inductor is known to do."""

from __future__ import annotations

import pytest

from profiler.oracle.inductor.answer import predict
from profiler.oracle.model import Prediction
from profiler.oracle.serialization import from_dict, to_message
from profiler.region.language.text import parse
from profiler.region.model import RegionError
from tests.profiler.oracle.asking import EXAMPLE, TRAINED, UNEVEN, device, text


def asked(region: str, mode: str = "default", gpu: str = "NVIDIA H200") -> Prediction:
    return predict(parse(region), None, device(gpu), mode)


def test_a_gemm_with_a_tail_is_a_library_call_and_one_kernel() -> None:
    answer = asked(EXAMPLE)
    assert not answer.unavailable
    assert answer.signature == ((("pointwise", 1),), (("mm", 1),))
    assert answer.launches == 2
    assert answer.kernels[0].lines == (6, 7, 8), "the kernel computes the bias, the GELU and the mask"
    assert "aten.gelu" in answer.kernels[0].operations
    assert "@triton.jit" in answer.kernels[0].source


def test_max_autotune_fuses_the_tail_into_a_template_and_says_what_it_assumes() -> None:
    answer = asked(EXAMPLE, "max-autotune")
    assert answer.signature == ((("template", 1),), ())
    assert answer.launches == 1
    # x, w, mask and y once each, and the bias: 3.5 N of the design, N = 8192 x 16384 x 2 bytes
    assert answer.bytes_moved == 2 * (8192 * 4096 + 4096 * 16384 + 2 * 8192 * 16384 + 16384)
    assert any("template" in a for a in answer.assumed)


def test_max_autotune_makes_reductions_of_a_product_with_one_row() -> None:
    answer = asked(text("samples/skinny_product"), "max-autotune")
    assert {k.kind for k in answer.kernels} == {"reduction", "persistent_reduction"} and not answer.assumed


def test_attention_by_hand_is_said_to_be_replaced() -> None:
    answer = asked(text("samples/attention_by_hand_plain"))
    assert [r.name for r in answer.replaced] == ["scaled_dot_product_attention"]
    assert answer.signature == ((), (("sdpa", 1),))


def test_a_library_call_for_attention_stays_one_call() -> None:
    assert asked(text("samples/sdpa_mask")).signature == ((), (("sdpa", 1),))


def test_training_counts_both_directions() -> None:
    answer = asked(TRAINED)
    assert [k.stage for k in answer.kernels] == ["forward", "backward"]
    assert answer.training


def test_attention_in_training_is_replaced_in_both_directions() -> None:
    answer = asked(text("training/attention_by_hand"))
    assert answer.signature == ((), (("sdpa", 1), ("sdpa_backward", 1)))


def test_the_number_of_processors_decides_how_a_sum_is_split() -> None:
    region = text("samples/column_sum")
    assert asked(region, gpu="NVIDIA H200").launches == 2
    assert asked(region, gpu="NVIDIA L4").launches == 1


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    region = text("samples/whole_sum")
    first = asked(region, gpu="NVIDIA H200")
    asked(region, gpu="NVIDIA L4")
    again = asked(region, gpu="NVIDIA H200")
    assert [k.source for k in first.kernels] == [k.source for k in again.kernels]


def test_uneven_products_are_padded_and_that_is_called_an_assumption() -> None:
    answer = asked(UNEVEN)
    assert answer.launches == 4 and any("padded" in a for a in answer.assumed)


@pytest.mark.parametrize("rows", [37, 911, 2047, 4095, 12289])
def test_an_odd_number_of_rows_alone_is_no_reason_to_pad(rows: int) -> None:
    # compiled on an H200 (torch 2.11): one product and one pointwise kernel for each of these
    answer = asked(f"x: bf16[{rows}, 4096]\nw: bf16[4096, 4096]\nreturn gelu(x @ w)\n")
    assert answer.signature == ((("pointwise", 1),), (("mm", 1),))


def test_a_gpu_that_cannot_be_imitated_is_unavailable_with_the_reason() -> None:
    for gpu, arch in (("AMD Instinct MI300X", "gfx942"), ("NVIDIA V100", "sm_70")):
        answer = asked(EXAMPLE, gpu=gpu)
        assert arch in answer.unavailable and not answer.kernels


def test_what_inductor_refuses_is_unavailable_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from profiler.oracle.inductor import pipeline

    def moved(*_: object, **__: object) -> None:
        raise AttributeError("module 'torch._inductor' has no attribute 'somewhere_else'")

    monkeypatch.setattr(pipeline, "compile_forward", moved)
    assert asked(EXAMPLE).unavailable.startswith("AttributeError: module 'torch._inductor'")


def test_a_region_that_does_not_fit_is_an_error_and_no_prediction() -> None:
    with pytest.raises(RegionError):
        asked("x: f32[4, 5]\nreturn x @ x\n")


def test_a_prediction_survives_the_wire() -> None:
    for answer in (asked(EXAMPLE), asked(text("samples/attention_by_hand_plain"))):
        assert from_dict(to_message(answer)) == answer
