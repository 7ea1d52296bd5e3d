"""A user's kernels are judged as they were written to be, as far as that rests on no time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from app import cli
from app.cli.validate import KERNEL_STATUS
from benchmarks.validation.own_kernel import CHEATS, HUNG, KERNELS, REGIONS, TIMED, UNTIMED, WRONG

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
