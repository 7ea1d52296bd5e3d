"""Records a program in a process of its own, within limits: it runs the user's Python. Torch-free."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from profiler.child.limits import GIB, Limits, impose, over_cpu
from profiler.child.process import Process, Started, kill_tree
from profiler.program.model import Program, ProgramError
from profiler.program.request import Request
from profiler.program.tail import Tail

LIMITS = Limits(timeout_s=300.0, memory_bytes=4 * GIB, cpu_s=600.0)
"""A model of 80 layers takes seconds, and a few hundred MB."""
UNKILLABLE_S = 10.0
TICK_S = 1.0
MOST_LOG = 2000
"""Bytes of what the process wrote that are repeated where it died."""


@dataclass(frozen=True, slots=True)
class Answer:
    """program, or error with its remedy. peak_bytes: of the process's memory, libraries included.
    counted_flops: by torch, of a second run, where it was asked for."""

    program: Program | None = None
    peak_bytes: int = 0
    counted_flops: int = 0
    error: str = ""
    remedy: str = ""


def record_in_process(
    request: Request, limits: Limits = LIMITS, on_wait: Callable[[float], object] = lambda _: None
) -> Program:
    """The program that the request names. on_wait: told each second how long it takes by then. Raises ProgramError."""
    program = answered(request, limits, on_wait).program
    assert program is not None
    return program


def answered(request: Request, limits: Limits = LIMITS, on_wait: Callable[[float], object] = lambda _: None) -> Answer:
    """The same with what recording took. Raises ProgramError."""
    with TemporaryDirectory(prefix="tritonworthy-") as folder:
        asked, answer = Path(folder) / "request.json", Path(folder) / "answer"
        asked.write_bytes(msgspec.json.encode(request))
        command = [sys.executable, "-P", "-m", "profiler.program.keeper", str(asked), str(answer)]
        log = Tail(MOST_LOG)
        try:
            process = _started(command, log.write, limits)
            try:
                status = _wait(process, limits.timeout_s, on_wait)
            finally:
                kill_tree(process)
            if status is None:
                process.wait(UNKILLABLE_S)
        finally:
            log.close()
        if status is None:
            raise ProgramError(
                f"{request.source}: not recorded after {limits.timeout_s:.0f} s", "Record a shorter step."
            )
        if status != 0 or not answer.is_file():
            raise ProgramError(f"{request.source}: {_ended(status, limits)}", log.text)
        told = msgspec.msgpack.decode(answer.read_bytes(), type=Answer)
    if told.program is None:
        raise ProgramError(told.error, told.remedy)
    return told


def _started(command: Sequence[str], log: int, limits: Limits) -> Process:
    """The process, within limits before it begins: it waits for the end of its stdin."""
    theirs, ours = os.pipe()
    try:
        process = Started(command, stdin=theirs, answer=log, log=log, cwd=None, env=_environment())
        impose(process.pid, limits)
    finally:
        os.close(theirs)
        os.close(ours)
    return process


def _wait(process: Process, timeout_s: float, on_wait: Callable[[float], object]) -> int | None:
    """Its exit status, or None after so long."""
    begun = time.monotonic()
    while (taken_s := time.monotonic() - begun) < timeout_s:
        status = process.wait(min(TICK_S, timeout_s - taken_s))
        if status is not None:
            return status
        on_wait(time.monotonic() - begun)
    return process.poll()


def _environment() -> dict[str, str]:
    """This process's, without a GPU, and with where this package is imported from."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(paths)}


def _ended(status: int, limits: Limits) -> str:
    if over_cpu(status):
        return f"it used {limits.cpu_s:.0f} s of processor time and was stopped"
    if status < 0:
        return f"the process that recorded it ended with signal {-status}"
    return f"it ended with status {status} before its step was recorded, as by os._exit({status})"
