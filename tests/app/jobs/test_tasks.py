"""The real children's limits and errors, and what answers are refused. What they do well: test_end_to_end."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from app.jobs.exit_reason import Ended, ExitReason
from app.jobs.local_runner import Limits, LocalRunner
from app.jobs.result_checks import check_trace, check_validation
from app.settings import Settings
from tests.conftest import ROOT

EXAMPLES = ROOT / "app" / "examples"
REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"


def run(folder: Path, task: str, request: dict[str, Any], limits: Limits | None = None, **more: Any) -> Ended:
    command = [sys.executable, "-m", "app.jobs.tasks", task, "{fd}"]
    chosen = limits or Limits(120, 3, Settings().read_limits.memory_bytes if task == "read" else None)
    return LocalRunner().run(command, request, limits=chosen, log=folder / "log", cwd=ROOT, **more)


def read(folder: Path, content: bytes, **request: Any) -> Ended:
    path = folder / "trace"
    path.write_bytes(content)
    return run(folder, "read", {"path": str(path), "name": "t", **request})


def test_the_size_limit_reaches_the_reader(tmp_path: Path) -> None:
    content = (EXAMPLES / "handrolled_blocks.json.gz").read_bytes()
    ended = read(tmp_path, content, max_uncompressed_bytes=100_000)
    assert ended.error is not None
    assert ended.error["code"] == "trace-too-large"


def test_a_memory_limit_that_is_too_small_is_said(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes((EXAMPLES / "handrolled_blocks.json.gz").read_bytes())
    limits = Limits(60, 1, 48 << 20)
    ended = run(tmp_path, "read", {"path": str(path), "name": "t"}, limits)
    # torch's libraries may not even load under it: then it is a fault with a log, never a hang or a wrong answer.
    assert ended.reason in (ExitReason.OUT_OF_MEMORY, ExitReason.FAULT)


def test_a_mistake_in_a_region_keeps_its_place(tmp_path: Path) -> None:
    wrong = run(tmp_path, "validate", {"region": "x: f32[4]\ny = glu(\nreturn y"})
    assert wrong.reason is ExitReason.ERROR
    assert wrong.error is not None
    assert wrong.error["line"] == 2
    assert wrong.error["code"].startswith("region")


def test_cancelling_a_real_validation(tmp_path: Path) -> None:
    request = {"region": REGION, "device": "cpu", "budget_s": 60.0}
    started: list[float] = []

    def tick() -> Any:
        return "cancel" if started else "go"

    ended = run(tmp_path, "validate", request, on_progress=lambda _: started.append(time.monotonic()), tick=tick)
    assert ended.reason is ExitReason.CANCELLED
    assert time.monotonic() - started[0] < 30  # its budget is a minute


def test_a_cancelled_validation_ends_within_two_seconds_wherever_it_is(tmp_path: Path) -> None:
    """As the server does it, with its long grace, and from the middle of building and checking."""
    request = {"region": REGION, "device": "cpu", "budget_s": 60.0}
    asked: list[float] = []
    said: list[dict[str, Any]] = []

    def tick() -> Any:
        if not asked and any(s["phase"] == "prepare" for s in said):
            asked.append(time.monotonic())
        return "cancel" if asked else "go"

    limits = Limits(120, Settings().kill_grace_s)
    ended = run(tmp_path, "validate", request, limits, on_progress=said.append, tick=tick)
    assert ended.reason is ExitReason.CANCELLED
    assert time.monotonic() - asked[0] < 2.5


INTERVAL = {"median": 2.0, "low": 1.0, "high": 3.0}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, ""),
        ({"time_us": INTERVAL | {"median": float("nan")}}, "time_us"),
        ({"time_us": INTERVAL | {"low": 0.0}}, "time_us"),
        ({"time_us": INTERVAL | {"low": -1.0}}, "time_us"),
        ({"time_us": INTERVAL | {"high": 1.5}}, "time_us"),
        ({"time_us": INTERVAL | {"median": "2"}}, "time_us"),
        ({"ratio_to_eager": INTERVAL | {"high": float("inf")}}, "ratio_to_eager"),
        ({"shapes": [{"binding": {}, "time_us": INTERVAL | {"low": -1.0}}]}, "time_us"),
        ({"status": "great"}, "status"),
        ({"unknown": 1}, "not a validation"),
        ({"time_us": 5.0}, "not a validation"),
    ],
)
def test_times_that_cannot_be_are_refused(change: dict[str, Any], wrong: str) -> None:
    candidate = {"name": "eager", "tool": "eager", "status": "ok", "time_us": INTERVAL} | change
    answer = {"outcome": "confirmed", "reason": "", "region": "", "candidates": [candidate]}
    text = check_validation(answer)
    assert wrong in text
    assert bool(text) == bool(wrong)


@pytest.mark.parametrize(
    "answer", [None, [], "x", 5, {}, {"outcome": "great", "reason": "", "region": "", "candidates": []}]
)
def test_answers_that_are_none(answer: Any) -> None:
    assert check_validation(answer)
    assert check_trace(answer)


def test_a_job_goes_by_the_servers_folder_of_atlases(tmp_path: Path) -> None:
    from app.atlas import user_atlas
    from app.jobs.tasks import _take_context

    with user_atlas.using_folder(None):
        _take_context({"atlas_dir": str(tmp_path)})
        assert user_atlas.folder() == tmp_path
        _take_context({})
        assert user_atlas.folder() == tmp_path
