"""A piece that hangs, eats or dies costs itself alone; nothing runs on once nobody asks for more."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiler.child.each import FORK_TRIES, each
from profiler.child.limits import MIB, Limits
from profiler.child.pool import Failure
from profiler.child.process import descendants
from tests.conftest import ROOT
from tests.processes import alive, wait_for

LIMITS = Limits(timeout_s=60.0, memory_bytes=256 * MIB, cpu_s=30.0)


def spin() -> None:
    while True:
        pass


def hang() -> None:
    while True:
        signal.pause()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise ValueError("as asked")


def too_much() -> None:
    bytearray(1024 * MIB)


def of_torch() -> None:
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1099511627776 bytes.")


def found(work: Callable[[int], Any], pieces: int, limits: Limits = LIMITS, lanes: int = 2) -> dict[int, Any]:
    made = list(each(work, range(pieces), limits, lanes=lanes))
    assert len(made) == pieces, "each is told of once"
    return dict(made)


@pytest.mark.parametrize("lanes", [1, 2, 5, 50])
def test_every_piece_is_done_once_whatever_the_number_of_forks(lanes: int) -> None:
    assert found(lambda n: {"twice": 2 * n}, 17, lanes=lanes) == {n: {"twice": 2 * n} for n in range(17)}


def test_no_piece_is_no_work() -> None:
    assert found(lambda n: n, 0) == {}


@pytest.mark.parametrize(
    ("bad", "limits", "why"),
    [
        (hang, Limits(0.5), Failure.TIMEOUT),
        (spin, Limits(60.0, cpu_s=1.0), Failure.CPU),
        (kill, LIMITS, Failure.KILLED),
        (lambda: os._exit(0), LIMITS, Failure.CRASHED),
        (lambda: os.abort(), LIMITS, Failure.CRASHED),
        (fail, LIMITS, Failure.CRASHED),
        (lambda: object(), LIMITS, Failure.CRASHED),
        (too_much, LIMITS, Failure.MEMORY),
        (of_torch, LIMITS, Failure.MEMORY),
    ],
)
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_piece_that_fails_is_told_why_and_costs_no_other(
    bad: Callable[[], Any], limits: Limits, why: Failure, lanes: int
) -> None:
    assert found(lambda n: bad() if n == 2 else n, 6, limits, lanes) == {n: n for n in range(6)} | {2: why}


def test_a_piece_that_aborts_dies_at_once_whoever_catches_that_in_this_process() -> None:
    """As LLVM does after a kernel was compiled; here by a handler that never returns."""
    library = ctypes.CDLL(None)
    library.signal.restype, library.signal.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    before = library.signal(signal.SIGABRT, ctypes.cast(library.pause, ctypes.c_void_p))
    try:
        limits = Limits(5.0)
        assert found(lambda n: os.abort() if n == 1 else n, 3, limits) == {0: 0, 1: Failure.CRASHED, 2: 2}
    finally:
        library.signal(signal.SIGABRT, before)


def test_one_that_is_killed_from_outside_is_done_again(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def once(n: int) -> int:
        if n == 1 and not mark.exists():
            mark.touch()
            kill()
        return n

    assert found(once, 3) == {0: 0, 1: 1, 2: 2}


def test_each_piece_has_its_own_measure_of_processor_time_though_nobody_listens() -> None:
    """Who asks may have other things to do meanwhile."""

    def burn(n: int) -> int:
        until = time.process_time() + 0.6
        while time.process_time() < until:
            pass
        return n

    others = descendants(os.getpid())
    making = each(burn, range(3), Limits(60.0, cpu_s=1.0), lanes=1)
    first = next(making)
    (fork,) = set(descendants(os.getpid())) - set(others)
    wait_for(lambda: not alive(fork), 60)
    assert [first, *making] == [(n, n) for n in range(3)]


LIMITED = """
import sys
from profiler.child.each import each
from profiler.child.limits import MIB, Limits, impose
import os
impose(os.getpid(), Limits(60.0, memory_bytes=64 * MIB))
print(dict(sorted(each(lambda n: len(bytearray(n * MIB)) // MIB, [10, 100, 20], Limits(60.0, memory_bytes=512 * MIB)))))
"""


def test_a_piece_may_take_no_more_memory_than_its_caller() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "{10: 10, 20: 20, 100: <Failure.MEMORY: 'memory'>}\n", done.stderr


def test_results_larger_than_a_pipe() -> None:
    assert {n: len(text) for n, text in found(lambda n: "x" * (n * 300_000), 4).items()} == {
        n: n * 300_000 for n in range(4)
    }


def test_nothing_runs_on_and_nothing_stays_open_when_the_caller_leaves() -> None:
    before = len(os.listdir("/proc/self/fd"))
    others = descendants(os.getpid())
    making = each(lambda n: n if n == 0 else hang(), range(6), LIMITS, lanes=3)
    assert next(making) == (0, 0)
    forks = set(descendants(os.getpid())) - set(others)
    assert forks
    making.close()
    assert not any(alive(pid) for pid in forks)
    assert not any(Path(f"/proc/{pid}").exists() for pid in forks), "reaped as well"
    assert len(os.listdir("/proc/self/fd")) == before


CALLER = """
import os, signal
from profiler.child.each import each
from profiler.child.limits import Limits
def work(n):
    os.write(1, str(os.getpid()).encode() + bytes([10]))
    while True:
        {how}
list(each(work, range(2), Limits(600.0)))
"""


@pytest.mark.parametrize("how", ["signal.pause()", "pass"])
def test_nothing_runs_on_when_the_caller_is_killed(how: str) -> None:
    script = CALLER.format(how=how)
    caller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with caller:
        try:
            assert caller.stdout is not None
            pids = [int(caller.stdout.readline()) for _ in range(2)]
        finally:
            caller.kill()
        wait_for(lambda: not any(alive(pid) for pid in pids), 5)


def no_fork_for(times: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """os.fork fails so often, then works; how often it was asked."""
    real, asked = os.fork, list[int]()

    def fork() -> int:
        asked.append(len(asked))
        if len(asked) <= times:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return real()

    monkeypatch.setattr("profiler.child.each.os.fork", fork)
    monkeypatch.setattr("profiler.child.each.FORK_PAUSE_S", 0.01)
    return asked


@pytest.mark.parametrize("times", [1, 5])
def test_a_fork_that_fails_is_tried_again(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    no_fork_for(times, monkeypatch)
    assert found(lambda n: n * n, 6) == {n: n * n for n in range(6)}


def test_where_no_fork_is_possible_every_piece_is_told_as_failed_and_nothing_is_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = no_fork_for(10**9, monkeypatch)
    before = len(os.listdir("/proc/self/fd"))
    assert found(lambda n: n, 4) == dict.fromkeys(range(4), Failure.KILLED)
    assert len(asked) == FORK_TRIES
    assert len(os.listdir("/proc/self/fd")) == before


THREADED = """
import torch
from profiler.child.each import each
from profiler.child.limits import MIB, Limits

torch.set_num_threads(2)
a = torch.randn(1000, 1000)
(a + a).sum()  # torch's threads have begun

def work(piece):
    return float((torch.arange(4_000_000) + piece).float().mean() > 0)

print(sorted(each(work, range(2), Limits(timeout_s=30.0, memory_bytes=1024 * MIB, cpu_s=30.0))))
"""


def test_a_caller_whose_torch_has_threads_of_its_own_has_forks_that_do_not_wait_for_them() -> None:
    """OpenMP's threads do not come along with a fork: it hung for its whole time in the first large operation."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OMP_")}
    run = [sys.executable, "-c", THREADED]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout.strip() == "[(0, 1.0), (1, 1.0)]", done.stdout + done.stderr


def test_a_fork_uses_one_thread_of_blas_whatever_the_caller_has() -> None:
    """One a core, waiting busily, took a region's whole limit of processor time on a host with many."""
    program = (
        "import numpy, json\n"
        "from threadpoolctl import threadpool_info\n"
        "from profiler.child.each import each\n"
        "from profiler.child.limits import Limits\n"
        "def threads(_): return max(i['num_threads'] for i in threadpool_info() if i['user_api'] == 'blas')\n"
        "limits = Limits(timeout_s=60.0, memory_bytes=1 << 30, cpu_s=30.0)\n"
        "print(json.dumps([threads(0), *(value for _, value in each(threads, [0, 1, 2], limits))]))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "OPENBLAS_NUM_THREADS": "4"}, cwd=ROOT, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    own, *forks = json.loads(answer.stdout)
    assert own == min(4, len(os.sched_getaffinity(0)))
    assert forks == [1, 1, 1]
