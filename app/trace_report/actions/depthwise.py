"""Depthwise convolutions, which get cuDNN's kernels in the place of PyTorch's own once images are channels-last."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from app.objects.trace import KernelRow
from app.trace_report.actions.kept_layout import convolutions
from app.trace_report.step_model import Step, busy_us
from profiler.hardware import Device

OWN = "conv_depthwise2d_"
"""In names of PyTorch's own kernels for one filter a channel, which run where images are not channels-last
(aten/src/ATen/native/Convolution.cpp, use_cudnn_depthwise)."""
OF_WEIGHT = "grad_weight"
OF_VECTORS = {"forward": 0.075, "backward": 0.05, OF_WEIGHT: 0.06}
"""Share of the vector units' rate at which cuDNN's work channels-last, f32, by pass. In-sample: of an H200's 67 TFLOP/s
windows of 3x3 (MobileNet) reach 0.082 forward, 0.040 to the image and 0.063 to the weight, 7x7 (ConvNeXt) 0.073, 0.072
and 0.006."""
MEASURED = "sm_90"
F32_BYTES = 4.0
IMAGE = re.compile(r": f32\[(\d+, \d+, \d+, \d+)\]")
SMALL_WINDOW = 25
"""Elements of a window up to which the weight's gradient has a kernel of its own; above it is left as it is."""


def gone(step: Step, kernels: Sequence[KernelRow], device: Device | None) -> dict[int, float]:
    """Of regions, by their place, the share of their time that such kernels no longer take.

    {} for other GPUs than those of the architecture that cuDNN's shares were measured on. A region that has another
    convolution too is left as it is: its costs do not say which is which.
    """
    made: dict[int, float] = {}
    if device is None or device.arch != MEASURED:
        return made
    rows = [row for row in kernels if OWN in row["name"]]
    for place in sorted({i for row in rows for i in row["regions"]}):
        listed = list(convolutions(step.regions[place]))
        if not listed or any(one.groups == 1 or one.weight[1] != 1 for one in listed):
            continue
        passes = {one for row in rows if place in row["regions"] for one in OF_VECTORS if f"_{one}_" in row["name"]}
        if any(_elements(one.weight) > SMALL_WINDOW for one in listed):
            passes.discard(OF_WEIGHT)
        now, then = _now_us(step, rows, place, passes), _then_us(step, place, passes, device)
        if (busy := busy_us(step.regions[place])) and now > then:
            made[place] = min(1.0, (now - then) / busy)
    return made


def _elements(weight: Sequence[int]) -> int:
    """Of the window."""
    return prod(weight[2:])


def _now_us(step: Step, rows: Sequence[KernelRow], place: int, passes: set[str]) -> float:
    """What these passes' kernels take of the region: rows of several regions are shared by the regions' times."""
    total = 0.0
    for row in rows:
        if place in row["regions"] and any(f"_{one}_" in row["name"] for one in passes):
            busy = sum(busy_us(step.regions[i]) for i in row["regions"])
            total += row["time_us"] * busy_us(step.regions[place]) / busy if busy else 0.0
    return total


def _then_us(step: Step, place: int, passes: set[str], device: Device) -> float:
    """What cuDNN's take in a step: by multiplications and additions, and no less than by what they move."""
    region = step.regions[place]
    cost = region["cost"]
    forward = next((o for o in cost["operations"] if o["name"] == "convolution"), None) if cost else None
    weight = next(iter(convolutions(region))).weight
    if forward is None or not forward["flops"]:
        return float("inf")
    out = forward["flops"] / 2 / _elements(weight)
    image = forward["bytes_moved"] / F32_BYTES - out - weight[0] * _elements(weight)
    images = sum(float(one["calls"]) * _image(one["operands"]) for one in region.get("shapes") or ())
    if image <= 0 or not images:
        return float("inf")
    results = images * out / image
    moved_us = 1e6 * F32_BYTES * (images + results) / device.copy_rate
    computed_us = 1e6 * 2 * results * _elements(weight) / device.f32_rate
    return sum(max(computed_us / OF_VECTORS[one], moved_us) for one in passes)


def _image(operands: Sequence[str]) -> float:
    """Elements of the first image of f32 that a region reads, `x: f32[192, 48, 112, 112].requires_grad`; 0 for none."""
    for operand in operands:
        if listed := IMAGE.search(operand):
            return float(prod(int(size) for size in listed[1].split(",")))
    return 0.0
