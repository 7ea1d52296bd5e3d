"""A process and what it started are ended together, whatever session they moved to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from profiler.child import process
from profiler.child.process import FD, Started, descendants, kill_tree, terminate
from tests.processes import alive, wait_for

FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
answer = int(sys.argv[1])
def beget(depth):
    pid = os.fork()
    if pid == 0:
        if depth == 2:
            os.setsid()  # a session of its own, out of the group
        if depth:
            beget(depth - 1)
        os.write(answer, f"{depth} {os.getpid()}\\n".encode())
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()
beget(2)
while True:
    time.sleep(60)
"""


@dataclass
class Family:
    leader: Started
    below: list[int]


@pytest.fixture
def family() -> Iterator[Family]:
    """A process, its child, and that one's child and grandchild in another session."""
    output, answer = os.pipe()
    with open(os.devnull, "r+b") as null:
        leader = Started(
            [sys.executable, "-c", FAMILY, FD], stdin=null.fileno(), answer=answer, log=null.fileno(), cwd=None,
            env=os.environ,
        )  # fmt: skip
    os.close(answer)
    with closing(os.fdopen(output)) as lines:
        said = sorted(lines.readline().split() for _ in range(3))
        below = [int(pid) for _, pid in reversed(said)]  # the nearest first
        yield Family(leader, below)
    for pid in (leader.pid, *below):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    leader.wait(10)


def test_all_below_a_process_are_named_nearest_first(family: Family) -> None:
    assert descendants(family.leader.pid) == family.below
    assert descendants(family.below[-1]) == []


def test_to_terminate_asks_the_leader_alone(family: Family) -> None:
    terminate(family.leader)
    assert family.leader.wait(20) == 3
    assert all(alive(pid) for pid in family.below)
    terminate(family.leader)  # it has ended: nobody else with its number is meant


def test_to_kill_a_tree_ends_what_moved_to_another_session_too(family: Family) -> None:
    assert os.getsid(family.below[0]) != os.getsid(family.leader.pid)
    kill_tree(family.leader)
    assert family.leader.wait(20) == -signal.SIGKILL
    wait_for(lambda: not any(alive(pid) for pid in family.below))


def test_a_process_that_runs_has_no_status() -> None:
    with open(os.devnull, "r+b") as null:
        fd = null.fileno()
        made = Started(["sleep", "60"], stdin=fd, answer=fd, log=fd, cwd=None, env=os.environ)
    assert (made.poll(), made.wait(0.01)) == (None, None)
    made._process.kill()
    assert made.wait(20) == made.poll() == -signal.SIGKILL


def test_no_import_of_torch() -> None:
    script = "import sys, profiler.child.pool, profiler.child.each\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_process_is_killed_where_nobody_can_look_for_what_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int) -> list[int]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(process, "descendants", refused)
    child = subprocess.Popen(["sleep", "600"])
    process.kill_all_of(child.pid)
    assert child.wait(60) == -signal.SIGKILL
