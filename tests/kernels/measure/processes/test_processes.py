"""How a candidate's process ended is told by its status, whichever way its end is noticed."""

from __future__ import annotations

import os
import select
import signal
import socket

from kernels.measure.messages import Warm
from kernels.measure.processes.processes import ForkServer
from tests.processes import wait_for


def test_one_that_is_asked_after_its_death_is_told_with_its_signal(fork_server: ForkServer) -> None:
    """The question meets a closed connection before anybody has read that it is closed."""
    child = fork_server.fork("eager", "kernels.measure.candidate.worker")
    os.kill(child.pid, signal.SIGABRT)
    select.select([child.channel.end], [], [], 60.0)
    child.ask(Warm(1.0), 1.0)
    if child.alive:  # the system took the question for the one that was just gone
        child.read()
    assert child.failure is not None
    assert child.failure[0] == "fault" and "SIGABRT" in child.failure[1]
    child.release()


def test_two_that_end_at_once_are_both_told_with_their_signals(fork_server: ForkServer) -> None:
    """One read brings both ends: the second waits in no socket, so waiting for the socket missed it."""
    children = [fork_server.fork(name, "kernels.measure.candidate.worker") for name in ("eager", "compile")]
    for child in children:
        os.kill(child.pid, signal.SIGABRT)
    told = fork_server._channel.end
    wait_for(lambda: told.recv(65536, socket.MSG_PEEK).count(b'"exited"') >= 2)
    for child in children:
        child.read()
        assert child.failure is not None and "SIGABRT" in child.failure[1]
        child.release()
