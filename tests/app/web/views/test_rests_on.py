"""What a region's page, its report and the shell show of what a prediction rests on."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest

from app.analysis import service
from app.cli import main
from app.objects.region import RegionBody
from app.web.templating import environment
from app.web.views import trace_page
from app.web.views.region.region_page import analysis
from app.web.views.report import region_report
from app.web.views.rests_on import rests_on_section

CHAIN = "x: f32[4096, 8192]\ny = relu(x * 2.0 + 1.0)\nreturn y\n"


def advised(device: str = "H200", text: str = CHAIN) -> RegionBody:
    return service.advise_region(text, device=device)


def head(region: RegionBody) -> str:
    return environment().get_template("partials/region/verdict/advice_head.html").render(**analysis(region))


def body(region: RegionBody) -> str:
    return environment().get_template("partials/region/analysis.html").render(**analysis(region))


def test_the_sentence_stands_by_the_predicted_figures_and_says_when_they_are_scaled() -> None:
    own, scaled = head(advised()), head(advised("RTX 4090"))
    for page in (own, scaled):
        assert page.index('<table class="bars">') < page.index("H200 measurements of 2026-")
    assert "the ranges are wider" not in own
    assert "scaled to the NVIDIA GeForce RTX 4090 by its datasheet; the ranges are wider." in scaled


def test_each_operation_is_explained_in_the_part_on_costs_folded_away() -> None:
    region = advised()
    page = html.unescape(body(region))
    place = page.index('id="rests-on"')
    assert page.index('id="cost"') < place < page.index('id="roofline"')
    parts = page[place:].partition("</details>")[0]
    for part in region["rests_on"]["parts"]:
        assert part["because"] in parts
        assert part["nearest"] is not None and part["nearest"]["description"] in parts
    assert parts.count('<th scope="row">') == 3


def test_a_region_that_an_older_server_stored_is_shown_without() -> None:
    old: Any = {k: v for k, v in advised().items() if k != "rests_on"}
    assert rests_on_section(old) is None
    assert "rests-on" not in head(old) + body(old)


def test_of_more_operations_than_are_told_it_says_that_these_are_the_longest() -> None:
    lines = "\n".join(f"y = torch.tanh(y[:, :{4096 - n}])" for n in range(1, 31))
    section = rests_on_section(advised(text=f"x: f32[4096, 4096]\ny = x\n{lines}\nreturn y\n"))
    assert section is not None
    assert (len(section["ways"][0]["rows"]), section["ways"][0]["cut"]) == (20, True)
    whole = rests_on_section(advised())
    assert whole is not None and not whole["ways"][0]["cut"]


def test_a_report_says_it_too() -> None:
    region = advised("RTX 4090")
    page = html.unescape(region_report(region, written="today"))
    assert region["rests_on"]["sentence"] in page
    assert region["rests_on"]["parts"][0]["because"] in page


def test_a_traces_page_says_it_once() -> None:
    region: Any = {
        **advised(), "name": "chain", "key": "a", "time_us_per_step": 1000.0, "share_of_step": 0.25, "id": "r",
        "kernels_per_call": 3.0, "kernel_names": [], "streams": [0], "launches_left": {}, "validations": [],
    }  # fmt: skip
    trace: Any = {
        "id": "t", "status": "ready", "step_time_us": 4000.0, "gpu_busy_share": 0.9, "kernel_time_us": 3600.0,
        "kernels": 1, "steps": 1, "profiler_steps": 1, "linked_share": 1.0, "device": None, "notes": [], "rests": [],
        "regions": [region, {**region, "key": "b", "id": "s"}],
    }  # fmt: skip
    page = environment().get_template("partials/trace/body.html").render(**trace_page.trace_page(trace))
    assert page.count("H200 measurements of 2026-") == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_the_shell_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    text = tmp_path / "chain.txt"
    text.write_text(CHAIN)
    assert main(["advise", str(text), "--device", "RTX 4090", *(["--json"] if as_json else [])]) == 0
    out = capsys.readouterr().out
    sentence = json.loads(out)["rests_on"]["sentence"] if as_json else out
    assert "measurements of 2026-" in sentence
    assert "scaled to the NVIDIA GeForce RTX 4090 by its datasheet; the ranges are wider." in sentence
    assert "torch.compile's time is by our fusion rules: Inductor was not asked." in sentence
    if as_json:
        assert json.loads(out)["prediction"] == "rules"
