"""The template dies, hangs, does not start: its children end with it, who asks hears at once, and there is another."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiler.child import template as module
from profiler.child.lines import LineChild
from profiler.child.process import FD, FORK
from profiler.child.template import NoTemplateError, Template
from tests.conftest import ROOT
from tests.processes import alive, wait_for
from tests.profiler.child.conftest import WORK, Serving
from tests.profiler.child.test_limits import asked


def pid_of(template: Template) -> int:
    assert template.wait_ready(60)
    assert template.life is not None
    return template.life.process.pid


def ended(template: Template, log: Path, *arguments: str, **more: Any) -> int:
    child = LineChild([FORK, *arguments], log=log, template=template, **more)
    try:
        status = child.process.wait(60)
        assert status is not None
        return status
    finally:
        child.close()


def test_a_fork_has_its_own_session_and_environment_and_gives_way(serving: Serving, template: Template) -> None:
    child = LineChild([FORK, "serve", FD], log=None, template=template, environment={"OF_ITS_OWN": "1"})
    try:
        state = asked(child, do="state", names=["OF_ITS_OWN", "PATH"])
    finally:
        child.close()
    assert state["session"] == state["pid"] == child.pid
    assert state["parent"] == pid_of(template)
    assert state["niceness"] > os.nice(0)
    assert state["environment"] == {"OF_ITS_OWN": "1", "PATH": os.environ["PATH"]}
    assert asked(serving(), do="state", names=["OF_ITS_OWN"])["environment"] == {"OF_ITS_OWN": None}


@pytest.mark.parametrize(("arguments", "status"), [(("exit", "0"), 0), (("exit", "7"), 7), (("raise",), 1)])
def test_its_end_is_told_and_what_it_raised_is_in_its_log(
    template: Template, tmp_path: Path, arguments: tuple[str, ...], status: int
) -> None:
    assert ended(template, tmp_path / "log", *arguments) == status
    assert ("ValueError: as asked" in (tmp_path / "log").read_text()) == (arguments[0] == "raise")


def test_a_signal_that_ends_it_is_told(serving: Serving) -> None:
    child = serving()
    assert asked(child, do="die", signal=signal.SIGSEGV) is None
    assert child.poll() == -signal.SIGSEGV


def test_a_fork_holds_nothing_but_its_own_descriptors(serving: Serving) -> None:
    """No socket of the server: it would take connections that nobody answers, and hold the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.set_inheritable(True)
        children = [serving() for _ in range(3)]
        for child in children:
            found = asked(child, do="descriptors")
            others = {int(fd): what for fd, what in found["open"].items() if int(fd) > 2}
            assert others.keys() == {found["answers"]}
            assert others[found["answers"]].startswith("pipe:")
            assert not found["inheritable"], "what it starts must not hold its answer open"


def test_children_die_with_their_template_and_hear_at_once_and_there_is_another(own_template: Template) -> None:
    child = LineChild([FORK, "serve", FD], log=None, template=own_template)
    try:
        first = pid_of(own_template)
        child.send({"do": "hang"})
        child.exchange()
        os.kill(first, signal.SIGKILL)
        assert child.process.wait(10) == -signal.SIGHUP
        wait_for(lambda: not alive(child.pid), 5)
        assert child.rest() == []
    finally:
        child.close()
    child = LineChild([FORK, "serve", FD], log=None, template=own_template)
    try:
        assert asked(child, n=1) == {"pid": child.pid, "n": 1}
        assert pid_of(own_template) != first
    finally:
        child.close()


def test_one_that_dies_while_idle_is_replaced_unasked(own_template: Template) -> None:
    own_template.start()
    first = pid_of(own_template)
    os.kill(first, signal.SIGTERM)
    wait_for(lambda: own_template.ready and pid_of(own_template) != first)


def importing(tmp_path: Path, **more: str) -> tuple[Template, Callable[[], list[int]]]:
    """A template that imports for ever, and the numbers of its processes."""
    path = tmp_path / "imports"
    made = Template(WORK, cwd=ROOT, env={**os.environ, "PREPARE": str(path), **more})
    return made, lambda: [int(line) for line in path.read_text().split()] if path.exists() else []


def test_one_that_dies_while_it_imports_is_replaced(tmp_path: Path) -> None:
    made, pids = importing(tmp_path)
    try:
        made.start()
        wait_for(pids)
        os.kill(pids()[0], signal.SIGKILL)
        wait_for(lambda: len(pids()) > 1)
        assert not made.ready
    finally:
        made.stop()
    assert not any(alive(pid) for pid in pids())


def test_one_that_dies_again_and_again_is_started_less_and_less_often(tmp_path: Path) -> None:
    made, pids = importing(tmp_path, PREPARE_FAILS="1")
    try:
        made.start()
        wait_for(lambda: len(pids()) >= 4, 60)
        assert made.pause_s >= 4 * module.AGAIN_S[0]
        with pytest.raises(NoTemplateError, match="did not start in time"):
            made.fork(["exit", "0"], stdin=0, answer=1, log=2, timeout_s=0.05)
    finally:
        made.stop()


def test_who_waits_for_its_start_is_told_when_the_server_stops(tmp_path: Path) -> None:
    made, pids = importing(tmp_path)
    said: list[str] = []

    def wait() -> None:
        try:
            made.fork(["exit", "0"], stdin=0, answer=1, log=2)
        except NoTemplateError as fault:
            said.append(str(fault))

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_for(pids)
    made.stop()
    waiting.join(5)
    assert said == ["the server stops"]
    assert not any(alive(pid) for pid in pids())


def test_one_that_hangs_is_ended_and_nobody_waits_for_it(
    own_template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket fills up: who asks must not wait for room in it, nor hold what its answers need."""
    monkeypatch.setattr(module, "FORK_S", 0.5)
    own_template.start()
    first = pid_of(own_template)
    os.kill(first, signal.SIGSTOP)
    failed: list[str] = []

    def fork() -> None:
        try:
            child = LineChild([FORK, "exit", "0"], log=None, template=own_template, environment={"ROOM": "x" * 50_000})
        except NoTemplateError as fault:
            failed.append(str(fault))
        else:
            child.close()

    askers = [threading.Thread(target=fork, daemon=True) for _ in range(16)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(30)
    assert not any(asker.is_alive() for asker in askers)
    monkeypatch.undo()
    wait_for(lambda: not alive(first), 10)
    child = LineChild([FORK, "serve", FD], log=None, template=own_template)
    try:
        assert asked(child, n=1)["n"] == 1
    finally:
        child.close()


def test_a_request_that_is_too_long_ends_no_template(template: Template) -> None:
    first = pid_of(template)
    with pytest.raises(ValueError, match="too long"):
        template.fork(["x" * module.PACKET_BYTES], stdin=0, answer=1, log=2)
    assert pid_of(template) == first


def test_what_a_fork_left_in_its_group_ends_with_it(serving: Serving) -> None:
    child = serving()
    stray = asked(child, do="stray")["stray"]
    assert asked(child, do="leave", status=0) is None
    wait_for(lambda: not alive(stray), 5)


SERVER = """
import sys, threading
from pathlib import Path
from profiler.child.lines import LineChild
from profiler.child.process import FD, FORK
from profiler.child.template import Template
template = Template(sys.argv[1], cwd=Path(sys.argv[2]))
template.start()
children = []
for _ in range(int(sys.argv[3])):
    children.append(LineChild([FORK, "serve", FD], log=None, template=template))
    children[-1].send({"do": sys.argv[4]})
    children[-1].exchange()
print(*[child.pid for child in children], *([template.life.process.pid] if children else []), flush=True)
threading.Event().wait()
"""


def server(forks: int, do: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVER, WORK, str(ROOT), str(forks), do], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("do", ["hang", "echo", "spin"])
def test_a_server_that_is_killed_leaves_nothing_running(do: str) -> None:
    started = server(2, do)
    with started, started.stdout:  # type: ignore[union-attr]
        assert started.stdout is not None
        pids = [int(pid) for pid in started.stdout.readline().split()]
        assert len(pids) == 3
        assert all(alive(pid) for pid in pids)
        started.kill()
        wait_for(lambda: not any(alive(pid) for pid in pids), 5)


def test_a_server_that_is_killed_leaves_no_template_that_imports(tmp_path: Path) -> None:
    path = tmp_path / "imports"
    started = server(0, "", PREPARE=str(path))
    with started:
        pid = int(wait_for(lambda: path.exists() and path.read_text()))
        started.kill()
        wait_for(lambda: not alive(pid), 5)


CLOSED = """
import os, sys
for fd in (0, 1, 2):
    os.close(fd)
from pathlib import Path
from profiler.child.lines import LineChild
from profiler.child.process import FD, FORK
from profiler.child.template import Template
template = Template(sys.argv[1], cwd=Path(sys.argv[2]))
child = LineChild([FORK, "serve", FD], log=Path(sys.argv[3]) / "log", template=template)
child.send({"n": 1})
while not (said := child.exchange()) and child.poll() is None:
    pass
(Path(sys.argv[3]) / "said").write_text(repr(said))
child.close()
template.stop()
"""


def test_a_server_without_standard_streams_forks_as_well(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CLOSED, WORK, str(ROOT), str(tmp_path)], cwd=ROOT, check=True, timeout=60)
    assert "'n': 1" in (tmp_path / "said").read_text()
    assert (tmp_path / "log").read_text() == ""


def test_to_stop_is_quick_at_every_moment(tmp_path: Path) -> None:
    for wait in (False, True):
        made = Template(WORK, cwd=ROOT)
        made.start()
        pid = pid_of(made) if wait else None
        began = time.monotonic()
        made.stop()
        assert time.monotonic() - began < 5
        assert pid is None or not alive(pid)
        with pytest.raises(NoTemplateError, match="stops"):
            made.fork(["exit", "0"], stdin=0, answer=1, log=2)
