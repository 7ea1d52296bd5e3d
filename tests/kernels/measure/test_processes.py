"""How a candidate's process ended is told by its status, whichever way its end is noticed."""

from __future__ import annotations

import os
import select
import signal

from kernels.measure.processes import Zygote


def test_one_that_is_asked_after_its_death_is_told_with_its_signal(zygote: Zygote) -> None:
    """The question meets a closed connection before anybody has read that it is closed."""
    child = zygote.fork("eager", "kernels.measure.worker")
    os.kill(child.pid, signal.SIGABRT)
    select.select([child.channel.end], [], [], 60.0)
    child.ask("point", 1.0)
    if child.alive:  # the system took the question for the one that was just gone
        child.read()
    assert child.failure is not None
    assert child.failure[0] == "fault" and "SIGABRT" in child.failure[1]
    child.release()
