"""A compiled step takes no less than its host needs, and no more than the step takes now."""

from __future__ import annotations

from typing import Any

import pytest

from app.estimate.rates import FITTED
from app.trace_report.step_model import Change, Left, step_of, step_us
from tests.app.trace_report.test_speedup import region, trace

HALF = Left(0.5, 0.5, 0.5)
MODEL = frozenset(range(10))
TIMES = dict.fromkeys(MODEL, HALF)


def steps(changes: list[Change], eager_us: float = 20.0, **more: Any) -> tuple[float, float, float]:
    """Ten regions of ten launches and 500 µs, an optimizer of ten launches and 100 µs: 5,100 µs that the GPU paces.
    eager_us: what each of the 110 launches takes the host now."""
    made = [region(f"r{i}", 500.0, kind="gemm") for i in range(10)] + [region("o", 100.0, kind="optimizer")]
    found = trace(made, launches=110.0, lead=5100.0 - 110 * eager_us, **more)
    found["pace"]["optimizer_us"] = 600.0
    found["step_parts"]["idle_us"] = 0.0
    step = step_of(found)  # type: ignore[arg-type]
    assert step is not None
    return step_us(step, changes)


def test_what_the_compiled_launches_and_the_optimizer_take_is_the_least() -> None:
    change = Change(time=TIMES, compiled=MODEL)
    host = FITTED.host.compiled + 600
    assert steps([change]) == pytest.approx((host + 2100, host + 2600, host + 3400))
    trained = Change(time=TIMES, compiled=MODEL, trained=True)
    assert steps([trained])[1] == pytest.approx(FITTED.host.trained + 600 + 2600)


def test_fewer_launches_take_less_forward_and_backward_alike() -> None:
    change = Change(time=TIMES, launches={i: Left(1.0, 0.6, 0.1) for i in MODEL}, compiled=MODEL)
    gpu_us, host = 2600.0, FITTED.host.compiled + 600
    assert steps([change]) == pytest.approx((gpu_us, gpu_us, max(gpu_us, host + 60 * 34)))


def test_one_launch_for_all_parameters_takes_its_part_of_the_optimizers() -> None:
    fused = Change(launches={10: Left(0.1, 0.1, 0.1)})
    change = Change(time=TIMES, compiled=MODEL)
    assert steps([change, fused])[1] == pytest.approx(FITTED.host.compiled + 60 + 2600)


def test_no_prediction_is_above_what_the_step_takes() -> None:
    change = Change(time=TIMES, compiled=MODEL, trained=True)
    made = [region(f"r{i}", 30.0, kind="gemm") for i in range(10)]
    step = step_of(trace(made, lead=0.0))  # type: ignore[arg-type]
    assert step is not None
    assert step_us(step, [change]) == pytest.approx((300.0, 300.0, 300.0))


def test_without_a_compiled_model_nothing_is_the_least() -> None:
    assert steps([Change(time=TIMES)]) == pytest.approx((2600.0, 2600.0, 2600.0))


def test_a_host_that_the_profiler_slowed_takes_less_without_it() -> None:
    """Twice slowed: 13 µs an eager launch, so 26 a compiled one, and half of the optimizer's time."""
    change = Change(time=TIMES, compiled=MODEL)
    slows = {"low": 2.0, "mid": 2.0, "high": 2.0}
    assert steps([change], 26.0, profiler_slows=slows)[1] == pytest.approx(FITTED.host.compiled + 300 + 2600)
    assert steps([change], 20.0, profiler_slows=slows)[1] == pytest.approx(2600.0)  # the GPU's
