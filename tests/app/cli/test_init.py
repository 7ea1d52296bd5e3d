"""as_init, in a process that gets orphans as process 1 does: it reaps them, passes signals on, and tells the status."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes import wait_for

PROGRAM = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from app.cli.init import as_init
from kernels.measure.processes.fork_server import PR_SET_CHILD_SUBREAPER, prctl

prctl(PR_SET_CHILD_SUBREAPER, 1)

def child():
{child}

sys.exit(as_init(child))
"""

ORPHANS = """
    for _ in range(20):
        if os.fork() == 0:  # ends at once, with a child of its own that ends later: nobody's by then
            if os.fork() == 0:
                time.sleep(0.05)
            os._exit(0)
        os.wait()
    print("begun", flush=True)
    time.sleep(60)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux only")


def start(child: str) -> subprocess.Popen[str]:
    program = PROGRAM.format(root=str(ROOT), child=child)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_orphans_are_reaped_while_the_server_runs() -> None:
    with start(ORPHANS) as init:
        assert init.stdout is not None
        assert init.stdout.readline() == "begun\n"
        wait_for(lambda: len(children(init.pid)) == 1, 20, lambda: children(init.pid))
        init.terminate()
        assert init.wait(20) == 0, "it ended as it was told to"


@pytest.mark.parametrize(
    ("child", "status"),
    [
        ("    return 2", 2),
        ("    os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)", 128 + signal.SIGKILL),
        ("    raise SystemExit(3)", 3),
    ],
)
def test_the_status_is_the_servers(child: str, status: int) -> None:
    with start(child) as init:
        assert init.wait(20) == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_server(number: signal.Signals) -> None:
    heard = f"""
    def stop(*_):
        print("heard", flush=True)
        os._exit(7)
    signal.signal(signal.{number.name}, stop)
    print("begun", flush=True)
    time.sleep(60)
"""
    with start(heard) as init:
        assert init.stdout is not None
        assert init.stdout.readline() == "begun\n"
        init.send_signal(number)
        assert init.stdout.readline() == "heard\n"
        assert init.wait(20) == 7


def test_a_server_that_exits_by_itself_keeps_the_status_of_its_own_children() -> None:
    """What waitpid(-1) in the server would take from subprocess."""
    own = """
    import subprocess
    codes = [subprocess.run([sys.executable, "-c", "raise SystemExit(5)"]).returncode for _ in range(3)]
    return 0 if codes == [5, 5, 5] else 1
"""
    with start(own) as init:
        assert init.wait(60) == 0
