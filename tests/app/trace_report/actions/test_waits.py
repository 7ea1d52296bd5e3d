"""Layout conversions and communication: what is known of them, and that bounds are called so."""

from __future__ import annotations

from typing import Any

import pytest

from app.trace_report.actions import waits
from app.trace_report.step_model import step_of, step_us
from tests.app.trace_report.test_speedup import region, trace

Json = dict[str, Any]


def step(found: Json) -> Any:
    return step_of(found)  # type: ignore[arg-type]


def test_channels_last_saves_what_turns_images_around_and_at_best_as_much_again() -> None:
    made = step(trace([region("convolution", 800.0, "skip"), region("b", 200.0, "skip")]))
    rows: list[Any] = [
        {"name": "void cudnn::ops::nchwToNhwcKernel<float>", "time_us": 120.0, "regions": [0]},
        {"name": "void cudnn::ops::nhwcToNchwKernel<float>", "time_us": 40.0, "regions": [0]},
        {"name": "sm80_xmma_fprop", "time_us": 600.0, "regions": [0]},
    ]
    (option,) = waits.channels_last(made, rows)
    assert option.evidence["kind"] == "predicted"
    assert step_us(made, [option.change]) == pytest.approx((680.0, 840.0, 1000.0))  # type: ignore[list-item]
    assert waits.channels_last(made, rows[2:]) == []


def test_communication_is_hidden_by_no_more_than_there_is_to_compute() -> None:
    found = trace([region("a", 100.0, "skip")])
    found["step_parts"] |= {"communication_us": 700.0, "wall_us": 800.0}
    (option,) = waits.overlap(step(found))
    assert option.change is not None
    assert option.change.ended_us.high == 100.0
    assert "87.5 %" in option.because


def test_communication_that_takes_longer_than_all_kernels_comes_first_and_is_not_to_be_hidden() -> None:
    found = trace([region("a", 400.0, "library")])
    found["step_parts"] |= {"wall_us": 1400.0, "kernels_us": 400.0, "communication_us": 1000.0}
    (slow,) = waits.overlap(step(found))
    assert slow.first and "NCCL_DEBUG=INFO" in slow.because
    (sampled,) = waits.overlap(step(found), sampled=True)
    assert not sampled.first and "buckets" in sampled.because
