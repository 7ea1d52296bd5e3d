"""Compile a kernel in a process of its own: the only way to stop LLVM or ptxas, which know no time limit.

Costs the start of a process with torch and triton, some seconds. Inside a process that has a time limit itself, call
`generated_kernel.compile_inductor_kernel` directly.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

from profiler.oracle.machine import Machine

TIMEOUT_S = 60.0
MEMORY_BYTES = 16 * 1024**3  # of addresses, most of which torch's libraries reserve and never touch


class RefusedError(Exception):
    """There is no machine code: the text or the target is refused, or the time is up; the message says which."""


def compile_apart(
    source: str, name: str, arch: str | None = None, config: int = 0, timeout_s: float = TIMEOUT_S
) -> Machine:
    """`compile_inductor_kernel` with a time limit in seconds. Raises RefusedError."""
    request = json.dumps({"source": source, "name": name, "arch": arch, "config": config})
    child = subprocess.Popen(
        [sys.executable, "-m", "profiler.oracle.apart"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(request, timeout=timeout_s)
    except subprocess.TimeoutExpired as fault:
        raise RefusedError(f"compiling took longer than {timeout_s:g} s") from fault
    finally:
        _end(child)
    answer = output.rpartition("\n")[2]
    if child.returncode or not answer:
        last = errors.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        raise RefusedError(f"the compiler's process ended: {last[0][:300]}")
    found = json.loads(answer)
    if "refused" in found:
        raise RefusedError(found["refused"])
    return Machine.from_dict(found["machine"])


def _end(child: subprocess.Popen[str]) -> None:
    """The process and whatever it started (ptxas) end with this call."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def main() -> None:
    """Read one request from standard input, answer it on standard output with one line of JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    from profiler.oracle.generated_kernel import CompileError, KernelTextError, compile_inductor_kernel

    request = json.loads(sys.stdin.read())
    try:
        made = compile_inductor_kernel(**request)
        answer = json.dumps({"machine": made.to_dict()})
    except (CompileError, KernelTextError, IndexError) as fault:
        answer = json.dumps({"refused": str(fault)})
    with os.fdopen(answers, "w") as out:
        out.write(answer)


if __name__ == "__main__":
    main()
