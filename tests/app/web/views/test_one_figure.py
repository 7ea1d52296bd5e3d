"""Every figure of a trace's page that is a figure of the API's object, read back from the page and compared with it."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from app.trace_report.actions.listed import before_us
from app.units import factor, share
from app.web.server.csv_response import csv_response
from app.web.templating import environment
from app.web.views.region.verdict import verdict_section
from app.web.views.region_csv import COLUMNS, region_rows
from app.web.views.trace_page import trace_page
from tests.app.trace_report.actions.test_ranking import IDLE_FOR_LAUNCHES
from tests.app.trace_report.reports import reported
from tests.profiler.trace.files import TRACES

Json = dict[str, Any]

WITHOUT_A_PAGE = ("hta_cpu_only", "hta_cupti_profiler", "hta_rank-70", "kineto_docs_before_fix", "expected")
"""What cannot be read as a trace with kernels, and what is none."""
NAMES = sorted(p.name for p in TRACES.glob("*.json*") if ".et." not in p.name and not p.name.startswith(WITHOUT_A_PAGE))
UNITS = {"ns": 1e-3, "µs": 1.0, "ms": 1e3, "s": 1e6}
DURATION = re.compile(r"(-?[\d,.]+) (ns|µs|ms|s)\b")


class Figures(HTMLParser):
    """What stands in the elements that carry `data-quantity`, in the page's order; `text`: everything else."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.shown: list[tuple[str, str]] = []
        self.text = ""
        self._name: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = dict(attrs).get("data-quantity")
        if name is not None:
            self._name = name
            self.shown.append((name, ""))

    def handle_endtag(self, tag: str) -> None:
        self._name = None

    def handle_data(self, data: str) -> None:
        if self._name is None:
            self.text += data
        else:
            name, text = self.shown[-1]
            self.shown[-1] = name, text + data


def stored(name: str) -> Json:
    answer = reported(name)
    regions = [{**r, "id": f"{n:026d}"} for n, r in enumerate(answer["regions"])]
    return {**answer, "id": "t" * 26, "status": "ready", "regions": regions}


def rendered(trace: Json) -> str:
    page = trace_page(trace)  # type: ignore[arg-type]
    return environment().get_template("partials/trace/body.html").render(**page)


def number(text: str) -> float:
    """What a figure says: µs, a share of 1, or times as fast."""
    if match := DURATION.fullmatch(text):
        return float(match[1].replace(",", "")) * UNITS[match[2]]
    if text.endswith("×"):
        return float(text[:-1])
    assert text.endswith(" %"), text
    return 0.0005 if text == "< 0.1 %" else float(text[:-2]) / 100


def saved_alone(action: Json, key: str) -> float:
    """Of what a region's action saves by itself what falls on that region."""
    if not action["saves_us"] or not sum(action["parts_us"]):
        return action["saves_us"]["mid"] if action["saves_us"] and len(action["regions"]) == 1 else 0.0
    own = sum(part for other, part in zip(action["regions"], action["parts_us"], strict=True) if other == key)
    return float(action["saves_us"]["mid"] * own / sum(action["parts_us"]))


def known(trace: Json) -> dict[str, float]:
    """Each figure that a page may show more than once, from the API's object alone."""
    step, parts, gain = trace["step_time_us"], trace["step_parts"], trace["gain"]
    before = before_us(trace)
    figures = {"step_time": step, "step_before": before, "gpu_busy": trace["gpu_busy_share"]}
    figures["kernel_time"] = sum(k["time_us"] for k in (trace["where"] or {"kernels": []})["kernels"])
    for total, names in (("all", ("step_after", "speedup")), ("top", ("step_top", "speedup_top"))):
        if gain and gain[total]:
            figures |= dict(zip(names, (gain[total][f]["mid"] for f in ("step_time_us", "speedup")), strict=True))
    if timeline := trace["timeline"]:
        figures["timeline_idle"] = sum(timeline["gaps"]["idle_us"]) / timeline["wall_us"]
    for field, time_us in (parts or {}).items():
        if field.endswith("_us"):
            figures |= {f"part:{field}": time_us, f"part_share:{field}": time_us / step}
    for rest in trace["rests"]:
        figures |= {f"rest:{rest['name']}": rest["time_us"], f"rest_share:{rest['name']}": rest["share_of_step"]}
    for region in trace["regions"]:
        own = {"time": region["time_us_per_step"], "share": region["share_of_step"]}
        figures |= {f"{name}:{region['id']}": value for name, value in own.items()}
        figures[f"saved_in:{region['key']}"] = sum(
            saved_alone(action, region["key"])
            for action in trace["actions"]
            if action["scope"] == "region" and region["key"] in action["regions"]
        )
    for action in trace["actions"]:
        if action["saves_us"]:
            saves = action["saves_us"]["mid"]
            figures |= {f"cut:{action['id']}": saves / before, f"saves:{action['id']}": saves}
            figures[f"step:{action['id']}"] = action["step_time_us"]["mid"]
        if action["adds_us"] is not None:
            figures[f"adds:{action['id']}"] = action["adds_us"]
    return figures


@pytest.mark.parametrize("name", NAMES)
def test_every_appearance_of_a_figure_is_the_apis(name: str) -> None:
    trace = stored(name)
    figures, shown = known(trace), Figures(rendered(trace)).shown
    for quantity, text in shown:
        rounding = 0.51 if text.endswith("×") and "." not in text else 0.00052
        assert number(text) == pytest.approx(figures[quantity], rel=0.006, abs=rounding), quantity
    times = [text for quantity, text in shown if quantity == "step_time"]
    assert len(times) >= 2 and len(set(times)) == 1
    listed = [quantity for quantity, _ in shown if quantity.startswith("time:")]
    assert sorted(listed) == sorted(f"time:{r['id']}" for r in trace["regions"])


@pytest.mark.parametrize("name", NAMES)
def test_the_timelines_idle_share_is_what_the_gpu_is_not_busy_of_a_single_step(name: str) -> None:
    trace = stored(name)
    told = [number(text) for quantity, text in Figures(rendered(trace)).shown if quantity == "timeline_idle"]
    if told and trace["step_times"] and trace["step_times"]["count"] == 1:
        assert told == [pytest.approx(1 - trace["gpu_busy_share"], abs=0.002)]


@pytest.mark.parametrize("name", NAMES)
def test_the_first_screen_has_one_bottleneck_one_step_time_and_no_other_time_of_a_step(name: str) -> None:
    trace = stored(name)
    page = rendered(trace)
    answer = page[page.index('id="to-do"') : page.index('id="trace-tabs"')]
    assert answer.count("Bottleneck:") == (trace["critical"] is not None)
    head = Figures(answer.partition("</header>")[0]).shown
    shown = [quantity for quantity, _ in head]
    assert shown[0] == "step_time" and len(shown) <= 2
    if not trace["actions"] or (trace["gain"] is None and not trace["actions"][0]["step_time_us"]):
        assert shown == ["step_time"]
    first = Figures(page[: page.index('id="trace-tabs"')]).text
    # Neither the median of the recorded steps, which may be another, nor the time of all kernels in the file.
    others = {trace["kernel_time_us"], (trace["step_times"] or {"median_us": 0.0})["median_us"]}
    told = {float(n.replace(",", "")) * UNITS[unit] for n, unit in DURATION.findall(first)}
    ranges = [a[f][end] for a in trace["actions"] for f in ("step_time_us", "saves_us") if a[f] for end in a[f]]
    for time_us in others:
        same = [v for v in (trace["step_time_us"], *ranges) if v == pytest.approx(time_us, rel=0.006)]
        assert same or not [t for t in told if t == pytest.approx(time_us, rel=0.001)]


@pytest.mark.parametrize("name", NAMES)
def test_the_bottleneck_does_not_deny_who_sets_the_pace(name: str) -> None:
    trace = reported(name)
    critical, parts, pace = trace["critical"], trace["step_parts"], trace["pace"]
    if critical is None:
        return
    waiting = (parts["idle_launch_us"] + parts["idle_host_us"]) / parts["wall_us"]
    by_host = 1 - pace["gpu_us"] / parts["wall_us"]
    assert critical["resource"] != "gpu" or by_host <= 0.5 or waiting < 0.1
    percents = [float(n) for n in re.findall(r"([\d.]+) %", critical["because"])]
    assert min(abs(n - critical["share"] * 100) for n in percents) <= 0.0501
    if trace["gain"] is None or critical["resource"] != "launches":
        return
    told = [u["text"] for u in trace["gain"]["unknown"] if u["code"] == "launches"]
    of_host = 1 - pace["gpu_us"] / (before_us(trace) or parts["wall_us"])
    assert all(f"the host sets the pace of {share(of_host)} of the step" in text for text in told)


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_of_the_step_add_up_and_only_what_is_no_region_is_called_so(name: str) -> None:
    trace = stored(name)
    page = trace_page(trace)  # type: ignore[arg-type]
    outside = sum(row["time_us"] for row in page["step_rows"] if row["tool"] == "rest")
    assert outside == pytest.approx(sum(r["time_us"] for r in trace["rests"]), rel=1e-6, abs=1.0)
    assert sum(row["time_us"] for row in page["step_rows"]) == pytest.approx(trace["step_time_us"], rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_no_row_saves_more_than_its_own_time_and_the_waiting_for_its_launches(name: str) -> None:
    trace = stored(name)
    page = trace_page(trace)  # type: ignore[arg-type]
    actions = [a for a in trace["actions"] if a["scope"] == "region" and a["saves_us"]]
    acted = {key for action in actions for key in action["regions"]}
    for row in (*page["regions"], *page["small"]):
        saves_us = row.get("saves_us") or 0.0
        if not saves_us:
            continue
        assert row["key"] in acted and row["advice"] and row["advice"]["tool"] != "skip"
        launched = (row["kernels_per_call"] or 0.0) * (row["calls_per_step"] or 0.0)
        waited = launched / max(1.0, trace["pace"]["launches"]) * trace["step_parts"]["idle_launch_us"]
        assert saves_us <= row["time_us_per_step"] + waited + 1.0, row["name"]


@pytest.mark.parametrize("name", ["handrolled_blocks_bf16_eager.json.gz", "gpt2_train_autocast_eager.json.gz"])
def test_the_step_after_a_regions_change_is_one_figure_on_trace_page_region_page_and_csv(name: str) -> None:
    trace = stored(name)
    page = trace_page(trace)  # type: ignore[arg-type]
    rows = {row["key"]: row for row in (*page["regions"], *page["small"])}
    answer = csv_response("regions", COLUMNS, region_rows(list(rows.values())))
    lines = {line["id"]: line for line in csv.DictReader(io.StringIO(bytes(answer.body).decode()))}
    compared = 0
    for action in trace["actions"]:
        if action["scope"] != "region" or not action["step_time_us"]:
            continue
        row = rows[action["region"]]
        speedup = before_us(trace) / action["step_time_us"]["mid"]
        section = verdict_section(row, trace=trace)  # type: ignore[arg-type]
        assert section is not None and section["step"] is not None
        shown = environment().get_template("partials/region/verdict/verdict.html").render(region=row, verdict=section)
        assert section["step"]["mid"] == pytest.approx(speedup)
        assert ("step_speedup", factor(speedup)) in Figures(shown).shown
        assert float(lines[row["id"]]["step_speedup"]) == pytest.approx(speedup)
        compared += 1
    assert compared


@pytest.mark.parametrize("name", IDLE_FOR_LAUNCHES)
def test_the_largest_finding_is_the_first_thing_to_do(name: str) -> None:
    """A step that waits for launches most of its time is not answered with regions that are to be left alone."""
    trace = stored(name)
    page = rendered(trace)
    first = page[page.index('<ol class="actions">') :].partition("</li>")[0]
    assert "CUDA graphs" in first
    assert "reduce-overhead" in first
    now = "step_time" if before_us(trace) == trace["step_time_us"] else "step_before"
    assert [quantity.partition(":")[0] for quantity, _ in Figures(first).shown][:3] == [now, "step", "cut"]


@pytest.mark.parametrize("name", NAMES)
def test_the_header_promises_what_the_first_change_gives_or_all_together(name: str) -> None:
    """From the API's list alone. A header that tells of another change is worse than the line below it."""
    trace = stored(name)
    page = rendered(trace)
    header = page[page.index('id="to-do"') :].partition("</header>")[0]
    told = dict(Figures(header).shown)
    del told["step_time"]
    listed = [action for action in trace["actions"] if not action["instead_of"]]
    timed = [action for action in listed if action["step_time_us"]]
    if not timed:
        assert not told
        return
    together = trace["gain"]["all"]["step_time_us"]["mid"] if trace["gain"]["all"] else None
    first = listed[0]
    if first["step_time_us"] is None and all(action["adds_us"] is None for action in listed):
        assert not told
        return
    ((quantity, text),) = told.items()
    if quantity == "step_after":
        assert first["adds_us"] is not None or first["step_time_us"] is None
        assert number(text) == pytest.approx(together, rel=0.006)
        followed = sum(action["adds_us"] is not None for action in listed)
        assert ("after all changes, predicted" in header) == (followed == len(listed) > 1)
    else:
        assert quantity == f"step:{first['id']}"
    if first["step_time_us"]:
        assert number(text) <= first["step_time_us"]["mid"] * 1.006


def test_a_wait_of_which_only_a_bound_is_known_is_not_said_to_be_predicted() -> None:
    page = rendered(stored("bert_train_varlen_fp16_eager.json.gz"))
    header = page[page.index('id="to-do"') :].partition("</header>")[0]
    assert "if change 1 ends half of the wait" in header and "predicted" not in header
    assert "Change 2 alone" in page[page.index('id="gain"') :]
    assert "after all changes, predicted" in rendered(stored("gpt2_train_autocast_eager_stack.json.gz"))


def test_a_change_that_may_save_nothing_says_so_beside_its_time() -> None:
    trace = stored("llama_decode_bf16_eager.json.gz")
    first = trace["actions"][0]
    assert first["step_time_us"]["high"] == pytest.approx(trace["unprofiled_us"])
    assert "at best, no gain at worst" in " ".join(Figures(rendered(trace)).text.split())
    sure = stored("handrolled_blocks_bf16_eager.json.gz")
    assert sure["actions"][0]["step_time_us"]["high"] < 0.9 * sure["step_time_us"]
    assert "no gain at worst" not in Figures(rendered(sure)).text
