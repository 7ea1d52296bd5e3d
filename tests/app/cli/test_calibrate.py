"""tritonworthy calibrate: from processes that measure to an atlas in use; interrupted, refused, without a GPU."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app import cli
from app.atlas import user_atlas
from app.atlas.atlas import read, write
from app.atlas.shipped import SHIPPED, basis_of
from app.cli.calibrate import progress_lines
from kernels import host
from kernels.calibrate import run
from kernels.calibrate.points import finished, read_folder
from kernels.calibrate.run_state import RunState
from profiler.hardware import find_device
from tests.conftest import ROOT
from tests.kernels.calibrate import stand_in

CARD = host.Host(gpu="NVIDIA H200", versions={"torch": "2.11.0+cu130", "triton": "3.6.0"})
FILE = "nvidia-h200.json.gz"
ENOUGH_S = 300.0

COMMAND = """
from kernels import host
from kernels.calibrate import run
from tests.app.cli.test_calibrate import CARD
from tests.kernels.calibrate import stand_in
host.assume(CARD)
run.WORKER = stand_in.COMMAND
import sys
from app import cli
sys.exit(cli.main(sys.argv[1:]))
"""
"""The command on a host that has the card, with workers that reckon their times."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's atlases."""
    monkeypatch.delenv(user_atlas.VARIABLE, raising=False)
    monkeypatch.setenv("TRITONWORTHY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    user_atlas.look_again()
    yield tmp_path / "data" / "atlas"
    host.assume(None)
    user_atlas.look_again()


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    host.assume(CARD)
    monkeypatch.setattr(run, "WORKER", stand_in.COMMAND)


def test_interrupted_and_gone_on_with_it_becomes_the_atlas_in_use(
    folder: Path, card: None, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = folder / f"{FILE}.parts"
    command = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(COMMAND), "calibrate", "--minutes", "30"],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = time.monotonic() + ENOUGH_S
    while len(finished(read_folder(parts))) < 100:
        assert time.monotonic() < end and command.poll() is None
        time.sleep(0.2)
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert command.returncode == 130, said
    assert f"stopped: what was measured is in {parts}, and the same command goes on with it" in said
    assert "measuring NVIDIA H200 for 30 minutes" in said
    assert not (folder / FILE).exists()
    before = len(finished(read_folder(parts)))
    assert before >= 100
    assert (folder.parent.stat().st_mode & 0o77) == 0, "the data folder is its owner's"

    spent = run.open_state(parts, CARD).seconds / 60
    minutes, status = spent + 0.5, 2
    while status:  # where this machine is busy the time is over before the workers have begun
        assert minutes < spent + ENOUGH_S / 60
        status = cli.main(["calibrate", "--minutes", f"{minutes:.2f}"])
        minutes += 0.5
    told = capsys.readouterr()
    assert "going on where it was stopped" in told.err
    assert "fitted in" in told.err and "too few points were measured: " in told.err
    assert "| eager pointwise |" in told.out and told.out.startswith("**NVIDIA H200**")
    assert not parts.exists()

    atlas = read(folder / FILE)
    assert (atlas.device, atlas.torch) == ("NVIDIA H200", "2.11.0+cu130")
    assert atlas.points > 50
    user_atlas.look_again()
    device = find_device("H200")
    assert device is not None
    basis = basis_of(device)
    assert basis is not None and basis.users and basis.atlas.points == atlas.points

    assert cli.main(["calibrate", "--show"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("NVIDIA H200:")).startswith("NVIDIA H200: yours, ")
    assert next(line for line in lines if line.startswith("NVIDIA H100:")).startswith("NVIDIA H100: shipped, ")
    assert lines[-1] == f"your atlases: {folder}"


def test_without_a_gpu_it_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host.assume(host.Host(note="no driver"))
    assert cli.main(["calibrate"]) == 2
    assert "no GPU on this host (no driver): there is nothing to measure" in capsys.readouterr().err
    assert not folder.exists()


def test_a_card_that_the_table_lacks_is_told_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host.assume(host.Host(gpu="NVIDIA GeForce GTX 970", versions={"torch": "2.11.0"}))
    assert cli.main(["calibrate"]) == 2
    told = capsys.readouterr().err
    assert "NVIDIA GeForce GTX 970 is not in the table of devices" in told
    assert "profiler/hardware.py" in told and "docs/contributing.md" in told
    assert (ROOT / "docs" / "contributing.md").is_file()
    assert not folder.exists()


@pytest.mark.parametrize("value", ["0", "-3", "0.4", "nan", "inf", "1e9", "six"])
def test_minutes_that_make_no_sense_are_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["calibrate", f"--minutes={value}"])
    assert ended.value.code == 2
    assert "minutes are wanted, 0.5 to 1440" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_told_before_minutes_are_spent(
    folder: Path, card: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["calibrate", "--out", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert cli.main(["calibrate", "--out", str(tmp_path / "file" / "mine.json.gz")]) == 2
    assert "cannot be written: Not a directory" in capsys.readouterr().err


def test_points_of_another_torch_are_not_mixed_in_and_fresh_forgets_them(
    folder: Path, card: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = folder / f"{FILE}.parts"
    parts.mkdir(parents=True)
    RunState("NVIDIA H200", "2.10.0", "3.6.0", seconds=30.0).save(parts)
    assert cli.main(["calibrate"]) == 2
    assert "with torch 2.10.0" in (told := capsys.readouterr().err) and "begin anew (--fresh)" in told
    monkeypatch.setattr(run, "WORKER", (sys.executable, "-c", "raise SystemExit('no driver')"))
    assert cli.main(["calibrate", "--fresh"]) == 2
    assert "nothing was measured" in (told := capsys.readouterr().err) and "no driver" in told


def test_check_says_what_a_file_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = replace(read(SHIPPED / FILE), sm_clock_mhz=1980.0, memory_clock_mhz=3201.0, others=1)
    write(tmp_path / "mine.json.gz", mine)
    assert cli.main(["calibrate", "--check", str(tmp_path / "mine.json.gz")]) == 0
    told = capsys.readouterr().out
    assert told.startswith("**NVIDIA H200**: 11,706 points, measured in 15.5 minutes on 2026-11-26")
    assert "processors at 1980 MHz and memory at 3201 MHz, 1 other process on the GPU; the file" in told
    assert sum(line.startswith("| eager ") for line in told.splitlines()) >= 14


@pytest.mark.parametrize("content", [b"", b"no atlas", b"\x1f\x8b\x08\x00"])
def test_what_is_no_atlas_is_refused_with_its_reason(
    content: bytes, tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(content)
    assert cli.main(["calibrate", "--check", str(folder / FILE)]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith(FILE)
    assert cli.main(["calibrate", "--check", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert cli.main(["calibrate", "--show"]) == 2
    told = capsys.readouterr()
    assert f"refused: {FILE}" in told.err
    assert "NVIDIA H200: shipped" in told.out


def test_progress_names_points_minutes_and_families_in_lines_of_a_terminal() -> None:
    lines = progress_lines({f"family_{n}": n * 100 for n in range(20)}, 150.0, 2)
    assert lines[0] == "19,000 points, 2.5 minutes left, 2 other processes on the GPU"
    assert max(map(len, lines)) <= 110
    assert sum(line.count("family_") for line in lines[1:]) == 20
    assert progress_lines({}, 0.0, None) == ["0 points, 0.0 minutes left"]


def test_it_imports_no_web(folder: Path) -> None:
    from tests.app.cli.test_cli import isolated

    done = isolated("calibrate", "--check", str(SHIPPED / FILE))
    assert done.returncode == 0, done.stderr
