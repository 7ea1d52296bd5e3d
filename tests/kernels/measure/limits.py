"""Limits of time for tests: what must answer has long ones, so that a busy machine fails nothing, and what is known to
hang has a short one, so that nobody waits for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from kernels.measure.messages import Request
from kernels.measure.processes.processes import Child

ANSWER_S = 200.0
"""For an answer that is bound to come; under pytest's own limit, which would end the whole run of tests."""

HANG_S = 2.0


@contextlib.contextmanager
def short_for(hangs: Callable[[Child, Request], bool]) -> Iterator[None]:
    """Until the block ends a request that hangs(child, request) names has HANG_S, whatever was asked for."""
    ask = Child.ask

    def asked(child: Child, request: Request, limit_s: float) -> None:
        ask(child, request, HANG_S if hangs(child, request) else limit_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Child, "ask", asked)
        yield


class Clock:
    """In the place of a module's `time`: the host's clock, and what the test lets pass. held: it stands still."""

    def __init__(self, held: bool = False) -> None:
        self.passed_s = 0.0
        self._held_at = time.monotonic() if held else None

    def monotonic(self) -> float:
        return (time.monotonic() if self._held_at is None else self._held_at) + self.passed_s


@contextlib.contextmanager
def clock_of(module: ModuleType, clock: Clock) -> Iterator[Clock]:
    """The module goes by this clock until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        yield clock
