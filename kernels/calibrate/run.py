"""Run: a calibration on this host's GPU, by workers that are started again behind the program that ended them.

What is unfinished lies in a folder: one that was interrupted goes on in it, and loses at most the program that each
worker was at.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kernels.calibrate import points
from kernels.calibrate.points import Conditions, Point
from kernels.calibrate.programs import KINDS, Kind
from kernels.calibrate.run_state import CalibrationError, RunState, alone_in, open_state
from kernels.calibrate.shares import Share, Work, divide
from kernels.host import Host
from kernels.measure import conditions
from kernels.measure.gpu_lock import locked, open_lock
from kernels.measure.request import cores
from profiler.child.limits import GIB, host_memory_bytes

WORKER = (sys.executable, "-m", "kernels.calibrate.worker")
GRACE_S = 45.0
"""For a program that is being compiled when the time is over."""
STUCK_S = 120.0
"""No worker has finished anything for so long: the GPU hangs at what one of them runs, and all are started again."""
LAST_START_S = 10.0
"""What is left when a worker is not started again: it would have imported torch, and nothing more."""
MOST_FAULTS = 3
"""Times that a worker ends without a point in between; then its families are given up."""
LOOK_EVERY_S = 5.0
"""Between two readings of the GPU's clocks and processes."""
TELL_EVERY_S = 30.0
MOST_WORKERS = 8
"""Of each kind: what fed the H100 and the H200 of the shipped recordings, on hosts of 16 cores."""
HOST_BYTES = 2 * GIB
"""Of the host's memory for a worker: a guess."""
GPU_BYTES = 1.5 * GIB
"""Of the GPU's memory that a worker keeps while others have their turn: its context, and a gigabyte of tensors."""
TURN_BYTES = 6 * GIB
"""Of the GPU's memory for the program that has its turn: inputs of a gigabyte, and what is made of them. A guess."""


@dataclass(frozen=True, slots=True)
class Progress:
    """points: finished ones by family. others: processes of others on the GPU, None where it cannot be told."""

    points: Mapping[str, int]
    seconds_left: float
    others: int | None


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told. progress: every half minute; say: what happened, as a sentence."""

    progress: Callable[[Progress], None]
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """One worker: its name and what it measures."""

    name: str
    shares: tuple[Share, ...]


def plans(counts: Mapping[Kind, int], families: Sequence[str] | None = None) -> list[Plan]:
    """So many workers of each kind; none of a kind that has none of these families. families: None for all."""
    made = []
    for kind, count in counts.items():
        shares = {f: share for f, share in KINDS[kind].items() if families is None or f in families}
        if shares and count:
            name = NAMES.get(kind, kind)
            made += [Plan(f"{name}-{n}", shares) for n, shares in enumerate(divide(shares, count))]
    return made


NAMES: Mapping[Kind, str] = {"compile": "fused", "max-autotune": "autotuned"}
"""Of workers, where that is not their kind."""


def workers_of_each_kind(processors: int, host_bytes: float, gpu_bytes: float) -> int:
    """How many workers of each kind a host has room for, at least one."""
    room = min(processors, host_bytes / HOST_BYTES, (gpu_bytes - TURN_BYTES) / GPU_BYTES)
    return max(1, min(MOST_WORKERS, int(room / 2)))


def workers_here(gpu_bytes: float) -> int:
    """The same of this host."""
    return workers_of_each_kind(cores(), host_memory_bytes(), gpu_bytes)


def measure(
    folder: Path,
    host: Host,
    minutes: float,
    wanted: Sequence[Plan],
    listener: Listener,
    worker: Sequence[str] | None = None,
) -> tuple[Conditions, list[Point]]:
    """Measure until the minutes are over, those that an interrupted run spent in the folder among them.

    worker: the command of a worker, in place of WORKER. CalibrationError where nothing can be measured; what interrupts
    it passes through, and leaves no worker behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder):
        state = open_state(folder, host)
        if state.seconds:
            listener.say(f"going on where it was stopped, after {state.seconds / 60:.1f} minutes")
        left_s = 60 * minutes - state.seconds
        if left_s > 0:
            with gpu_alone(listener.say):
                _Calibration(folder, state, listener, tuple(worker or WORKER)).run(wanted, time.time() + left_s)
        finished = points.finished(points.read_folder(folder))
        if not finished:
            state.seconds = 0.0  # once what was wrong is mended, there are as many minutes again
            state.save(folder)
    if not finished:
        raise CalibrationError(f"nothing was measured{_last_words(folder)}")
    return state.conditions(), finished


@contextmanager
def gpu_alone(say: Callable[[str], None]) -> Iterator[None]:
    """This program's other measurements wait meanwhile, as this one waits for them."""
    try:
        file = open_lock(conditions.card_of() or "0")
    except OSError as fault:
        say(f"nothing keeps other validations off this GPU meanwhile: {fault.strerror}")
        yield
        return
    with file:
        if not locked(file):
            say("waiting for a validation that has the GPU")
            while not locked(file):
                time.sleep(0.2)
        yield


@dataclass
class _Worker:
    """One process. finished: points that its file had when it was started."""

    process: subprocess.Popen[bytes]
    finished: int
    faults: int

    def close(self) -> int:
        """Wait for its end; its exit status."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        return self.process.wait()


@dataclass
class _Calibration:
    """The workers of one run."""

    folder: Path
    state: RunState
    listener: Listener
    command: tuple[str, ...]
    running: dict[Plan, _Worker] = field(default_factory=dict)
    started: float = field(default_factory=time.time)

    def run(self, wanted: Sequence[Plan], until: float) -> None:
        """All workers until that Unix time."""
        self._look(time.time())
        spent_before, began = self.state.seconds, time.time()
        looked = told = began
        try:
            for plan in wanted:
                self._start(plan, until, faults=0)
            while self.running:
                time.sleep(0.2)
                now = time.time()
                for plan in list(self.running):
                    self._attend(plan, until, now)
                self._unstick(now)
                if now > looked + LOOK_EVERY_S:
                    looked = now
                    self.state.seconds = spent_before + min(now, until) - began
                    self._look(now)
                if now > told + TELL_EVERY_S:
                    told = now
                    self.listener.progress(self._progress(until - now))
        finally:
            for worker in self.running.values():
                worker.process.kill()
            for worker in self.running.values():
                worker.close()
            self.state.seconds = spent_before + min(time.time(), until) - began
            self.state.save(self.folder)

    def _start(self, plan: Plan, until: float, faults: int) -> None:
        """A worker, which appends to the folder's file of its name. Ctrl-C does not come to it, but to us."""
        file = self.folder / f"{plan.name}.jsonl"
        work = Work(plan.shares, until, str(file), str(self.folder / "turn.lock"))
        with (self.folder / f"{plan.name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*self.command, msgspec.json.encode(work).decode()],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.started = time.time()
        self.running[plan] = _Worker(process, self._finished(plan), faults)

    def _finished(self, plan: Plan) -> int:
        return sum("failed" not in point for point in points.read(self.folder / f"{plan.name}.jsonl"))

    def _attend(self, plan: Plan, until: float, now: float) -> None:
        """Start one again that ended before its time; end one that goes on behind it."""
        worker = self.running[plan]
        if worker.process.poll() is None:
            if now > until + GRACE_S:
                worker.process.kill()
            return
        del self.running[plan]
        status = worker.close()
        if not status or now > until - LAST_START_S:
            return
        faults = 1 + (worker.faults if self._finished(plan) == worker.finished else 0)
        if faults == MOST_FAULTS:
            families = ", ".join(share.family for share in plan.shares)
            self.listener.say(f"{plan.name} ended {faults} times ({status}) and is given up: {families}")
            return
        self.listener.say(f"{plan.name} ended with {status} and goes on behind the program that ended it")
        self._start(plan, until, faults)

    def _unstick(self, now: float) -> None:
        """All workers are ended where none has written anything for long: `_attend` starts them again."""
        written = [path.stat().st_mtime for path in self.folder.glob("*.jsonl")]
        if self.running and now > max(self.started, *written, 0.0) + STUCK_S:
            self.listener.say(f"no worker has finished anything for {STUCK_S:.0f} s: all are started again")
            self.started = now
            for worker in self.running.values():
                worker.process.kill()

    def _look(self, now: float) -> None:
        """Read clocks, and who else is on the GPU; keep the time that was spent."""
        pids = [worker.process.pid for worker in self.running.values()]
        reading = conditions.read(ours=pids)
        if pids:
            self.state.note_clocks(reading)
        count = reading.get("other_processes")
        just_started = bool(pids) and now < self.started + LOOK_EVERY_S  # a worker that ended may still be listed
        if count is not None and not just_started and self.state.note_others(count):
            them = "another process is" if count == 1 else f"{count} other processes are"
            self.listener.say(f"{them} on this GPU: times may be too long, and the file will say so")
        self.state.save(self.folder)

    def _progress(self, seconds_left: float) -> Progress:
        counted = Counter(p["family"] for p in points.finished(points.read_folder(self.folder)))
        return Progress(counted, max(0.0, seconds_left), self.state.others)


def _last_words(folder: Path) -> str:
    """The last line of a worker's log, for a message."""
    for path in sorted(folder.glob("*.log")):
        lines = path.read_text(errors="replace").strip().splitlines()
        if lines:
            return f": {path.name} ends with {lines[-1][:300]!r}"
    return ""
