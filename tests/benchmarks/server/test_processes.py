"""What the benchmarks know of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from benchmarks.server.processes import MemoryWatch, Process, below, command, parse_stat, pss, table, tree_pss

BLOCK_BYTES = 64_000_000
HOLD = f"import os, sys; os.fork(); block = b'x' * {BLOCK_BYTES}; os.write(1, b'held\\n'); sys.stdin.read()"
"""Two processes with a block each, written after the fork, so that they do not share it."""


def process(pid: int, parent: int, state: str = "S") -> Process:
    return Process(pid, "python", parent, state, 100 + pid)


def test_a_name_with_brackets_and_spaces_shifts_no_field() -> None:
    line = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 0 0 0 3 1 0 0 20 0 1 0 987654 1000 10 18446744073709551615"
    assert parse_stat(line) == Process(42, "a) b (c)", 7, "S", 987654)


def test_depths_are_of_all_below_and_of_no_one_else() -> None:
    rows = [process(1, 0), process(10, 1), process(11, 10), process(12, 10), process(20, 11), process(30, 1)]
    assert below(10, {p.pid: p for p in rows}) == {11: 1, 12: 1, 20: 2}


def test_a_process_that_is_its_own_parent_ends_the_walk() -> None:
    rows = [Process(0, "swapper", 0, "S", 0), process(1, 0), process(2, 1)]
    assert below(0, {p.pid: p for p in rows}) == {1: 1, 2: 2}


@pytest.fixture
def holders() -> Iterator[subprocess.Popen[str]]:
    """The first of the two; both end with their stdin."""
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        assert [child.stdout.readline() for _ in range(2)] == ["held\n", "held\n"]
        yield child
        child.stdin.close()


def test_memory_of_a_tree_counts_every_process_in_it(holders: subprocess.Popen[str]) -> None:
    whole, first = tree_pss(holders.pid), pss([holders.pid])
    assert first > BLOCK_BYTES
    assert 2 * BLOCK_BYTES < whole < 2 * BLOCK_BYTES + 100e6
    (forked,) = below(holders.pid, table())
    assert table()[forked].parent == holders.pid
    assert below(os.getpid(), table())[forked] >= 2


def test_the_watch_knows_the_peak_and_calls_once_over_the_limit(holders: subprocess.Popen[str]) -> None:
    calls: list[float] = []
    watch = MemoryWatch(holders.pid, every_s=0.0, limit_bytes=BLOCK_BYTES, over=lambda: calls.append(time.monotonic()))
    deadline = time.monotonic() + 60
    while watch.samples < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert watch.stop() > 2 * BLOCK_BYTES / 1e6
    assert watch.exceeded and len(calls) == 1


def test_a_process_that_has_ended_takes_nothing(holders: subprocess.Popen[str]) -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # ended, and not waited for: a zombie
    assert table()[ended.pid].dead
    assert pss([ended.pid]) == 0
    assert command(ended.pid) == ""
    ended.wait()
    assert ended.pid not in table()
