"""Depthwise convolutions of a compiled model: which part of a region's time goes away with PyTorch's own kernels."""

from __future__ import annotations

from typing import Any, cast

import pytest

from app.trace_report.actions import depthwise
from app.trace_report.step_model import Step
from profiler.hardware import find_device

SIDE, IMAGES, CHANNELS = 56, 64, 96
ELEMENTS = IMAGES * CHANNELS * SIDE * SIDE


def step_of(window: int) -> Step:
    weight = f"f32[{CHANNELS}, 1, {window}, {window}]"
    image = f"f32[{IMAGES}, {CHANNELS}, {SIDE}, {SIDE}]"
    convolution = {
        "name": "convolution", "flops": 2 * ELEMENTS * window**2,
        "bytes_moved": 4 * (2 * ELEMENTS + CHANNELS * window**2),
    }  # fmt: skip
    region = {
        "name": "depthwise convolution", "busy_us_per_step": 4000.0,
        "text": f"x: {image}\nw: {weight}\ny = conv2d(x, w, padding=[1, 1], groups={CHANNELS})\nreturn y\n",
        "shapes": [{"binding": {}, "calls": 1.0, "operands": [f"x: {image}.requires_grad", f"w: {weight}"]}],
        "cost": {"operations": [convolution], "gemm_flops": convolution["flops"]},
    }  # fmt: skip
    return Step(cast(Any, {}), cast(Any, {}), cast(Any, [region]), 0.0, True)


def rows(name: str, time_us: float) -> Any:
    return [{"name": name, "time_us": time_us, "regions": [0], "calls_per_step": 1.0}]


def test_less_is_left_of_pytorchs_own_kernels_and_nothing_goes_of_cudnns() -> None:
    device = find_device("NVIDIA H200")
    own = rows("void at::native::conv_depthwise2d_backward_kernel<3, 1, float, int>", 2000.0)
    assert device is not None
    left_us = 1e6 * max(2 * ELEMENTS * 9 / device.f32_rate / 0.05, 8 * ELEMENTS / device.copy_rate)
    assert depthwise.gone(step_of(3), own, device)[0] == pytest.approx((2000 - left_us) / 4000)
    assert depthwise.gone(step_of(3), rows("dgrad2d_c1_k1_nhwc_specialized", 2000.0), device) == {}
    assert depthwise.gone(step_of(3), own, None) == {}


def test_the_weights_gradient_of_a_large_window_stays() -> None:
    device = find_device("NVIDIA H200")
    own = rows("void at::native::conv_depthwise2d_grad_weight_kernel<float, unsigned int>", 3000.0)
    assert depthwise.gone(step_of(3), own, device)[0] > 0.5
    assert depthwise.gone(step_of(7), own, device) == {}


def test_other_gpus_and_regions_with_another_convolution_are_left_as_they_are() -> None:
    own = rows("void at::native::conv_depthwise2d_backward_kernel<3, 1, float, int>", 2000.0)
    assert depthwise.gone(step_of(3), own, find_device("NVIDIA A100-SXM4-80GB")) == {}
    step = step_of(3)
    region: Any = step.regions[0]
    before, _, rest = region["text"].partition("y = conv2d(")
    region["text"] = f"{before}v: f32[{CHANNELS}, {CHANNELS}, 1, 1]\nu = conv2d(x, v)\ny = conv2d({rest}"
    assert depthwise.gone(step, own, find_device("NVIDIA H200")) == {}
