"""docs/own-kernel.md: its kernel is right for its region, its configuration is read, its statuses are the command's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app import cli
from app.check.config import KernelCheck, read_toml
from app.cli.validate import KERNEL_STATUS
from kernels.measure.request import Limits
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "own-kernel.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.M | re.S)
    return text


def test_the_kernel_of_the_page_is_right_for_its_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rms_norm.txt").write_text(block("region"))
    Path("my_kernels.py").write_text(block("python"))
    named = ["--kernel", "my_kernels.py:rms_norm", "--candidates", "eager", "--device", "cpu"]
    assert cli.main(["validate", "rms_norm.txt", *named]) == KERNEL_STATUS["unmeasured"]
    assert capsys.readouterr().out.startswith("rms_norm: not measured: it is right")


def test_the_configuration_of_the_page_is_read() -> None:
    first, second = read_toml(block("toml"), runs_kernels=True).kernels
    assert first == KernelCheck("our norm", "my_kernels.py:rms_norm", "rms_norm.txt")
    assert (second.level, second.devices) == ("warn", ("A100",))
    keys = re.findall(r"^\| `(\w+)` \|", PAGE.split("## For a repository")[1], re.M)
    assert tuple(keys) == KernelCheck.__slots__


def test_verdicts_and_their_statuses_are_the_commands() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d) \|", PAGE.split("## Verdicts")[1].split("## For")[0], re.M)
    assert {verdict: int(status) for verdict, status in rows} == dict(KERNEL_STATUS)


def test_limits_of_the_page_are_the_measurements() -> None:
    limits = Limits()
    assert f"{limits.kernel_s:.0f} s until it is built and checked" in PAGE
    assert f"{limits.turn_s:.0f} s a round" in PAGE
    assert f"{limits.kernel_memory_bytes >> 30} GiB of the host's memory" in PAGE
