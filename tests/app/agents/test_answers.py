"""What the tools answer is by the archive, as the command line's answer and the pages are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app import cli
from app.agents.answers import answer
from app.agents.folder import Folder
from app.agents.questions import AdviseRegion, AdviseTrace
from app.archive import record_store
from app.objects.brief import Brief
from tests.conftest import ROOT
from tests.profiler.trace.files import TRACES

TRACE = "handrolled_blocks_bf16_eager.json.gz"
REGION = "attention_by_hand.txt"


def asked(question: AdviseTrace | AdviseRegion, folder: Path) -> Brief:
    brief = answer(question, Folder(folder), lambda *_: None)
    assert brief["of"] in ("trace", "region")
    return brief  # type: ignore[return-value]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Brief:
    assert cli.main(["advise", *arguments, "--brief"]) == 0
    brief: Brief = json.loads(capsys.readouterr().out)
    return brief


def test_a_traces_regions_have_the_records_of_the_same_program_on_the_same_device(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TRACES)
    question: AdviseTrace = {
        "tool": "advise_trace", "path": TRACE, "companion": None, "execution_trace": None, "device": None,
        "inductor": False,
    }  # fmt: skip
    told = asked(question, TRACES)
    measured = [action for action in told["do"] if action["evidence"].startswith("measured on H200")]
    assert [action["title"] for action in measured] == ["Call torch.nn.attention.flex_attention for attention by hand"]
    assert told == printed(capsys, TRACE, "--oracle", "off")


def test_a_regions_text_has_them_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ROOT / "app" / "examples"
    monkeypatch.chdir(folder)
    question: AdviseRegion = {
        "tool": "advise_region", "path": REGION, "text": None, "device": "H200", "inductor": False, "share": None,
        "step_time_us": None,
    }  # fmt: skip
    told = asked(question, folder)
    assert told["do"][0]["evidence"] == "measured on NVIDIA H200"
    record = record_store.nearest((folder / REGION).read_text(), record_store.FOLDER, device="NVIDIA H200")
    assert record is not None and told["call"] is not None
    times = {c["name"]: c["time_us"]["median"] for c in record["candidates"] if c["time_us"]}
    assert told["call"]["advised_us"]["mid"] == pytest.approx(times[record["best"]], rel=0.01)
    assert told == printed(capsys, REGION, "--device", "H200")


def test_another_devices_advice_is_predicted() -> None:
    question: AdviseRegion = {
        "tool": "advise_region", "path": REGION, "text": None, "device": "A100", "inductor": False, "share": None,
        "step_time_us": None,
    }  # fmt: skip
    told = asked(question, ROOT / "app" / "examples")
    assert told["do"][0]["evidence"] == "predicted"
