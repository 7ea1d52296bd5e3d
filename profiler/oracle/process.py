"""Oracle: asks the oracle's process, with a time limit. Torch-free; any number of threads may ask.

One question at a time: Inductor is one pipeline. A process that hangs, dies or exceeds its limits costs one answer,
which then says why; the next question starts another. An answer that comes too late for its caller is read by the next.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from profiler.child.limits import GIB, Limits, host_memory_bytes, impose, over_cpu
from profiler.child.lines import BrokenChildError, LineChild
from profiler.child.process import FD, FORK, Process, kill_tree
from profiler.child.template import Template
from profiler.hardware import Device
from profiler.oracle.cache import Cache
from profiler.oracle.model import Prediction, Recompiles
from profiler.oracle.serialization import (
    Json,
    MachineQuestion,
    PredictQuestion,
    Question,
    RecompilesQuestion,
    from_dict,
    recompiles_from_dict,
)

log = logging.getLogger("tritonworthy.oracle")

ROOT = Path(__file__).resolve().parent.parent.parent
WAITING_CAP = 8
"""Questions that wait for the one process, or have it; more are refused at once."""

QUESTIONS_PER_PROCESS = 500
"""After so many a fresh process: torch keeps something of every graph. The old one answers until the new one is up."""
START_S = 60.0
"""Longest start: importing torch and Inductor, and one question to warm up."""
CPU_S = 60.0
"""Processor time of one question: what takes more is not late, it would never come."""
TICK_S = 0.25


class UnansweredError(Exception):
    """No answer, with the reason."""


class _DiedError(Exception):
    """The process ended or sent something that is no answer."""


class _LostError(_DiedError):
    """The process ended in the middle of a question, and not for the processor time that this takes."""


class _LateError(Exception):
    """The time is over."""


@dataclass(slots=True)
class _Child:
    line: LineChild
    questions: int = 0
    ready: bool = False
    messages: deque[object] = field(default_factory=deque)
    unfinished: tuple[Question, float] | None = None  # a question whose caller left, and until when it may take
    started: float = field(default_factory=time.monotonic)

    @property
    def process(self) -> Process:
        return self.line.process


@dataclass(slots=True)
class Oracle:
    """predict() for a region's text. cache: where answers are kept, None for nowhere. timeout_s: of one question.

    gpu: regions are compiled for real, on this host's GPU, whichever device is named; nothing else may measure there
    meanwhile. Such answers are not kept. template: what the process is forked from, by the word "oracle"; None: it is
    started by a command, and imports torch itself. cpu_s, memory_bytes: of one question, not on a GPU. niceness: of the
    process, so that others have the processor first. retries: how often a question is asked again whose process was
    lost; by default whoever asked hears of it at once. interpreter, packages: whose torch is asked, and what it is
    given as PYTHONPATH, see `environment`; a cache is of this process's versions, and does not go with another's.
    """

    cache: Cache | None = None
    timeout_s: float = 20.0
    gpu: bool = False
    template: Template | None = None
    cpu_s: float = CPU_S
    memory_bytes: int = field(default_factory=lambda: min(12 * GIB, host_memory_bytes() // 4))
    niceness: int = 0
    retries: int = 0
    interpreter: Path = field(default_factory=lambda: Path(sys.executable))
    packages: str = field(default_factory=lambda: _own_packages())
    _child: _Child | None = None
    _next: _Child | None = None  # what takes over from _child
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(WAITING_CAP))
    _stopped: threading.Event = field(default_factory=threading.Event)
    _unkillable: list[Process] = field(default_factory=list)  # that did not end when they were killed

    def start(self) -> None:
        """Begin to start the process, without waiting for it."""
        self._stopped.clear()
        if self.template is not None and not self.template.ready:
            threading.Thread(target=self._begin, name="oracle", daemon=True).start()
        elif self._lock.acquire(blocking=False):
            try:
                self._running(time.monotonic() + START_S)
            finally:
                self._lock.release()

    def wait_ready(self, timeout_s: float = START_S) -> bool:
        """Start the process where there is none; whether it takes a question by then."""
        with self._lock:
            try:
                self._ready(time.monotonic() + timeout_s)
            except (_LateError, _DiedError) as fault:
                log.warning("the oracle's process is not ready: %s", fault)
                return False
            return True

    def _begin(self) -> None:
        """Once there is a template; whoever asks before that waits for it as well."""
        deadline = time.monotonic() + START_S
        try:
            self._wait_for_template(deadline)
            with self._lock:
                self._running(deadline)
        except (_LateError, _DiedError) as fault:
            log.warning("the oracle's process was not started: %s", fault)

    def stop(self) -> None:
        """End the process, in the middle of a question if there is one."""
        self._stopped.set()
        for child in (self._child, self._next):
            if child is not None:
                kill_tree(child.process)  # whoever waits for its answer fails at once, and frees the lock
        with self._lock:
            self._end()
            self._child, self._next = self._next, None
            self._end()

    def stuck(self) -> list[int]:
        """Processes that were killed and do not end: they hang in the kernel, and keep their memory."""
        for process in [p for p in self._unkillable if p.poll() is not None]:
            self._unkillable.remove(process)
        return [process.pid for process in self._unkillable]

    def cached(
        self, text: str, device: Device, mode: str = "default", binding: Mapping[str, int] | None = None
    ) -> Prediction | None:
        """The answer where it was given before; no process is asked."""
        answer = self._look_up(_predict_question(text, device, mode, binding))
        return None if answer is None else from_dict(answer)

    def cached_recompiles(self, text: str, device: Device, bindings: Sequence[Mapping[str, int]]) -> Recompiles | None:
        """The same for how these sizes are met."""
        answer = self._look_up(_recompiles_question(text, device, bindings))
        return None if answer is None else recompiles_from_dict(answer)

    def predict(
        self,
        text: str,
        device: Device,
        mode: str = "default",
        binding: Mapping[str, int] | None = None,
        timeout_s: float | None = None,
    ) -> Prediction:
        """What torch.compile makes of the region. Never raises: `unavailable` says why there is no answer.

        text: canonical. timeout_s: of waiting and asking together; a start of the process counts.
        """
        try:
            return from_dict(self._ask_and_keep(_predict_question(text, device, mode, binding), timeout_s))
        except UnansweredError as fault:
            return Prediction(device.name, mode, dict(binding or {}), False, unavailable=str(fault))

    def recompiles(
        self, text: str, device: Device, bindings: Sequence[Mapping[str, int]], timeout_s: float | None = None
    ) -> Recompiles:
        """How torch.compile meets these sizes, one after the other. Raises UnansweredError with the reason."""
        return recompiles_from_dict(self._ask_and_keep(_recompiles_question(text, device, bindings), timeout_s))

    def machine(self, source: str, name: str, arch: str, timeout_s: float | None = None) -> Json:
        """What Triton's compiler makes of a kernel that Inductor wrote, for "sm_90": `Machine.to_dict` and `findings`.

        source: of an OracleKernel, never a user's. Raises UnansweredError with the reason.
        """
        return self._ask_and_keep(MachineQuestion(source, name, arch), timeout_s)

    def _look_up(self, question: Question) -> Json | None:
        return self.cache.get(msgspec.to_builtins(question)) if self.cache and not self.gpu else None

    def _ask_and_keep(self, question: Question, timeout_s: float | None) -> Json:
        """The answer, from the cache where it was given before. Raises UnansweredError."""
        cached = self._look_up(question)
        if cached is not None:
            return cached
        answer = self._wait(question, timeout_s or self.timeout_s)
        if "error" in answer:
            raise UnansweredError(str(answer["error"]))
        return answer

    def _wait(self, question: Question, limit: float) -> Json:
        """One question to the process, when it is free. Raises UnansweredError."""
        deadline = time.monotonic() + limit
        if not self._waiting.acquire(blocking=False):  # they would hold all threads that answer requests
            raise UnansweredError("too many questions are waiting for the oracle")
        try:
            if not self._lock.acquire(timeout=limit):
                raise UnansweredError(f"the oracle was busy for {limit:g} s")
            try:
                return self._ask_patiently(question, deadline)
            except _LateError:
                raise UnansweredError(f"no answer within {limit:g} s") from None
            except _DiedError as fault:
                raise UnansweredError(str(fault)) from None
            finally:
                self._lock.release()
        finally:
            self._waiting.release()

    def _ask_patiently(self, question: Question, deadline: float) -> Json:
        """Once more where the process was lost, as often as `retries` says."""
        for _ in range(self.retries):
            with contextlib.suppress(_LostError):
                return self._ask(question, deadline)
        return self._ask(question, deadline)

    def _ask(self, question: Question, deadline: float) -> Json:
        """Write, and read the answer. One that comes too late for its caller is kept for the next one who asks."""
        child = self._ready(deadline)
        child.questions += 1
        started = time.monotonic()
        try:
            self._limit(child)
            child.line.send(msgspec.to_builtins(question))
            try:
                answer = self._read(child, deadline)
            except _LateError:
                child.unfinished = (question, started + self.timeout_s)
                self._end_if_hanging(child)
                raise
        except _DiedError:
            self._end()
            raise
        self._keep(question, answer)
        if answer.get("code") == "oracle-memory":
            self._end()  # it is full of what it could not finish
        return answer

    def _limit(self, child: _Child) -> None:
        """Of the question that it is sent next; what CUDA takes is not ours to count."""
        if not self.gpu:
            impose(child.line.pid, Limits(self.timeout_s, 0.0, self.memory_bytes, self.cpu_s))

    def _ready(self, deadline: float) -> _Child:
        """A process that waits for a question. What a process does wrong with the last one costs this one a start."""
        child = self._running(deadline)
        try:
            self._awake(child, deadline)
            self._collect(child, deadline)
        except _DiedError:
            self._end()
            child = self._running(deadline)
            self._awake(child, deadline)
        return child

    def _awake(self, child: _Child, deadline: float) -> None:
        if child.ready:
            return
        try:
            if "ready" not in self._read(child, min(deadline, child.started + START_S)):
                raise _DiedError("the oracle's process did not start")
        except _LateError:
            if time.monotonic() >= child.started + START_S:
                self._end()
            raise
        child.ready = True

    def _collect(self, child: _Child, deadline: float) -> None:
        """Read the answer to a question whose caller did not wait for it. Raises _DiedError where it hangs."""
        if child.unfinished is None:
            return
        question, until = child.unfinished
        try:
            answer = self._read(child, min(deadline, until))
        except _LateError:
            if time.monotonic() >= until:
                raise _DiedError("the oracle's process hung") from None
            raise
        child.unfinished = None
        self._keep(question, answer)

    def _end_if_hanging(self, child: _Child) -> None:
        if child.unfinished is not None and time.monotonic() >= child.unfinished[1]:
            self._end()

    def _keep(self, question: Question, answer: Json) -> None:
        """Into the cache, unless it is no answer, or one of a real compile."""
        if self.cache and not self.gpu and "error" not in answer and not answer.get("unavailable"):
            self.cache.put(msgspec.to_builtins(question), answer)

    def _running(self, deadline: float) -> _Child:
        if self._child and self._child.process.poll() is not None:
            self._end()
        if self._child and self._child.questions >= QUESTIONS_PER_PROCESS:
            self._relieve(self._child, deadline)
        if self._child is None:
            self._child, self._next = self._next or self._start(deadline), None
        return self._child

    def _relieve(self, child: _Child, deadline: float) -> None:
        """Begin to start the one that takes over; end this one when that is up, or when it has answered twice as many.

        On a GPU there is no second process: what it measures there would be disturbed.
        """
        if self.gpu or child.questions >= 2 * QUESTIONS_PER_PROCESS:
            self._end()
        elif self._next is None:
            self._next = self._start(deadline)
        elif child.unfinished is None and _has_message(self._next):
            self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if not child.line.end():
            self._unkillable.append(child.process)
        child.line.close()

    def _wait_for_template(self, deadline: float) -> None:
        """Until a fork takes no time. Raises _LateError, and _DiedError where there will be none."""
        if self.template is None:
            return
        self.template.start()
        while not self.template.wait_ready(min(TICK_S, max(0.0, deadline - time.monotonic()))):
            self._unless_stopped()
            if self.template.stopped:
                raise _DiedError("the oracle stops")
            if time.monotonic() >= deadline:
                raise _LateError

    def _start(self, deadline: float) -> _Child:
        """It sees no GPU unless it compiles for one, uses one core, and ends with its parent."""
        self._wait_for_template(deadline)
        self._unless_stopped()
        hidden = {} if self.gpu else {"CUDA_VISIBLE_DEVICES": ""}
        added = {**hidden, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        more = ["--gpu"] if self.gpu else []
        try:
            if self.template is not None:
                command = [FORK, "oracle", FD, *more]
                return self._made(LineChild(command, log=None, environment=added, template=self.template))
            added["PYTHONPATH"] = self.packages
            command = [str(self.interpreter), "-m", "profiler.oracle.server", FD, *more]
            return self._made(LineChild(command, log=None, environment=added))
        except OSError as fault:
            raise _DiedError(f"the oracle's process could not be started: {fault}") from fault

    def _made(self, line: LineChild) -> _Child:
        if self.niceness:
            with contextlib.suppress(OSError):  # it has ended already, which the first question notices
                os.setpriority(os.PRIO_PROCESS, line.pid, self.niceness)
        return _Child(line)

    def _read(self, child: _Child, deadline: float) -> Json:
        """The next line. Raises _LateError at the deadline, _DiedError where the process ended or spoke no JSON."""
        late = False
        while not child.messages:
            if late:
                raise _LateError
            self._unless_stopped()
            try:
                # At least one read: what was sent already is never late.
                child.messages += child.line.exchange(max(0.0, min(TICK_S, deadline - time.monotonic())))
                if not child.messages and child.line.poll() is not None:
                    child.messages += child.line.rest()
                    if not child.messages:
                        raise self._end_error(child.line.poll() or 0)
            except BrokenChildError as fault:
                raise _DiedError("the oracle's process said something that is no answer") from fault
            late = time.monotonic() >= deadline
        answer = child.messages.popleft()
        if not isinstance(answer, dict):
            raise _DiedError("the oracle's process said something that is no answer")
        return answer

    def _unless_stopped(self) -> None:
        """Who began to start a process when `stop` had killed the one before must not be waited for."""
        if self._stopped.is_set():
            raise _DiedError("the oracle stops")

    def _end_error(self, status: int) -> _DiedError:
        if over_cpu(status):
            return _DiedError(f"the oracle was stopped: this takes more than {self.cpu_s:g} s of processor time")
        return _LostError(f"the oracle's process ended ({_exit(status)})")


def _own_packages() -> str:
    """Where this process finds the package, then what its environment names."""
    return os.pathsep.join(path for path in (str(ROOT), os.environ.get("PYTHONPATH", "")) if path)


def _has_message(child: _Child) -> bool:
    """Whether there is something to read: that it is ready, or its end."""
    try:
        child.messages += child.line.exchange(0.0)
    except BrokenChildError:
        return True
    return bool(child.messages) or child.line.poll() is not None


def _predict_question(text: str, device: Device, mode: str, binding: Mapping[str, int] | None) -> PredictQuestion:
    return PredictQuestion(text, device, mode, dict(binding) if binding else None)


def _recompiles_question(text: str, device: Device, bindings: Sequence[Mapping[str, int]]) -> RecompilesQuestion:
    return RecompilesQuestion(text, device, [dict(b) for b in bindings])


def _exit(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
