"""Waiting for many children at once: answers, deaths, time limits, cancellation."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence

from kernels.measure.processes.processes import Child

POLL_S = 0.2  # how soon a cancellation or a time limit is seen


class CancelledError(Exception):
    """The caller asked to stop."""


class BudgetError(Exception):
    """The whole validation's time is used up."""


def pump(
    children: Sequence[Child],
    deadline: float,
    cancelled: Callable[[], bool] | None = None,
    on_change: Callable[[Child], None] | None = None,
    log_bytes: int = 64 * 1024,
) -> None:
    """Return when no child owes an answer. deadline: time.monotonic() of the whole.

    A child over its own limit fails with `timeout`; the others go on. Raises CancelledError or BudgetError.
    """
    waiting = [c for c in children if c.pending is not None]
    while waiting:
        if cancelled is not None and cancelled():
            raise CancelledError
        now = time.monotonic()
        if now > deadline:
            raise BudgetError
        least = min([POLL_S, deadline - now, *(c.remaining() for c in waiting)])
        ready, _, _ = select.select([c.channel.end for c in waiting], [], [], max(0.0, least))
        for child in waiting:
            if child.channel.end in ready:
                child.read()
            elif child.remaining() <= 0:
                what = f"; last it said: {child.note}" if child.note else ""
                child.fail("timeout", f"no answer in {child.limit_s:.3g} s{what}")
            child_log_check(child, log_bytes)
            if child.pending is None and on_change is not None:
                on_change(child)
        waiting = [c for c in waiting if c.pending is not None]


def child_log_check(child: Child, size: int) -> None:
    """Keep a chatty child's log bounded while it runs."""
    if child.alive:
        child.trim_log(size)
