"""read_trace, advise, validate: what the command line answers, whatever the caller set of torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import html5lib
import pytest
import torch

import tritonworthy
from app import cli
from tests.conftest import ROOT
from tritonworthy.notebook import trace_html

TRACE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"
TEXT = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"


@pytest.fixture(scope="module")
def trace() -> tritonworthy.TraceReport:
    return tritonworthy.read_trace(TRACE)


@pytest.fixture
def unusual_torch() -> Iterator[None]:
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("meta")
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


def test_a_trace_is_what_the_command_line_prints(
    trace: tritonworthy.TraceReport, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["advise", str(TRACE), "--oracle", "off", "--json"]) == 0
    assert trace.body == json.loads(capsys.readouterr().out)
    assert cli.main(["advise", str(TRACE), "--oracle", "off"]) == 0
    assert f"{trace}\n" == capsys.readouterr().out
    assert trace.step_time_us == trace.body["step_time_us"] and trace.bottleneck and trace.actions


def test_a_text_is_advised_on_whatever_was_set_of_torch(unusual_torch: None) -> None:
    asked = tritonworthy.advise(TEXT, device="H100")
    assert isinstance(asked, tritonworthy.RegionReport)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    assert tritonworthy.advise(TEXT, device="H100").body == asked.body
    assert asked.advice is not None and asked.advice["device"] == "NVIDIA H100"


def test_files_are_told_by_what_they_hold(tmp_path: Path, trace: tritonworthy.TraceReport) -> None:
    (tmp_path / "region.txt").write_text(TEXT)
    assert isinstance(tritonworthy.advise(tmp_path / "region.txt"), tritonworthy.RegionReport)
    answer = tritonworthy.advise(str(TRACE))
    assert isinstance(answer, tritonworthy.TraceReport) and answer.body["regions"] == trace.body["regions"]


def test_a_traces_region_is_asked_about_again_with_its_share_and_calls(trace: tritonworthy.TraceReport) -> None:
    first = trace.regions[0]
    again = tritonworthy.advise(first, device="H200")
    assert (again.tool, again.name) == (first.tool, first.name)
    assert again.body["share_of_step"] == first.body["share_of_step"]
    assert again.body["calls_per_step"] == first.body["calls_per_step"]
    assert first.speedup is not None and first.call


def test_a_region_without_a_text_says_why(trace: tritonworthy.TraceReport) -> None:
    lacking = tritonworthy.RegionReport({**trace.regions[0].body, "text": None, "missing": "no shapes"})
    with pytest.raises(ValueError, match="no shapes"):
        lacking.region  # noqa: B018


def test_sizes_in_use_are_passed_on() -> None:
    text = "N: sizes[128]\nx: f32[N, 64]\ny = gelu(x)\nreturn y\n"
    region = tritonworthy.Region(text, "ours", ({"N": 37, "calls": 3},), share_of_step=0.25)
    report = tritonworthy.advise(region)
    assert (report.name, report.region.shapes) == ("ours", ({"N": 37, "calls": 3},))
    assert report.region.share_of_step == 0.25
    with pytest.raises(tritonworthy.InputError, match="N"):
        tritonworthy.advise(tritonworthy.Region(text, shapes=({"M": 1},)))


def test_a_validation_checks_a_kernel_and_gives_its_verdict(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def ours(x):\n    return x\n")
    region = tritonworthy.Region(TEXT, "ours")
    report = tritonworthy.validate(region, kernel=f"{tmp_path / 'mine.py'}:ours", candidates=["eager"], device="cpu")
    assert report.kernel_verdict is not None and report.kernel_verdict["verdict"] == "wrong"
    assert report.body["name"] == "ours" and str(report).startswith("ours: wrong")
    plain = tritonworthy.validate(TEXT, candidates=["eager"], device="cpu")
    assert (plain.outcome, plain.kernel_verdict) == ("unmeasured", None)
    assert "eager" in str(plain) and plain._repr_html_().startswith("<pre>")


@pytest.mark.parametrize("wrong", ["x: f32[4]\ny = gleu(x)\nreturn y\n", "none.txt", "none.json.gz"])
def test_wrong_input_is_one_error_with_the_commands_words(wrong: str) -> None:
    with pytest.raises(tritonworthy.InputError, match=r"gelu|none"):
        tritonworthy.advise(wrong)


def test_a_module_of_the_current_folder_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    Path("empty.json").write_text("")
    with pytest.raises(tritonworthy.InputError, match="empty"):
        tritonworthy.read_trace("empty.json")


def test_a_notebook_shows_the_bottleneck_three_actions_and_a_link(trace: tritonworthy.TraceReport) -> None:
    html = tritonworthy.TraceReport(trace.body, "https://host/traces/1")._repr_html_()
    page = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parseFragment(html)
    assert len(page.findall(".//li")) == min(3, len(trace.actions))
    assert "Bottleneck: " in html and page.find(".//a").get("href") == "https://host/traces/1"


def test_names_of_a_trace_are_text_in_a_notebook(trace: tritonworthy.TraceReport) -> None:
    html = trace_html({**trace.body, "name": "<script>alert(1)</script>"}, "javascript:alert(1)")
    assert "<script" not in html and "javascript" not in html


PROGRAM = """
import torch


def make_model():
    return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU()), torch.randn(32, 256)
"""
DEFINITION = {
    "axes": {"M": {"type": "var"}},
    "inputs": {"a": {"shape": ["M", "M"], "dtype": "float32"}},
    "reference": "def run(a):\n    return a @ a\n",
}


def test_a_program_is_what_the_command_line_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text(PROGRAM)
    source = f"{tmp_path / 'model.py'}:make_model"
    report = tritonworthy.advise(source, "H100", training=True, dtype="bf16")
    assert isinstance(report, tritonworthy.TraceReport)
    options = ["--training", "--dtype", "bf16", "--device", "H100", "--oracle", "off", "--json"]
    assert cli.main(["advise", source, *options]) == 0
    assert report.body == json.loads(capsys.readouterr().out)
    origin = report.body["origin"]
    assert origin is not None and origin["training"] and origin["device"] == "NVIDIA H100"
    assert report.regions[0].region.text.count("bf16")


def test_a_definition_takes_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "square.json"
    path.write_text(json.dumps(DEFINITION))
    report = tritonworthy.advise(f"def:{path}", "H100", sizes={"M": 384})
    assert isinstance(report, tritonworthy.TraceReport) and "384" in report.regions[0].region.text
    with pytest.raises(tritonworthy.InputError, match="no size for M"):
        tritonworthy.advise(f"def:{path}", "H100")
    with pytest.raises(tritonworthy.InputError, match="runs its reference"):
        tritonworthy.advise(path, "H100")


def test_what_goes_with_a_program_goes_with_nothing_else(tmp_path: Path) -> None:
    for asked in (TEXT, str(TRACE)):
        with pytest.raises(tritonworthy.InputError, match="go with a program"):
            tritonworthy.advise(asked, training=True)
    with pytest.raises(tritonworthy.InputError, match="no such file"):
        tritonworthy.advise(str(tmp_path / "none.py:make"))
