"""Commands as processes that begin with torch imported: forks of one, with streams as the interpreter makes them.

Importing torch takes longer than all else that a command of a test does, and it does so twice where the host is looked
at. Nothing of `app` is imported before the fork, so that a command imports what it imports anywhere.
"""

from __future__ import annotations

import atexit
import functools
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TextIO

ROOT = Path(__file__).resolve().parents[3]
START_S = 300.0
COMMAND_S = 800.0
PACKET_BYTES = 1 << 20
COMMAND_LINE = "import runpy; runpy.run_module('app.cli', run_name='__main__', alter_sys=True)"


class Warm:
    """The process that is forked from."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.app.cli.warm", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=(theirs.fileno(),),
            )
        self._control.settimeout(START_S)
        assert self._control.recv(PACKET_BYTES) == b"ready"
        self._control.settimeout(COMMAND_S)

    def run(
        self, code: str, arguments: tuple[str, ...], cwd: Path, env: Mapping[str, str], streams: tuple[int | None, ...]
    ) -> int:
        """The exit status of a fork that executes the code as its main module. streams: descriptors of stdin, stdout
        and stderr; None for one that is closed."""
        task = {"code": code, "arguments": arguments, "cwd": str(cwd), "env": dict(env)}
        task["closed"] = [number for number, stream in enumerate(streams) if stream is None]
        given = [stream for stream in streams if stream is not None]
        socket.send_fds(self._control, [json.dumps(task).encode()], given)
        return os.waitstatus_to_exitcode(int(self._control.recv(PACKET_BYTES)))

    def stop(self) -> None:
        self._control.close()
        self._process.wait(60)


@functools.cache
def warm() -> Warm:
    """The one of this test process."""
    process = Warm()
    atexit.register(process.stop)
    return process


def run_warm(
    code: str,
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str],
    stdin: int | str | None = "",
    stdout: int | None = -1,
    stderr: int | None = -1,
) -> subprocess.CompletedProcess[bytes]:
    """As subprocess.run. A stream is a descriptor, None where closed, -1 where it is captured; stdin also a text."""
    with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        if isinstance(stdin, str):
            text.write(stdin.encode())
            text.seek(0)
            stdin = text.fileno()
        streams = (stdin, _stream(stdout, out), _stream(stderr, errors))
        status = warm().run(code, arguments, cwd, env, streams)
        for file in (out, errors):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read(), errors.read())


def _stream(wanted: int | None, captured: IO[bytes]) -> int | None:
    return captured.fileno() if wanted == -1 else wanted


# ------------------------------------------------------------------------------------------------- the process itself


def serve(control: socket.socket) -> None:
    """Forks for each task, and tells its status; ends with the other side."""
    control.send(b"ready")
    while True:
        packet, given, *_ = socket.recv_fds(control, PACKET_BYTES, 3)
        if not packet:
            return
        task = json.loads(packet)
        pid = os.fork()
        if pid == 0:
            control.close()
            become(task, given)
            return
        for descriptor in given:
            os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        control.send(str(status).encode())


def become(task: dict[str, object], given: list[int]) -> None:
    """The command, in the fork: its streams, its folder, its environment, its code. Leaves by the interpreter's end."""
    descriptors = iter(given)
    for number in range(3):
        if number in task["closed"]:  # type: ignore[operator]
            os.close(number)
        else:
            os.dup2(next(descriptors), number)
    for descriptor in given:
        os.close(descriptor)
    os.chdir(str(task["cwd"]))
    os.environ.clear()
    os.environ.update(task["env"])  # type: ignore[arg-type]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = standard_stream(number)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["-c", *task["arguments"]]  # type: ignore[misc]
    exec(compile(str(task["code"]), "<command>", "exec"), {"__name__": "__main__"})  # noqa: S102


def standard_stream(number: int) -> TextIO | None:
    """What a new interpreter has for the descriptor in the C locale, where it takes UTF-8: None where it is closed."""
    try:
        os.fstat(number)
    except OSError:
        return None
    raw = io.FileIO(number, "r" if number == 0 else "w", closefd=False)
    buffer = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffer,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "surrogateescape",
        line_buffering=number == 2,
    )


if __name__ == "__main__":
    import torch  # noqa: F401 (what commands import)
    import triton  # noqa: F401

    import kernels.host
    import kernels.libraries.covers
    from profiler.region.graph.lowering import lower
    from profiler.region.language.text import parse

    kernels.host.probe_host()
    lower(parse("x: f32[8, 8]\nreturn gelu(x @ x)\n"))  # what torch itself imports late
    assert not [name for name in sys.modules if name.partition(".")[0] == "app"]
    serve(socket.socket(fileno=int(sys.argv[1])))
