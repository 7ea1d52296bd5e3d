"""The children of one validation and what is known of each: asking, waiting, and taking answers in."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from kernels.measure.conditions import Conditions
from kernels.measure.gpu_lock import locked, open_lock, turn_alone
from kernels.measure.messages import Request
from kernels.measure.processes.poll import BudgetError, CancelledError, pump
from kernels.measure.processes.processes import Child
from kernels.measure.records import Record
from kernels.measure.request import Progress, SharedGpu, ValidationRequest

Result = TypeVar("Result")


class ChildPool:
    """Records by candidate, and the children of those that run. Every wait heeds the deadline and the cancellation.

    give_way: called while another measures on the GPU, to give up what is held of it for later.
    """

    def __init__(
        self,
        request: ValidationRequest,
        on_progress: Callable[[Progress], None] | None,
        cancelled: Callable[[], bool] | None,
        give_way: Callable[[], None],
    ) -> None:
        self.request = request
        self.limits = request.limits
        self.cancelled = cancelled or (lambda: False)
        self.give_way = give_way
        self.deadline = time.monotonic() + request.budget_s
        self.records: list[Record] = []
        self.children: dict[str, Child] = {}
        self.spare: list[Child] = []
        self.conditions: Conditions = {}
        self._on_progress = on_progress
        self._fraction = 0.0
        self._phase = ("plan", time.monotonic())

    def tell(self, phase: str, fraction: float, message: str, candidate: str | None = None) -> None:
        """Progress never runs backwards. Also keeps how long each phase took."""
        self._fraction = max(self._fraction, fraction)
        last, since = self._phase
        if phase != last:
            spent = self.conditions.setdefault("phases_s", {})
            spent[last] = round(time.monotonic() - since, 3)
            self._phase = (phase, time.monotonic())
        if self._on_progress is not None:
            self._on_progress(Progress(phase, candidate, self._fraction, message))

    def close(self) -> None:
        """End every child."""
        for child in [*self.children.values(), *self.spare]:
            child.release()

    def wait(
        self,
        children: Sequence[Child],
        until: float | None = None,
        on_change: Callable[[Child], None] | None = None,
    ) -> None:
        """Until none of them owes an answer. Raises CancelledError, BudgetError."""
        pump(children, min(self.deadline, until or self.deadline), self.cancelled, on_change, self.limits.log_bytes)

    def asked(self) -> list[Child]:
        return [c for c in self.children.values() if c.pending is not None]

    def alive(self) -> list[Record]:
        return [r for r in self.records if r.name in self.children and self.children[r.name].alive]

    def standing(self) -> list[Record]:
        """Correct so far and alive."""
        return [r for r in self.alive() if r.standing]

    def answer(self, record: Record, form: type[Result]) -> Result | None:
        """What the candidate's child answered last; None where it failed, which the record then says."""
        child = self.children[record.name]
        result = child.result(form)
        if child.failure is not None:
            record.fail(*child.failure)
        return result

    def guarded(self, record: Record, take: Callable[[Record], None]) -> None:
        """Take an answer in; one that does not fit together, such as too few outputs, fails the candidate."""
        try:
            take(record)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as fault:
            child = self.children[record.name]
            child.fail("bad_output", f"the process answered in another form than agreed: {fault!r}"[:300])
            record.fail(*(child.failure or ("bad_output", "")))

    def ask_one(self, record: Record, request: Request, form: type[Result]) -> Result | None:
        """One request with the GPU to itself, and its answer; None where the candidate failed at it."""
        child = self.children[record.name]
        child.ask(request, self.limits.turn_s)
        self.wait([child])
        return self.answer(record, form)

    @contextlib.contextmanager
    def exclusive_gpu(self, card: str) -> Iterator[None]:
        """One validation at a time on a GPU, over all processes of this user. card: its UUID, whatever its index here.

        Where no lock can be had (no place to write, a file system without locks) it is measured without, and said.
        """
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(open_lock(card))
                while not locked(file):
                    self._check()
                    time.sleep(0.1)
            except OSError as fault:
                self.conditions["unlocked"] = f"nothing kept other validations off this GPU meanwhile: {fault.strerror}"
            yield

    @contextlib.contextmanager
    def turn_alone(self, shared: SharedGpu | None) -> Iterator[None]:
        """The turn of those that share the GPU, held by this process for all its children. None: nobody shares it."""
        if shared is None:
            yield
            return
        started = time.monotonic()
        with turn_alone(shared.turn, self._check):
            self.conditions.setdefault("phases_s", {})["turn"] = round(time.monotonic() - started, 3)
            self._move(shared.cores)
            try:
                yield
            finally:
                self._move(sorted(os.sched_getaffinity(0)) if shared.cores else ())

    def _move(self, cores: Collection[int]) -> None:
        for child in self.children.values():
            move_to_cores(child.pid, cores)

    def _check(self) -> None:
        self.give_way()
        if self.cancelled():
            raise CancelledError
        if time.monotonic() > self.deadline:
            raise BudgetError


def move_to_cores(pid: int, cores: Collection[int]) -> None:
    """All threads of this process run on these cores from now on; where the system has no such call, or none are given,
    or it has ended, nothing changes."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        return
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), cores)
