"""Limits are imposed from outside, count from what the child has by then, and can be imposed again."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from profiler.child import limits
from profiler.child.limits import MIB, Limits, cpu_used_s, host_memory_bytes, impose, over_cpu, private_bytes
from profiler.child.lines import LineChild
from tests.processes import wait_for
from tests.profiler.child.conftest import Serving


def asked(child: LineChild, **request: Any) -> Any:
    """The child's answer; None where it ended without one."""
    child.send(request)
    got = wait_for(lambda: child.exchange() or child.poll() is not None, 30)
    return None if got is True else got[0]


def memory(mib: int) -> Limits:
    return Limits(60.0, memory_bytes=mib * MIB)


def test_memory_counts_from_what_the_child_has_when_it_is_limited(serving: Serving) -> None:
    child = serving()
    pid = asked(child, do="eat", bytes=300 * MIB, keep=True)["pid"]
    assert 300 * MIB < private_bytes(pid) < 800 * MIB
    impose(pid, memory(64))
    assert asked(child, do="eat", bytes=32 * MIB) == {"pid": pid}
    assert asked(child, do="eat", bytes=100 * MIB) == {"error": "memory"}


def test_a_kept_childs_next_request_has_its_own_measure_of_memory(serving: Serving) -> None:
    child = serving()
    for _ in range(3):
        impose(child.pid, memory(64))
        assert asked(child, do="eat", bytes=48 * MIB, keep=True) == {"pid": child.pid}
    impose(child.pid, memory(64))
    assert asked(child, do="eat", bytes=100 * MIB) == {"error": "memory"}


def test_an_operators_own_limit_is_kept_and_costs_no_other_limit(serving: Serving) -> None:
    child = serving()
    own = private_bytes(child.pid) + 32 * MIB
    resource.prlimit(child.pid, resource.RLIMIT_DATA, (own, own))
    impose(child.pid, Limits(60.0, memory_bytes=256 * MIB, cpu_s=7.0))
    assert resource.prlimit(child.pid, resource.RLIMIT_DATA) == (own, own)
    assert resource.prlimit(child.pid, resource.RLIMIT_CPU)[0] >= 7
    assert asked(child, do="eat", bytes=100 * MIB) == {"error": "memory"}


def test_processor_time_counts_from_what_the_child_has_used(serving: Serving) -> None:
    child = serving()
    for _ in range(2):
        impose(child.pid, Limits(60.0, cpu_s=1.0))
        assert asked(child, do="burn", cpu_s=0.6) == {"pid": child.pid}
    assert cpu_used_s(child.pid) >= 1.1
    impose(child.pid, Limits(60.0, cpu_s=1.0))
    assert asked(child, do="spin") is None
    status = child.poll()
    assert status == -signal.SIGXCPU
    assert over_cpu(status)
    assert not over_cpu(-signal.SIGKILL)


def test_a_process_that_has_ended_is_no_error() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    impose(pid, Limits(1.0, memory_bytes=MIB, cpu_s=1.0))
    assert (private_bytes(pid), cpu_used_s(pid)) == (0, 0.0)


def test_the_hosts_memory_is_no_more_than_it_has() -> None:
    with open("/proc/meminfo") as file:
        total = int(file.readline().split()[1]) * 1024
    assert 0 < host_memory_bytes() <= total


@pytest.mark.parametrize(
    ("groups", "files", "wanted"),
    [
        ("0::/", {"memory.max": "1000"}, 1000),
        ("0::/system.slice/a.service", {"system.slice/a.service/memory.max": "3000"}, 3000),
        ("0::/system.slice/a.service", {"system.slice/a.service/memory.max": "max", "system.slice/memory.max": "2000"},
         2000),
        ("4:memory:/a/b\n0::/", {"memory/a/b/memory.limit_in_bytes": "4000"}, 4000),
        ("4:cpu,memory:/gone", {"memory/memory.limit_in_bytes": "5000"}, 5000),
        ("0::/../x", {"memory.max": "6000"}, 6000),
    ],
)  # fmt: skip
def test_a_service_whose_group_is_limited_does_not_count_with_the_host(
    tmp_path: Path, groups: str, files: dict[str, str], wanted: int
) -> None:
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{n}": t for n, t in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert host_memory_bytes(tmp_path) == wanted
    assert host_memory_bytes(tmp_path / "nothing") == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_process_that_cannot_be_looked_at_keeps_the_limits_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without descriptors /proc cannot be read, and from 0 on a limit would be less than a kept child has already."""
    monkeypatch.setattr(limits, "_private_bytes", lambda pid: None)
    child = subprocess.Popen(["sleep", "600"])
    try:
        before = [resource.prlimit(child.pid, what) for what in (resource.RLIMIT_DATA, resource.RLIMIT_CPU)]
        limits.impose(child.pid, limits.Limits(1.0, memory_bytes=limits.MIB, cpu_s=1.0))
        assert [resource.prlimit(child.pid, what) for what in (resource.RLIMIT_DATA, resource.RLIMIT_CPU)] == before
    finally:
        child.kill()
        child.wait()


def test_a_process_that_has_only_just_begun_its_program_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no private memory yet, and must not go without limits for that."""
    monkeypatch.setattr(limits, "_private_bytes", lambda pid: 0)
    child = subprocess.Popen(["sleep", "600"])
    try:
        limits.impose(child.pid, limits.Limits(1.0, memory_bytes=100 * limits.MIB))
        assert resource.prlimit(child.pid, resource.RLIMIT_DATA)[0] == 100 * limits.MIB
    finally:
        child.kill()
        child.wait()
