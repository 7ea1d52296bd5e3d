"""A user's kernels are judged as they were written to be, as far as that rests on no time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from app import cli
from app.cli.validate import KERNEL_STATUS
from benchmarks.validation.own_kernel import CHEATS, HUNG, KERNELS, REGIONS, TIMED, UNTIMED, WRONG, Command, environment
from tests.conftest import ROOT

EXPECTED = {name: ("rms norm", told) for name, told in UNTIMED.items()} | {
    name: (region, KERNEL_STATUS["unmeasured"]) for name, (region, _) in TIMED.items()
}


@pytest.mark.parametrize("function", EXPECTED)
def test_without_a_gpu_faults_are_told_and_right_ones_are_not_timed(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    region, told = EXPECTED[function]
    monkeypatch.chdir(tmp_path)
    shutil.copy(KERNELS, tmp_path)
    Path("region.txt").write_text(REGIONS[region])
    limit = ["--kernel-limit", "5"] if told == HUNG else []
    named = ["--kernel", f"{KERNELS.name}:{function}", "--candidates", "eager", "--device", "cpu", *limit]
    # On a CPU another input may lie where one was before: what was kept of that is a wrong result at the first check.
    accepted = (CHEATS, WRONG) if told == CHEATS else (told,)
    assert cli.main(["validate", "region.txt", *named]) in accepted, capsys.readouterr().out


def test_every_verdict_that_a_gpu_gives_is_among_them() -> None:
    statuses = {told for _, told in TIMED.values()} | set(UNTIMED.values())
    assert statuses == {status for verdict, status in KERNEL_STATUS.items() if verdict != "unmeasured"}


def test_its_command_needs_an_installation_or_the_checkouts_folder(tmp_path: Path) -> None:
    """From a folder elsewhere, as it is on a GPU's machine where nothing but torch is installed."""
    shutil.copy(KERNELS, tmp_path)
    run = Command(tmp_path, "too_large", "rms norm", WRONG, 90.0, "--candidates", "eager", "--device", "cpu").result()
    assert (run.exit_status, run.verdict.partition(":")[0]) == (WRONG, "wrong"), run.verdict


def test_the_checkout_is_found_by_a_relative_path_or_behind_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"elsewhere{os.pathsep}")
    first, *others = environment()["PYTHONPATH"].split(os.pathsep)
    assert Path(first) == ROOT
    assert Path(first).is_absolute()
    assert others == ["elsewhere"]
