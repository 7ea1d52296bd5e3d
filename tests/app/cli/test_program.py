"""What would break: options that are ignored, a recording that cannot be saved, an error that ends with status 0."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

import tritonworthy
from app import cli
from app.exit_status import INCOMPLETE

PROGRAMS = """\
import torch


def make():
    open("ran", "w").close()
    return torch.nn.Linear(64, 32), torch.randn(8, 64)


class Stops(torch.nn.Module):
    def forward(self, x):
        y = torch.softmax(x @ x.mT, -1)
        raise ValueError(f"no more after {y.dim()} dimensions")


def stops():
    return Stops(), torch.randn(64, 64)
"""
REST = ("--device", "H100", "--oracle", "off")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(PROGRAMS)
    Path("r.txt").write_text("x: f32[64, 128]\ny = gelu(x)\nreturn y\n")
    Path("config.json").write_text('{"model_type": "llama"}')
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "r.txt --save zz.json.gz --training --size M=3 --dtype f16",
            "--training and --dtype and --save and --size go",
        ),
        ("r.txt --batch 2", "--batch goes with a program"),
        ("m.py:make --share 0.5", "--share goes with a region's text"),
        ("m.py:make --objective memory --step-time-us 5", "--step-time-us and --objective go with a region's text"),
        ("m.py:make --companion t.json", "--companion goes with a trace"),
        ("m.py:make --batch 2 --sequence 8", "--batch and --sequence go with hf:"),
        ("m.py:make --size M=3", "--size goes with def:"),
        ("hf:config.json --size M=3", "--size goes with def:"),
        ("m.py:make --save m.py", "as .json or .json.gz"),
        ("m.py:make --save none/t.json", "no folder none"),
        ("m.py:make --save folder.json", "cannot be written"),
        ("hf:config.json --save config.json", "is the program itself"),
        ("hf:. --save config.json", "is the program itself"),
    ],
)
def test_what_has_no_effect_or_cannot_be_saved_is_refused_before_anything_is_run(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("folder.json").mkdir()
    assert cli.main(["advise", *words.split(), *REST]) == 1
    assert said in capsys.readouterr().err
    assert Path("m.py").read_text() == PROGRAMS and not Path("ran").exists()


def test_a_trace_is_saved_as_its_suffix_says() -> None:
    for name in ("t.json", "t.json.gz"):
        assert cli.main(["advise", "m.py:make", "--save", name, *REST]) == 0
    plain = Path("t.json").read_bytes()
    assert json.loads(plain)["traceEvents"] and gzip.decompress(Path("t.json.gz").read_bytes()) == plain


def test_a_program_that_came_to_an_error_has_a_status_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", "m.py:stops", "--json", *REST]) == INCOMPLETE == 3
    body = json.loads(capsys.readouterr().out)
    assert [gap["what"] for gap in body["origin"]["gaps"]] == ["ValueError: no more after 2 dimensions"]
    report = tritonworthy.advise(f"{os.getcwd()}/m.py:stops", "H100")
    assert isinstance(report, tritonworthy.TraceReport) and report.regions
