"""What runs in Ray's worker on a host of the fleet: the LocalRunner, and a look at the host. Imports no Ray itself."""

from __future__ import annotations

import os
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

import app as package
from app.jobs import worker_identity
from app.jobs.exit_reason import Ended, ExitReason, failure
from app.jobs.local_runner import Limits, LocalRunner, Message
from app.jobs.ray.model import JOB_FOLDER
from app.objects.task import ProbedHost

ROOT = Path(package.__file__).resolve().parent.parent.parent
PYTHON = "{python}"
"""In a command: this host's interpreter, wherever it is."""

SEES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""How Ray tells a worker, and what it starts, which GPUs are its own."""

STUCK_POLL_S = 1.0
INTERRUPTED_S = 0.1
"""Ray interrupts a task by a flag of the interpreter, which wakes no thread that waits."""


@dataclass(frozen=True, slots=True)
class Work:
    """A job as it travels. facts: of the hosts it may come to, by Ray's id: what a child need not look for itself.

    keep: whether a child of that command is to stay behind, ready for the next one.
    """

    command: Sequence[str]
    request: Mapping[str, object]
    limits: Limits
    facts: Mapping[str, ProbedHost]
    version: str
    keep: bool = False


class Worker:
    """What this process, which Ray uses for task after task, keeps between them: a runner with its spare child.

    A spare sees the GPUs that the task before saw, so it is no use to one that sees others. It dies with this process.
    """

    def __init__(self) -> None:
        self.sees: tuple[str, ...] | None = None
        self.runner = LocalRunner()
        self.logs: Path | None = None

    def take(self, asked: Work) -> LocalRunner:
        """The runner for a task that sees what the environment says now."""
        sees = tuple(os.environ.get(name, "") for name in SEES)
        if asked.keep and sees != self.sees:
            self.runner.forget()
            self.sees = sees
        return self.runner

    def leave(self, asked: Work, ended: Ended) -> None:
        """Behind a task: have its next child started, but never behind one that may have met a sick GPU."""
        if ended.reason is not ExitReason.OK:
            self.runner.forget()
        elif asked.keep:
            with suppress(OSError):  # no process to be had: the next task starts its own, or says so
                self.logs = self.logs or _logs()
                self.runner.keep(_here(asked.command), logs=self.logs, cwd=ROOT)


WORKER = Worker()


def work(asked: Work, node: str) -> Iterator[Message]:
    """See a job through on this host; what its child says, then {"type": "ended", ...}.

    An interrupt (Ray's cancel) asks the child to end; the generator's own end kills it. Whoever kills this process
    ends the child too: its stdin closes.
    """
    yield {"type": "placed", "node": node, "pid": os.getpid(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", "")}
    if asked.version != package.__version__:
        versions = f"This host runs Tritonworthy {package.__version__}, the server {asked.version}."
        yield _end_json(failure(ExitReason.NO_DEVICE, versions), b"")
        return
    runner = WORKER.take(asked)
    said: queue.SimpleQueue[Message | Ended] = queue.SimpleQueue()
    stop, drop = threading.Event(), threading.Event()
    host = {"host": asked.facts[node]} if node in asked.facts else {}
    with tempfile.TemporaryDirectory(prefix=JOB_FOLDER) as folder:
        log = Path(folder) / "log"

        def see() -> None:
            try:
                ended = runner.run(
                    _here(asked.command),
                    {**asked.request, **host},
                    limits=asked.limits,
                    log=log,
                    on_progress=said.put,
                    tick=lambda: "drop" if drop.is_set() else "cancel" if stop.is_set() else "go",
                    cwd=ROOT,
                )
            except Exception as error:  # such as no memory for another process: the job's end, not the worker's
                ended = failure(ExitReason.FAULT, f"({type(error).__name__}: {error})"[:500])
            said.put(ended)
            WORKER.leave(asked, ended)

        thread = threading.Thread(target=see, name="job")
        thread.start()
        try:
            ended: Ended | None = None
            while ended is None:
                try:
                    while ended is None:  # all of it inside the try: the interrupt comes between any two steps
                        one = _get(said)
                        if isinstance(one, Ended):
                            ended = one
                        elif one is not None:
                            yield one
                except KeyboardInterrupt:
                    stop.set()
            yield _end_json(ended, log.read_bytes() if log.exists() else b"")
        finally:
            drop.set()
            thread.join()
    while ended.stuck_pid is not None and psutil.pid_exists(ended.stuck_pid):
        time.sleep(STUCK_POLL_S)  # nobody else gets this GPU while something hangs on it


def _here(command: Sequence[str]) -> list[str]:
    return [sys.executable if part == PYTHON else part for part in command]


def _logs() -> Path:
    """A folder of this process for its spares' logs; those of workers that Ray ended are removed."""
    for named in Path(tempfile.gettempdir()).glob("tritonworthy-worker-*/owner"):
        with suppress(OSError):
            if worker_identity.is_dead(named.read_text()):
                shutil.rmtree(named.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="tritonworthy-worker-"))
    (folder / "owner").write_text(worker_identity.owner())
    return folder


def _get(said: queue.SimpleQueue[Message | Ended]) -> Message | Ended | None:
    try:
        return said.get(timeout=INTERRUPTED_S)
    except queue.Empty:
        return None


def _end_json(ended: Ended, log: bytes) -> Message:
    stuck = ended.stuck_pid is not None
    return {"type": "ended", "reason": ended.reason, "value": ended.value, "error": ended.error, "stuck": stuck,
            "log": log}  # fmt: skip


def look() -> ProbedHost:
    """What this host can run, as kernels.host tells it. A task without a GPU may be told that it sees none."""
    from kernels.host import probe_host, to_json

    for name in SEES:
        if os.environ.get(name) == "":
            del os.environ[name]
    return to_json(probe_host())
