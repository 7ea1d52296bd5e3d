"""docs/python.md and docs/capture.md: every example runs, signatures are the functions', numbers the code's."""

from __future__ import annotations

import inspect
import re
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

import tritonworthy
from app import cli
from tests.conftest import ROOT
from tritonworthy.recorder import RECORDED, SKIP, TIMED
from tritonworthy.recording import MOST_SLOWDOWN

PYTHON = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
CAPTURE = (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PYTHON + CAPTURE, re.M | re.S)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_runs(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if "read_trace" in example:
        shutil.copy(ROOT / "app" / "examples" / "handrolled_blocks.json.gz", "step.json.gz")
    exec(compile(example, "example", "exec"), {})  # noqa: S102
    if "capture(" in example:
        name = "step" if "step.json" in example else "decorated"
        assert {f"{name}.json.gz", f"{name}.et.json.gz"} < {path.name for path in tmp_path.iterdir()}
    else:
        assert "None" not in capsys.readouterr().out


def test_signatures_are_the_functions() -> None:
    rows = dict(re.findall(r"^\| `(\w+)\((.*?)\)` \|", PYTHON, re.M))
    assert set(rows) == {"read_trace", "advise", "validate", "capture", "Region"}
    for name in set(rows) - {"Region"}:
        assert [p for p in rows[name].split(", ") if p != "*"] == list(
            inspect.signature(getattr(tritonworthy, name)).parameters
        )
    assert rows["Region"].split(", ") == [field.name for field in fields(tritonworthy.Region)]


def test_numbers_of_the_page_are_the_recorders() -> None:
    assert f"`skip` ({SKIP})" in CAPTURE and f"`timed` ({TIMED})" in CAPTURE
    assert RECORDED == 2 and "two steps are recorded" in CAPTURE
    assert f"at most {MOST_SLOWDOWN:.2f} times" in CAPTURE and f"Above {MOST_SLOWDOWN:.2f}" in CAPTURE


def test_commands_of_the_page_are_understood() -> None:
    commands = re.findall(r"^tritonworthy (capture .*)$", CAPTURE, re.M)
    assert len(commands) == 2
    for command in commands:
        assert cli._parser().parse_args(command.split()).output_dir == Path("traces")
