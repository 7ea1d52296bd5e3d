"""A region that fails is a region without advice, and a note names it: in the report, the API, pages and checks."""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app import cli
from app.analysis import region_failed, service
from app.check.config import Assertion
from app.check.finding import Unmeasured
from app.check.regions import may_fire, on_regions
from app.cli.text import trace_text
from app.trace_report import report as trace_report
from app.trace_report.speedup import gain
from profiler.region.mining import emit_text as written
from profiler.region.mining import mine
from tests.app.check import subjects
from tests.app.web.conftest import serving
from tests.conftest import ROOT

TRACE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"
Json = dict[str, Any]

FIGURES = ("kernels", "steps", "kernel_time_us", "device", "step_time_us", "gpu_busy_share", "step_parts")


@pytest.fixture(scope="module")
def whole() -> Json:
    return trace_report.report(TRACE, "trace")


def failing_on(title: str, fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparing the regions of this title raises."""
    real = service.prepare

    def prepare(region: Any, *more: Any) -> Any:
        if region.name == title:
            raise fault
        return real(region, *more)

    monkeypatch.setattr(service, "prepare", prepare)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ZeroDivisionError("float division by zero"), "ZeroDivisionError: float division by zero"),
        (AssertionError(), "AssertionError"),
        (MemoryError(), "it needed more"),
    ],
)
def test_one_region_fails_and_the_others_are_as_ever(
    whole: Json, fault: Exception, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    title = whole["regions"][0]["name"]
    failing_on(title, fault, monkeypatch)
    handler = logging.FileHandler(tmp_path / "log")  # written by the fork that advises
    trace_report.log.addHandler(handler)
    try:
        trace_answer = trace_report.report(TRACE, "trace")
    finally:
        trace_report.log.removeHandler(handler)
        handler.close()
    json.dumps(trace_answer, allow_nan=False)
    assert [r["key"] for r in trace_answer["regions"]] == [r["key"] for r in whole["regions"]]
    for before, after in zip(whole["regions"], trace_answer["regions"], strict=True):
        if after["name"] != title:
            assert after == before
            continue
        assert after["advice"] is None
        assert after["cost"] is None
        kept = ("text", "key", "time_us_per_step", "share_of_step", "shapes", "streams", "kernel_names", "source")
        assert {k: after[k] for k in kept} == {k: before[k] for k in kept}
        assert title in after["notes"][0]["message"]
        assert said in after["notes"][0]["message"]
    notes = [n for n in trace_answer["notes"] if n["code"] == "region-failed"]
    assert notes
    assert all(title in n["message"] and said in n["message"] and n["remedy"] for n in notes)
    assert type(fault).__name__ in (tmp_path / "log").read_text().splitlines()[-1], "the log has the traceback"


def test_a_failed_region_is_told_of_among_what_the_gain_does_not_know(whole: Json) -> None:
    copied = copy.deepcopy(whole)
    copied["regions"][0] |= {"advice": None}
    assert "no-advice" not in [u["code"] for u in whole["gain"]["unknown"]]
    item = next(u for u in gain(copied)["unknown"] if u["code"] == "no-advice")
    assert item["time_us"] == pytest.approx(whole["regions"][0]["busy_us_per_step"])


def test_many_failures_are_a_few_notes() -> None:
    rows = [
        {"notes": [region_failed.of_region(f"region {i}", ValueError("no"))]} for i in range(region_failed.MOST + 7)
    ]
    notes = region_failed.among(rows)
    assert len(notes) == region_failed.MOST + 1
    assert notes[-1]["message"].startswith("7 more regions")


def test_a_trace_that_cannot_be_cut_keeps_its_own_figures(whole: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("part")

    monkeypatch.setattr(mine, "mine", fail)
    trace_answer = trace_report.report(TRACE, "trace")
    json.dumps(trace_answer, allow_nan=False)
    assert trace_answer["regions"] == []
    assert trace_answer["notes"][0]["code"] == "regions-failed"
    assert {k: trace_answer[k] for k in FIGURES} == {k: whole[k] for k in FIGURES}


def test_a_part_that_cannot_be_written_down_has_no_text_and_the_others_have_theirs(
    whole: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, title = written.fold, whole["regions"][0]["title"]
    text = whole["regions"][0]["text"]

    def fold(lines: str) -> str:
        if real(lines).split() == text.split():
            raise ZeroDivisionError("float division by zero")
        return real(lines)

    monkeypatch.setattr(written, "fold", fold)
    trace_answer = trace_report.report(TRACE, "trace")
    lost = [r for r in trace_answer["regions"] if r["missing"].startswith("writing it down failed")]
    assert [r["title"] for r in lost] == [title]
    assert lost[0]["text"] is None
    assert lost[0]["advice"] is not None
    kept = {r["key"]: r["text"] for r in trace_answer["regions"] if r not in lost}
    assert kept == {r["key"]: r["text"] for r in whole["regions"][1:]}


def test_the_shell_names_the_region_that_failed(whole: Json) -> None:
    copied = copy.deepcopy(whole)
    copied["regions"][0] |= {"advice": None}
    lines = trace_text(copied).splitlines()
    at = lines.index(next(line for line in lines if line.startswith(f"1. {copied['regions'][0]['name']}")))
    assert lines[at + 1] == ""
    assert any(line.startswith(f"2. {copied['regions'][1]['name']}") for line in lines)


# ---------------------------------------------------------------------------------------------------------------- pages


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server whose child fails on the first region that it advises on."""
    with serving(tmp_path_factory.mktemp("failed"), "part_failed") as server:
        yield server.client


@pytest.fixture(scope="module")
def trace(client: httpx.Client) -> Json:
    answer = client.post("/api/v1/traces", files={"file": (TRACE.name, TRACE.read_bytes())})
    path, deadline = f"/api/v1/traces/{answer.json()['id']}", time.monotonic() + 300
    reply: Json = client.get(path).json()
    while reply["status"] == "reading":
        assert time.monotonic() < deadline
        time.sleep(0.1)
        reply = client.get(path).json()
    assert reply["status"] == "ready", reply["error"]
    return reply


@pytest.fixture(scope="module")
def failed(trace: Json) -> Json:
    (region,) = [r for r in trace["regions"] if r["advice"] is None]
    return dict(region)


def test_the_api_says_null_and_why(client: httpx.Client, trace: Json, failed: Json) -> None:
    assert len(trace["regions"]) > 1
    assert failed["name"] in next(n["message"] for n in trace["notes"] if n["code"] == "region-failed")
    one = client.get(f"/api/v1/regions/{failed['id']}")
    assert one.status_code == 200
    assert one.json()["advice"] is None
    assert "float division by zero" in one.json()["notes"][0]["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/", "/history", "/traces/{trace}", "/traces/{trace}/report.html", "/traces/{trace}?sort=share&tool=compile",
        "/compare?a={trace}&b={trace}", "/regions/{region}", "/regions/{region}/report.html",
        "/regions/{region}/devices", "/regions/{region}/triton", "/regions/{region}/replay.py",
        "/regions/{region}.json",
    ],
)  # fmt: skip
def test_every_page_copes(client: httpx.Client, trace: Json, failed: Json, path: str) -> None:
    answer = client.get(path.format(trace=trace["id"], region=failed["id"]), headers={"Accept": "text/html"})
    assert answer.status_code == 200, answer.text[:2000]
    if path in ("/traces/{trace}", "/regions/{region}", "/traces/{trace}/report.html", "/regions/{region}/report.html"):
        assert "has no advice" in answer.text


def test_the_text_as_it_stands_is_advised_on_by_the_page(client: httpx.Client, failed: Json) -> None:
    form = {"text": failed["text"], "region_id": failed["id"]}
    answer = client.post("/regions/preview", data=form, headers={"HX-Request": "true"})
    assert answer.status_code == 200, answer.text[:2000]


# --------------------------------------------------------------------------------------------------------------- checks


@pytest.mark.parametrize("check", ["compile", "worth-it", "beats"])
def test_an_assertion_on_a_failed_region_is_neither_held_nor_broken(check: str) -> None:
    more = {"candidate": "compile"} if check == "beats" else {}
    assertion = Assertion(name=check, check=check, level="error", **more)
    subject = subjects.trace(subjects.region("fails", advice=None), subjects.region("stands", tool="skip"))
    judged = [j for j in on_regions(assertion, subject, None) if j.region == "fails"]
    assert len(judged) == 1
    assert isinstance(judged[0], Unmeasured)
    assert not may_fire(assertion, subject.regions[0])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_check_that_cannot_judge_a_region_exits_2(
    here: Path, whole: Json, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_on(whole["regions"][0]["name"], ZeroDivisionError("float division by zero"), monkeypatch)
    (here / "tritonworthy.toml").write_text('[assertions]\ncuda = "error"\n')
    assert cli.main(["check", str(TRACE)]) == 2
    assert "not measured: cuda" in capsys.readouterr().out


def test_a_reading_that_crashes_is_unmeasured_and_keeps_its_reports(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(trace_report, "report", crash)
    assert cli.main(["check", str(TRACE), "--format", "json", "--out", "reports"]) == 2
    report = json.loads((here / "reports" / "check.json").read_text())
    assert report["outcome"] == "unmeasured"
    assert "IndexError" in report["unmeasured"][0]["reason"]
    assert "IndexError" in capsys.readouterr().out


def test_a_crash_of_the_check_itself_exits_2(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from app.check import run

    def crash(*_: Any, **__: Any) -> None:
        raise KeyError("regions")

    monkeypatch.setattr(run, "judge", crash)
    assert cli.main(["check", str(TRACE)]) == 2
    assert "could not be checked" in capsys.readouterr().err


def test_a_region_that_ran_out_of_memory_is_told_with_its_limit_and_not_as_a_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch's allocator raises RuntimeError: `each` is to hear of it, not to be told of a defect of ours."""

    def no_memory(*_: Any) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried ...")

    monkeypatch.setattr(trace_report, "_advise", no_memory)
    mined: Any = SimpleNamespace(title="norm")
    with pytest.raises(MemoryError):
        trace_report._region(mined, None, None, None)  # type: ignore[arg-type]
