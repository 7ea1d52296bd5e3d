"""Whatever a child does, the runner says what it was, in time, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.jobs import worker_identity
from app.jobs.exit_reason import TEXTS, Ended, ExitReason
from app.jobs.local_runner import Limits, LocalRunner
from profiler.child import lines
from tests.processes import alive

CHILDREN = Path(__file__).with_name("children.py")

Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def start(child: str, request: dict[str, Any] | None = None, **more: Any) -> Ended:
        limits = more.pop("limits", Limits(timeout_s=20, grace_s=0.3))
        command = [sys.executable, str(CHILDREN), child, "{fd}"]
        return LocalRunner().run(command, request or {}, limits=limits, log=tmp_path / "log", **more)

    return start


def test_answer_progress_and_log(run: Run, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    ended = run("ok", {"n": 1}, on_progress=seen.append)
    assert ended == Ended(ExitReason.OK, {"echo": {"n": 1}})
    assert [s["phase"] for s in seen] == ["half"]
    assert (tmp_path / "log").read_text() == "this goes to the log\n"


def test_the_childs_own_error_reaches_the_user(run: Run) -> None:
    ended = run("error")
    assert ended.reason is ExitReason.ERROR
    assert ended.error == {"code": "trace-not-json", "message": "not JSON", "remedy": "send JSON"}


@pytest.mark.parametrize(
    ("child", "reason", "detail"),
    [
        ("abort", ExitReason.FAULT, "SIGABRT"),
        ("killed", ExitReason.OUT_OF_MEMORY, ""),
        ("status", ExitReason.FAULT, "exit status 7"),
        ("silent", ExitReason.BAD_OUTPUT, "without an answer"),
        ("garbage", ExitReason.BAD_OUTPUT, "protocol"),
        ("partial", ExitReason.BAD_OUTPUT, "without an answer"),
        ("twice", ExitReason.BAD_OUTPUT, "twice"),
    ],
)
def test_crashes_and_lies(run: Run, child: str, reason: ExitReason, detail: str) -> None:
    started = time.monotonic()
    ended = run(child)
    assert ended.reason is reason
    assert ended.error is not None
    assert ended.error["code"] == reason.value
    assert detail in ended.error["message"]
    assert time.monotonic() - started < 20  # the limit, which is another reason


def test_timeout_ends_a_child_that_ignores_sigterm(run: Run, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    started = time.monotonic()
    ended = run("stubborn", {"pid_file": str(pid_file)}, limits=Limits(timeout_s=1.0, grace_s=0.5))
    assert ended.reason is ExitReason.TIMEOUT
    assert 1.5 <= time.monotonic() - started < 40  # it would sleep a minute
    assert not alive(int(pid_file.read_text()))


def test_cancel_gives_the_child_time_to_tidy_up(run: Run, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    ended = run(
        "polite",
        {"pid_file": str(pid_file)},
        limits=Limits(timeout_s=20, grace_s=10),
        tick=lambda: "cancel" if pid_file.exists() else "go",
    )
    assert ended.reason is ExitReason.CANCELLED
    assert not alive(int(pid_file.read_text()))


def test_drop_kills_at_once(run: Run, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    started = time.monotonic()
    request = {"pid_file": str(pid_file)}
    run("stubborn", request, limits=Limits(20, grace_s=20), tick=lambda: "drop" if pid_file.exists() else "go")
    assert time.monotonic() - started < 18  # the limit and the grace are 20 each
    assert not alive(int(pid_file.read_text()))


def test_what_a_child_leaves_behind_is_killed_in_any_session(run: Run, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    assert run("orphan", {"pid_file": str(pid_file)}).reason is ExitReason.OK
    pid = int(pid_file.read_text())
    deadline = time.monotonic() + 120
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def test_a_large_request_and_a_large_answer_do_not_block_each_other(run: Run) -> None:
    assert run("deaf", {"text": "x" * 2_000_000}).value == 2_000_000
    assert len(run("big", {"text": "x" * 2_000_000}).value) == 3_000_000


def test_a_flood_on_the_pipe_is_cut_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "OUTPUT_BYTES", 16 << 20)
    assert run("flood").reason is ExitReason.BAD_OUTPUT


def test_a_flood_on_stdout_fills_no_disk(run: Run, tmp_path: Path) -> None:
    assert run("chatty").reason is ExitReason.OK
    # What is allocated, not the length: the child writes on behind the cut.
    assert os.stat(tmp_path / "log").st_blocks * 512 <= 3 * lines.LOG_BYTES


def test_memory_is_limited(run: Run) -> None:
    limited = run("greedy", limits=Limits(timeout_s=20, memory_bytes=512 << 20))
    assert limited.reason is ExitReason.OUT_OF_MEMORY
    # The same child without the limit ends well, so it was the limit.
    assert run("greedy").reason is ExitReason.BAD_OUTPUT


def test_children_do_not_see_our_secrets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONWORTHY_TOKEN", "0123456789abcdef")
    names = run("environment").value
    assert [n for n in names if n.startswith("TRITONWORTHY_")] == [worker_identity.MARK]


def test_descriptors_do_not_leak(run: Run) -> None:
    run("ok")
    before = len(os.listdir("/proc/self/fd"))
    for child in ("ok", "abort", "garbage", "error"):
        run(child)
    assert len(os.listdir("/proc/self/fd")) == before


def test_every_reason_has_a_text() -> None:
    assert set(TEXTS) == set(ExitReason)
    assert all(text.message and (text.remedy or reason is ExitReason.OK) for reason, text in TEXTS.items())


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[LocalRunner, list[str]]]:
    """A runner that keeps a spare, and the command of it."""
    local_runner = LocalRunner()
    command = [sys.executable, str(CHILDREN), "pid", "{fd}"]
    assert local_runner.keep(command, logs=tmp_path)
    yield local_runner, command
    local_runner.close()


def spare_of(found: LocalRunner) -> int:
    (spare,) = found.spares.values()
    return spare.process.pid


def serve(found: LocalRunner, command: list[str], tmp_path: Path) -> Ended:
    return found.run(command, {}, limits=Limits(timeout_s=20), log=tmp_path / "log")


def test_a_spare_serves_the_next_request_and_no_other(kept: tuple[LocalRunner, list[str]], tmp_path: Path) -> None:
    found, command = kept
    waiting = spare_of(found)
    assert found.keep(command, logs=tmp_path)  # one is there: no second one
    assert spare_of(found) == waiting
    assert serve(found, command, tmp_path).value == waiting
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log"]  # the spare's, under the job's name
    assert serve(found, command, tmp_path).value != waiting


def test_another_command_leaves_the_spare_alone(kept: tuple[LocalRunner, list[str]], tmp_path: Path) -> None:
    found, command = kept
    other = [*command[:2], "ok", "{fd}"]
    assert serve(found, other, tmp_path).value == {"echo": {}}
    assert alive(spare_of(found))


def test_a_spare_that_died_is_told_and_a_request_is_served_without(
    kept: tuple[LocalRunner, list[str]], tmp_path: Path
) -> None:
    found, command = kept
    died = spare_of(found)
    os.kill(died, signal.SIGKILL)
    while alive(died):
        time.sleep(0.01)
    assert not found.keep(command, logs=tmp_path)
    assert found.keep(command, logs=tmp_path)
    os.kill(again := spare_of(found), signal.SIGKILL)
    while alive(again):
        time.sleep(0.01)
    ended = serve(found, command, tmp_path)
    assert ended.reason is ExitReason.OK
    assert ended.value not in (died, again)


def test_closing_leaves_neither_spare_nor_log(kept: tuple[LocalRunner, list[str]], tmp_path: Path) -> None:
    found, command = kept
    waiting = spare_of(found)
    found.close()
    assert not alive(waiting)
    assert not list(tmp_path.iterdir())
    assert found.keep(command, logs=tmp_path)
    assert not found.spares
