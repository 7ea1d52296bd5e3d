"""What no kernel changes: layout conversions, communication that nothing hides."""

from __future__ import annotations

from collections.abc import Sequence

from app.objects.trace import KernelRow
from app.trace_report.actions.model import Option
from app.trace_report.step_model import Change, Left, Step, busy_us
from app.units import share

LAYOUT, OVERLAP = "channels-last", "overlap"
CONVERSIONS = ("nchwtonhwc", "nhwctonchw")
"""In names of kernels with which cuDNN turns images around before and after a convolution."""
WORTH = 0.02
"""Share of the step from which waiting is worth a line."""


def conversions(step: Step, kernels: Sequence[KernelRow]) -> dict[int, float]:
    """Of regions, by their place, the share of their time in kernels that turn images around."""
    spent: dict[int, float] = {}
    for row in kernels:
        if any(mark in row["name"].lower() for mark in CONVERSIONS):
            busy = sum(busy_us(step.regions[i]) for i in row["regions"])
            for i in row["regions"]:
                spent[i] = spent.get(i, 0.0) + row["time_us"] / busy if busy else 0.0
    return {i: min(1.0, share) for i, share in spent.items()}


def channels_last(step: Step, kernels: Sequence[KernelRow]) -> list[Option]:
    """Images kept channels-last: the kernels that convert them go away, and at best as much again: norms and pooling
    have faster kernels for them as well (ResNet-50 in training on an H200: 3.5 ms of conversions, 8.1 saved)."""
    rows = [k for k in kernels if any(mark in k["name"].lower() for mark in CONVERSIONS)]
    spent = sum(k["time_us"] for k in rows)
    places = sorted({i for k in rows for i in k["regions"]})
    busy = sum(busy_us(step.regions[i]) for i in places)
    if not busy or spent < WORTH * step.parts["wall_us"]:
        return []
    turning = min(1.0, spent / busy)
    left = Left(1.0, 1 - turning, max(0.0, 1 - 2 * turning))
    return [
        Option(
            LAYOUT, "layout", LAYOUT, "Keep images channels-last",
            "model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
            f"kernels that turn images around for convolutions take {share(spent / step.parts['wall_us'])} of the step",
            {"kind": "predicted", "text": f"from the time of {len(rows)} kinds of kernels in the trace: none to twice"},
            Change(time=dict.fromkeys(places, left)), tuple(places),
        )
    ]  # fmt: skip


def overlap(step: Step, sampled: bool = False) -> list[Option]:
    """Communication while nothing is computed, and waiting for it. Bounded by what could hide it; where the GPU waits
    longer for launches, communication that ends sooner only makes those gaps longer."""
    exposed = step.parts["communication_us"] + step.parts["idle_communication_us"]
    if exposed < max(WORTH * step.parts["wall_us"], step.parts["idle_launch_us"]):
        return []
    most = min(exposed, step.parts["kernels_us"])
    alone = f"for {share(exposed / step.parts['wall_us'])} of the step the GPU has nothing but communication"
    slow = step.is_communication_bound and not sampled
    why = (
        f"{alone}, more than all kernels take: no overlap hides it. First see what it runs over (NCCL_DEBUG=INFO "
        "tells topology and transport) and whether another rank is late; then exchange less often (no_sync() while "
        "gradients are accumulated), or in 16 bits"
        if slow
        else f"{alone}: smaller buckets, prefetching, or a later wait lets kernels run beside it"
    )
    return [
        Option(
            OVERLAP, "communication", "overlap",
            "Make communication faster or rarer" if slow else "Hide communication behind computation", "", why,
            {"kind": "bound", "text": "between nothing and all that kernels of the step could hide"},
            Change(ended_us=Left(0.0, most / 2, most)), (), counted=False, first=slow,
        )
    ]  # fmt: skip
