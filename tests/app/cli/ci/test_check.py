"""tritonworthy check from a shell: exit 0, 1, 2, and 3 for what is no check; reports in files; no web needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from app import cli
from app.check.formats import FORMATS
from tests.app.check.validators import VALIDATORS
from tests.app.cli.test_cli import isolated
from tests.conftest import ROOT

TRACE = str(ROOT / "app" / "examples" / "handrolled_blocks.json.gz")
REGION = "x: bf16[8192, 4096]\ny = silu(x) * 2\nreturn y\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "region.txt").write_text(REGION)
    return tmp_path


def config(here: Path, text: str) -> None:
    (here / "tritonworthy.toml").write_text(text)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 0),
        ('[assertions]\ncompile = "warn"', 0),
        ('[assertions]\ncompile = "error"', 1),
        ('[assertions]\ncompile = { level = "error", evidence = "measured" }', 2),
        ('[assertions]\ncompile = "eror"', 3),
        ("[assertions\n", 3),
    ],
)
def test_exit_status(here: Path, text: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    config(here, text)
    assert cli.main(["check", "region.txt", "--device", "H200"]) == status
    captured = capsys.readouterr()
    if status == 3:
        assert "tritonworthy.toml:" in captured.err
        assert captured.out == ""
    else:
        assert captured.out.splitlines()[-1].startswith(("passed", "failed", "unmeasured")[status])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["region.txt", "--device", "Voodoo 2"], "Voodoo 2"),
        (["none.txt"], "none.txt"),
        (["none.json.gz"], "none.json.gz"),
        (["region.txt", "--baseline", TRACE], "--baseline goes with one trace"),
        ([TRACE, "--baseline", "none.json"], "none.json"),
        (["region.txt", "--config", "none.toml"], "none.toml"),
        (["wrong.txt"], "gelu"),
        (["region.txt", "--format", "json", "csv"], "--out"),
        (["."], "."),
    ],
)
def test_what_is_no_check_is_status_3(
    here: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "wrong.txt").write_text("x: f32[4]\ny = gleu(x)\nreturn y\n")
    assert cli.main(["check", *arguments]) == 3
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.startswith("nothing was checked: ")


@pytest.mark.parametrize("arguments", [["--format", "pdf", "x"], ["--nope", "x"], [], ["x", "--validat=1"]])
def test_wrong_usage_is_not_taken_for_could_not_measure(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", *arguments])
    assert ended.value.code == 3


def test_a_trace_that_is_none_is_unmeasured(here: Path) -> None:
    (here / "cut.json").write_text('{"traceEvents": [')
    assert cli.main(["check", "cut.json"]) == 2


def test_every_report_is_written_and_valid(here: Path) -> None:
    config(here, '[assertions]\ncompile = "error"\n')
    assert cli.main(["check", "region.txt", "--format", *FORMATS, "--out", "reports"]) == 1
    found = {path.name for path in (here / "reports").iterdir()}
    assert found == {"check.json", "check.md", "check.sarif", "check.xml", "check.csv", "check.html"}
    for name, known in FORMATS.items():
        VALIDATORS[name]((here / "reports" / f"check.{known.suffix}").read_bytes().decode("utf-8"))


def test_one_report_goes_to_stdout(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "region.txt", "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["outcome"] == "passed"
    assert captured.err.splitlines()[-1].startswith("passed")


def test_two_files_of_one_name_are_told_apart(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("a", "b"):
        (here / folder).mkdir()
        (here / folder / "region.txt").write_text(REGION)
    assert cli.main(["check", "a/region.txt", "b/region.txt", "--format", "json"]) == 0
    subjects = json.loads(capsys.readouterr().out)["subjects"]
    assert [s["name"] for s in subjects] == ["a/region.txt", "b/region.txt"]


def test_a_check_imports_no_web(here: Path) -> None:
    done = isolated("check", str(here / "region.txt"), TRACE, "--format", *FORMATS, "--out", str(here / "reports"))
    assert done.returncode == 0, done.stderr
    assert len(os.listdir(here / "reports")) == len(FORMATS)
