"""A child that a host of the fleet keeps ready: it serves the next job, and none stays behind a job that went wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.jobs import worker_identity
from app.jobs.local_runner import Limits
from app.jobs.ray import task
from tests.app.jobs.ray.cluster import MI300X, command
from tests.processes import alive, wait_for

JOBS = "../children.py"


def waiting(command: list[str]) -> list[int]:
    """The processes of that command line."""
    lines = {
        int(path.parent.name): path.read_bytes().split(b"\0")
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if alive(int(path.parent.name))
    }
    return [pid for pid, line in lines.items() if [*map(os.fsencode, command[:3])] == line[:3]]


def test_a_host_keeps_a_child_ready_for_its_next_job_until_one_goes_wrong(ray_runner: Any, tmp_path: Path) -> None:
    kept, other = command("pid", JOBS), command("status", JOBS)
    limits = Limits(20, 0.3)

    def on(device: str, asked: list[str] = kept) -> Any:
        return ray_runner.run(asked, {"on": device}, limits=limits, log=tmp_path / "log").value

    on(MI300X)
    assert not waiting(kept)  # nobody asked for one
    assert ray_runner.keep(kept, logs=tmp_path)
    assert ray_runner.keep(other, logs=tmp_path)
    try:
        on(MI300X)
        (spare,) = wait_for(lambda: waiting(kept))
        assert on(MI300X) == spare
        (spare,) = wait_for(lambda: [pid for pid in waiting(kept) if pid != spare])
        on(MI300X, other)  # ends with a status: whoever met a sick GPU may have left more behind
        wait_for(lambda: not alive(spare))
        assert on(MI300X) != spare
    finally:
        ray_runner.kept.clear()
        for pid in waiting(kept):
            os.kill(pid, signal.SIGKILL)


def test_logs_of_workers_that_are_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task.tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    left = {
        "gone": worker_identity.owner(gone.pid),
        "other": "another~boot~place/1.1/00",
        "mine": worker_identity.owner(),
    }
    for name, owner in left.items():
        folder = tmp_path / f"tritonworthy-worker-{name}"
        folder.mkdir()
        (folder / "owner").write_text(owner)
    gone.communicate()
    assert task._logs().parent == tmp_path
    kept = {path.name.rpartition("-")[2] for path in tmp_path.iterdir()}
    assert {"other", "mine"} < kept
    assert "gone" not in kept
    assert len(kept) == 3
