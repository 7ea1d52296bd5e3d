"""What a region's page says first: by the measurement of this device where there is one, else predicted, never both."""

from __future__ import annotations

from typing import Any

import pytest

from app.advice.case import label_of
from app.advice.evidence import without_figures
from app.trace_report.by_record import is_of_this_device
from app.web.charts.timed import advised_candidate
from app.web.templating import environment
from app.web.views.region.verdict import verdict_section
from tests.app import samples

ROOM = {"current": "/regions/x", "tab_base": "/regions/x?tab="}


def measured(**more: Any) -> dict[str, Any]:
    return samples.validation(archived={"file": "x.json", "match": "same"}, date="2026-11-21", **more)


def page(region: dict[str, Any], record: dict[str, Any] | None) -> str:
    section = verdict_section(region, record)
    template = environment().get_template("partials/region/verdict/advice_head.html")
    return template.render(region=region, verdict=section, oracle=None, **ROOM)


def test_a_record_of_this_device_and_text_is_the_headline_and_the_prediction_is_kept_for_the_evidence() -> None:
    region = samples.region("a")
    section = verdict_section(region, measured())
    assert section is not None
    assert (section["basis"], section["device"], section["date"]) == ("measured", "NVIDIA H200", "2026-11-21")
    assert section["now"] and section["then"]
    assert (section["now"]["time_us"], section["then"]["time_us"]) == (2200.0, 1800.0)
    assert section["advice"]["region_speedup"]["mid"] == pytest.approx(2200 / 1800)
    assert section["predicted"] == region["advice"]
    shown = page(region, measured())
    assert "measured on NVIDIA H200, 2026-11-21" in shown
    assert "predicted" not in shown.lower()


@pytest.mark.parametrize(
    "record",
    [
        None,
        samples.validation(device="NVIDIA A100-SXM4-80GB"),
        samples.validation(archived={"file": "x.json", "match": "other-sizes"}),
        samples.validation(archived={"file": "x.json", "match": "other-layout"}),
        samples.validation(outcome="unmeasured", device=None, candidates=[]),
    ],
)
def test_any_other_record_leaves_the_prediction_and_no_measured_time_stands_next_to_it(record: Any) -> None:
    region = samples.region("a")
    section = verdict_section(region, record)
    assert section is not None and section["basis"] == "predicted" and section["record"] is None
    assert [b["time_us"] for b in section["bars"]] == [1700.0, 1800.0, 2200.0]
    assert not is_of_this_device(region, record)
    assert "measured on" not in page(region, record)


def test_whose_figures_a_prediction_has_is_not_said_beside_a_measurement() -> None:
    region = samples.region("a")
    kept = "the first call compiles"
    chosen = "no device was named and this host has no GPU: estimates are for NVIDIA H200"
    region["advice"]["notes"] = [kept, chosen]
    predicted, known = verdict_section(region, None), verdict_section(region, measured())
    assert predicted is not None and predicted["notes"] == [kept, chosen]
    assert known is not None and known["notes"] == [kept]
    assert "estimates are for" not in page(region, measured())


def test_a_range_of_one_figure_is_not_told_twice() -> None:
    region = samples.region("a")
    assert "(" in page(region, None).partition("from-to-factor")[2].partition("</span></span>")[0]
    region["advice"]["region_speedup"] = {"low": 1.221, "mid": 1.222, "high": 1.223}
    assert "(" not in page(region, None).partition("from-to-factor")[2].partition("</span>")[0]


def test_what_was_measured_but_not_of_the_advised_candidate_does_not_speak_for_it() -> None:
    """Triton was advised and no kernel of it ran: eager and torch.compile alone are no headline."""
    region = samples.region("a", "triton")
    record = measured(candidates=[samples.candidate("eager", "eager", 2200.0),
                                  samples.candidate("compile", "compile", 1800.0)])  # fmt: skip
    section = verdict_section(region, record)
    assert section is not None and section["basis"] == "predicted"


def test_no_bar_is_longer_than_the_axis_and_the_advised_and_todays_always_have_one() -> None:
    region = samples.region("a")
    many = [samples.alternative("library", f"library:torch.x{n}", 1000.0 + n) for n in range(12)]
    region["advice"]["alternatives"] += many
    section = verdict_section(region)
    assert section is not None
    names = [b["name"] for b in section["bars"]]
    assert {"eager", "compile", "triton:generated", "library:torch.x0"} <= set(names)
    assert len(names) + section["left"] == 15
    assert section["end_us"] == max(b["high_us"] for b in section["bars"])
    assert [b["time_us"] for b in section["bars"]] == sorted(b["time_us"] for b in section["bars"])


def test_what_the_rule_excludes_is_named_with_the_reason_where_it_is_faster() -> None:
    region = samples.region("a")
    out = {"admitted": False, "excluded_by": "compute-bound", "note": "n; compute-bound"}
    region["advice"]["alternatives"] += [
        samples.alternative("triton", "triton:fast", 900.0, **out),
        samples.alternative("triton", "triton:slow", 2000.0, **out),
    ]
    shown = page(region, None)
    assert "excluded by rule: compute-bound" in shown
    assert "slow" not in shown
    assert "does not compete" not in shown


@pytest.mark.parametrize(
    ("headline", "said"),
    [
        ("Use torch.compile on a, b, predicted 1.31 times as fast (0.96 to 1.77)", "Use torch.compile on a, b"),
        (
            "Call F.x for a: confirmed by measurement, 5.27 times as fast as eager on NVIDIA H200",
            "Call F.x for a: confirmed by measurement",
        ),
        (
            "Measured otherwise: compile, 1.2 times as fast as eager on NVIDIA L4; the prediction (x) is overturned",
            "Measured otherwise: compile; the prediction (x) is overturned",
        ),
        ("Leave a: not worth it", "Leave a: not worth it"),
        ("Write Triton for a (predicted, not measured)", "Write Triton for a"),
    ],
)  # fmt: skip
def test_a_headline_loses_its_figures_and_nothing_else(headline: str, said: str) -> None:
    assert without_figures(headline) == said


def test_candidates_are_called_as_people_say_them() -> None:
    assert label_of("library:torch.nn.functional.rms_norm") == "F.rms_norm"
    assert label_of("compile-max-autotune") == "torch.compile max-autotune"
    assert label_of("library:remedy.padding") == "the same call on padded sizes"
    assert label_of("triton:matmul_epilogue") == "Triton matmul_epilogue"
    assert advised_candidate(samples.advice("skip")) == "eager"
    assert advised_candidate(samples.advice("triton")) == "triton:generated"
