"""Limits of time for tests: what must answer has long ones, so that a busy machine fails nothing, and what is known to
hang has a short one, so that nobody waits for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest

from kernels.measure.processes.processes import Child

ANSWER_S = 200.0
"""For an answer that is bound to come; under pytest's own limit, which would end the whole run of tests."""

HANG_S = 2.0


@contextlib.contextmanager
def short_for(hangs: Callable[[Child, str, Mapping[str, Any]], bool]) -> Iterator[None]:
    """Until the block ends a command that hangs(child, command, arguments) names has HANG_S, whatever was asked for."""
    ask = Child.ask

    def asked(child: Child, command: str, limit_s: float, **arguments: Any) -> None:
        ask(child, command, HANG_S if hangs(child, command, arguments) else limit_s, **arguments)

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
