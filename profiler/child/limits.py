"""What a child process may use, imposed from outside with prlimit: it cannot be forgotten by the work itself.

/proc is read by hand: this package needs no more than the reader's wheels, and psutil is none of them.
"""

from __future__ import annotations

import math
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

MIB = 1024**2
GIB = 1024**3
NEARLY = 0.95
"""Of the memory that a process may have: what fails for another reason rarely has that much."""


@dataclass(frozen=True, slots=True)
class Limits:
    """timeout_s: wall time until the child is asked to end, and killed grace_s later.

    memory_bytes: private memory (RLIMIT_DATA) beyond what the child has when its request arrives, None = unlimited.
    Not address space: files that are mapped to be read, and what CUDA reserves, cost nothing. cpu_s: processor time of
    one request, None = unlimited; the system counts whole seconds.
    """

    timeout_s: float
    grace_s: float = 5.0
    memory_bytes: int | None = None
    cpu_s: float | None = None


def impose(pid: int, limits: Limits) -> None:
    """Limit the process from now on; one that has ended is no error. Linux only: elsewhere wall time alone holds."""
    if not hasattr(resource, "prlimit"):
        return
    with suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        used_bytes = _private_bytes(pid)
        if (
            used_bytes is None
        ):  # ended, or /proc cannot be read for lack of descriptors: from 0 on it would be too little
            return
        if limits.memory_bytes is not None:
            _limit(pid, resource.RLIMIT_DATA, used_bytes + limits.memory_bytes)
        if limits.cpu_s is not None:
            _limit(pid, resource.RLIMIT_CPU, math.ceil(cpu_used_s(pid) + limits.cpu_s))


def _limit(pid: int, what: int, most: int) -> None:
    """The soft limit alone: a kept child's is raised for its next request, and so is that of what a limited one forks.

    The hard one is the operator's. Nobody but the superuser could raise it again.
    """
    _, hard = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def within_own(limits: Limits) -> Limits:
    """The limits for what this process forks: no more memory than it may itself still take."""
    most, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if most == resource.RLIM_INFINITY:
        return limits
    remaining_bytes = max(0, most - private_bytes(os.getpid()))
    return replace(limits, memory_bytes=min(remaining_bytes, limits.memory_bytes or remaining_bytes))


def over_cpu(status: int) -> bool:
    """Whether that exit status says that the process used up its processor time."""
    return status == -signal.SIGXCPU


def is_of_memory(fault: BaseException) -> bool:
    """Whether this process failed for lack of memory, by the fault or by what it has of what it may have.

    torch's allocator raises RuntimeError, and an extension may lose its error on the way. Reporting it takes memory as
    well: the limit is lifted, and is to be imposed again before anything else is done.
    """
    most, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    if isinstance(fault, MemoryError) or "can't allocate memory" in str(fault):
        return True
    return most != resource.RLIM_INFINITY and private_bytes(os.getpid()) > NEARLY * most


def private_bytes(pid: int) -> int:
    """Private memory of a process as RLIMIT_DATA counts it (VmData); 0 for none that runs."""
    return _private_bytes(pid) or 0


def _private_bytes(pid: int) -> int | None:
    """The same; None for none that runs, and where /proc cannot be read for lack of descriptors.

    One that has only just begun its program has 0: seen on a busy machine, in the middle of exec.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), None)


def cpu_used_s(pid: int) -> float:
    """Processor time of a process, all its threads; 0 for none that runs."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


CGROUP_FILES = {"": "memory.max", "memory": "memory/memory.limit_in_bytes"}
"""Where a control group says what its processes may take together: of the unified hierarchy, of the older one."""


def host_memory_bytes(root: Path = Path("/")) -> int:
    """Memory of this host, or what the container or service that this runs in may use of it where that is less.

    root: of the file system. The control group and all above it count (man 7 cgroups): a service manager limits a
    group far down, a container sees its own group as the root.
    """
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _limit_files(root):
        with suppress(OSError, ValueError):  # "max": no limit
            most = min(most, int(path.read_text()))
    return most


def _limit_files(root: Path) -> Iterator[Path]:
    base = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    groups = {"": "/", "memory": "/"}
    for _, _, rest in (line.partition(":") for line in lines):
        controllers, _, group = rest.partition(":")
        for name in controllers.split(","):
            if name in groups:
                groups[name] = group
    for name, group in groups.items():
        top, _, file = CGROUP_FILES[name].rpartition("/")
        here = PurePosixPath(group.lstrip("/"))
        for each in dict.fromkeys((here, *here.parents)):
            yield base / top / each / file
