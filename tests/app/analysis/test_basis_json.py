"""What predictions rest on, as the API says it: by its schema, in words, and for the device that it is about."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from app.analysis import service
from app.objects.basis import RestsOn
from app.objects.region import RegionBody
from profiler.hardware import DEVICES
from tests.app.objects.exact import differences

CHAIN = "x: f32[4096, 8192]\ny = relu(x * 2.0 + 1.0)\nreturn y\n"
MEASURED = {"NVIDIA H200", "NVIDIA H100"}


def advised(device: str, text: str = CHAIN) -> RegionBody:
    return service.advise_region(text, device=device)


@pytest.mark.parametrize("device", [d.name for d in DEVICES])
def test_every_device_says_whose_measurements_it_is_predicted_from(device: str) -> None:
    region = advised(device)
    rests = region["rests_on"]
    assert differences(RestsOn, rests) == []
    json.dumps(rests, allow_nan=False)
    assert rests["device"] == device and rests["atlas"] is not None
    own = device in MEASURED
    assert rests["atlas"]["own"] == own
    assert (rests["scaled_by"] is None) == own == (rests["range_factor"] == 1.0)
    assert ("the ranges are wider" in rests["sentence"]) == (not own)
    if not own:
        assert f"NVIDIA H200 measurements of {rests['atlas']['date']}" in rests["sentence"]
        assert f"scaled to the {device} by its " in rests["sentence"]


def test_without_the_oracle_the_advice_says_rules_and_why() -> None:
    region = advised("H200")
    assert region["advice"] is not None and region["advice"]["prediction"] == "rules"
    assert region["rests_on"]["prediction"] == "rules"
    assert region["rests_on"]["prediction_because"] == "Inductor was not asked"
    assert "by our fusion rules: Inductor was not asked." in region["rests_on"]["sentence"]


def test_where_rates_are_anothers_although_the_atlas_is_its_own_both_are_said() -> None:
    region = advised("NVIDIA H100")
    rests, advice = region["rests_on"], region["advice"]
    assert advice is not None
    assert (rests["range_factor"], rests["rates"]["devices"]) == (1.0, ["NVIDIA H200"])
    assert rests["rates"]["range_factor"] > 1.0
    assert "goes by rates of NVIDIA H200, in wider ranges." in rests["sentence"]
    assert not any("nothing was measured" in note for note in advice["notes"])
    assert advised("H200")["rests_on"]["rates"]["range_factor"] == 1.0


def test_each_part_is_an_operation_of_the_cost_with_its_rates() -> None:
    region = advised("H200")
    cost = region["cost"]
    assert cost is not None
    by_name: dict[str, Any] = {o["name"]: o for o in cost["operations"]}
    parts = region["rests_on"]["parts"]
    assert Counter(p["name"] for p in parts) == Counter(n for n, o in by_name.items() if o["launches"])
    for part in parts:
        assert part["bytes_moved"] == by_name[part["name"]]["bytes_moved"]
        assert part["bytes_per_s"] == pytest.approx(part["bytes_moved"] / (part["time_us"] * 1e-6))
        nearest = part["nearest"]
        assert nearest is not None and nearest["near"] == (nearest["correlation"] >= 0.8) and nearest["time_us"] > 0


def test_where_rates_gave_a_part_of_the_time_its_share_is_said() -> None:
    rests = advised("H200", "x: f32[4096, 4096]\nreturn torch.fft.rfft(x).abs()\n")["rests_on"]
    assert rests["eager_known"] == 0.0
    assert "Fitted rates gave 100 % of eager's time" in rests["sentence"]


def test_the_widget_predicts_no_times_and_names_no_kernels() -> None:
    answer = service.advise_widget(share_of_step=0.2, uniqueness=0.9, irregularity=0.1)
    assert answer["prediction"] is None
