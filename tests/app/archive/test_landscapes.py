"""Landscapes on record: what is shipped is what was recorded, and the nearest of a region's own kernels is shown."""

from __future__ import annotations

import json

import msgspec

from app.archive import landscapes
from app.web.charts import landscape
from app.web.views import recorded_landscape
from kernels.hand_written import WRITTEN
from tests.app import samples
from tests.conftest import ROOT

RECORDS = ROOT / "tests" / "records"


def test_every_shipped_landscape_is_of_a_candidate_and_its_best_is_the_fastest() -> None:
    names = {w.name for w in WRITTEN}
    for survey in landscapes.surveys():
        assert survey["candidate"] in names
        timed = {p["key"]: p["time_us"]["median"] for p in survey["points"] if p["time_us"]}
        assert timed[survey["best"]] == min(timed.values())
        assert survey["chosen"] in timed
        assert survey["device"]


def test_the_surveys_times_are_those_of_the_record() -> None:
    recorded = json.loads((RECORDS / "landscapes-h200.json").read_text(encoding="utf-8"))
    whole = [s for s in landscapes.surveys() if s["kind"] == "survey"]
    for survey, record in zip(whole, recorded, strict=True):
        assert survey["candidate"] == record["candidate"]
        times = [p["time_us"]["median"] for p in survey["points"] if p["time_us"]]
        assert times == [p["time_us"] for p in record["points"] if p["time_us"]]
        chosen = next(p for p in survey["points"] if p["key"] == survey["chosen"])
        assert record["chosen"].startswith(chosen["kernel"])


def test_nearer_in_size_wins_and_only_the_regions_own_kernels_count() -> None:
    near = landscapes.nearest(["triton:softmax"], "bf16", 270_000_000)
    assert near is not None and near["kind"] == "survey"
    far = landscapes.nearest(["triton:softmax"], "f32", 1_650_000_000)
    assert far is not None and far["kind"] == "tuner" and far["dtype"] == "f32"
    assert landscapes.nearest(["triton:generated"], "bf16", 1) is None
    second = landscapes.nearest(["triton:generated", "triton:rope"], "bf16", 10**8)
    assert second is not None and second["candidate"] == "triton:rope"


def test_the_measured_fastest_kernel_comes_first_and_what_is_not_written_is_none() -> None:
    region = samples.region("a") | {"advice": samples.advice()}
    options = region["advice"]["alternatives"]
    options += [
        samples.alternative("triton", "triton:rms_norm", 900.0),
        samples.alternative("triton", "triton:custom", 1.0),
    ]
    assert recorded_landscape.triton_candidates(region) == ["triton:rms_norm", "triton:generated"]
    seen = samples.validation(candidates=[samples.candidate("triton:generated", "triton", 500.0)])
    assert recorded_landscape.triton_candidates(region, seen) == ["triton:generated", "triton:rms_norm"]


def test_a_short_map_keeps_the_fastest_the_slowest_and_what_was_chosen() -> None:
    whole = next(s for s in landscapes.surveys() if s["kind"] == "survey" and len(s["axes"]["tiles"]) > 20)
    short = landscape.shorten_survey(whole)
    tiles = short["axes"]["tiles"]
    assert len(tiles) == landscape.BEST + landscape.WORST
    timed = [p for p in whole["points"] if p["time_us"]]
    fastest = min(timed, key=lambda p: p["time_us"]["median"])
    assert tiles[-1] == fastest["tile"]
    assert {whole["chosen"], whole["best"]} <= {p["key"] for p in short["points"]}
    assert max(p["time_us"]["median"] for p in short["points"] if p["time_us"]) == max(
        p["time_us"]["median"] for p in timed
    )
    assert landscape.heat_map(short) is not None


def test_a_tuners_few_points_are_bars_and_the_chosen_one_says_so() -> None:
    few = next(s for s in landscapes.surveys() if s["kind"] == "tuner" and s["candidate"] == "triton:rms_norm")
    figure = landscape.tuner_bars(few)
    assert figure is not None
    (trace,) = figure["figure"]["data"]
    assert len(trace["y"]) == len(set(trace["y"])) == len(few["points"])
    assert [t for t in trace["text"] if "chosen" in t] == [t for t in trace["text"] if t.endswith("chosen")]
    assert sum("chosen" in t for t in trace["text"]) == 1


def test_the_shipped_file_has_the_form_that_is_read() -> None:
    """It is read without a look, since it is ours."""
    recorded = json.loads(landscapes.SHIPPED.read_text(encoding="utf-8"))
    assert msgspec.convert(recorded, list[landscapes.RecordedSurvey]) == recorded
