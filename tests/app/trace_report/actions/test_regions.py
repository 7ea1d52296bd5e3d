"""What a region's advice is called as an action: what to do, whatever its headline says of measurements."""

from __future__ import annotations

from typing import Any

import pytest

from app.trace_report.actions.regions import of_regions
from app.trace_report.step_model import Step
from tests.app import samples


def title(headline: str, **advice: Any) -> str:
    region = samples.region("a") | {"name": "RMSNorm by hand", "key": "k", "source": None}
    region["advice"] = {**region["advice"], "headline": headline, **advice}
    step = Step({}, {}, [region], 0.0, has_shapes=True)  # type: ignore[typeddict-item]
    return of_regions(step, (), graphs=False)[0].title


@pytest.mark.parametrize(
    ("headline", "called"),
    [
        ("Use torch.compile on a scatter, predicted 5 times as fast (2.9 to 8.8)", "Use torch.compile on a scatter"),
        ("Call F.rms_norm for a (predicted, not measured)", "Call F.rms_norm for a"),
        ("Call x for y: confirmed by measurement, 5.5 times as fast as eager on NVIDIA H200", "Call x for y"),
        ("Call x for y: a tie by measurement on NVIDIA H200", "Call x for y"),
    ],
)
def test_an_action_is_called_without_figures_and_devices(headline: str, called: str) -> None:
    assert title(headline, tool="library") == called


def test_what_only_says_what_was_measured_becomes_what_to_do() -> None:
    tie = "Measured, a tie: compile-max-autotune, 9.97 times as fast as eager on NVIDIA H200"
    assert title(tie, tool="compile", mode="max-autotune-no-cudagraphs") == (
        "Use torch.compile on RMSNorm by hand in mode max-autotune"
    )
    other = (
        "Measured otherwise: library:F.rms_norm, 9.7 times as fast as eager on H200; the prediction (compile) is over"
    )
    assert title(other, tool="library", mode="default") == "Call F.rms_norm for RMSNorm by hand"
