"""The turn on the GPU: one child at a time, waiting is told, a killed child frees it."""

from __future__ import annotations

import fcntl
import select
import socket
import subprocess
import sys
import threading
import time

import pytest

from kernels.measure.gpu_lock import turn_alone
from kernels.measure.processes.channel import Channel
from kernels.measure.processes.poll import pump
from kernels.measure.turn import Turn, _held_while_tuning
from tests.kernels.measure.guarded import Look
from tests.kernels.measure.limits import ANSWER_S

HOLDER = """
import fcntl, sys
with open(sys.argv[1], "a") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "turn")


@pytest.fixture
def mine(path):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        turn = Turn(path, Channel(theirs))
        yield turn, Channel(ours)
        turn.close()


def holder(path):
    """A process that has the turn until its input is closed."""
    command = [sys.executable, "-c", HOLDER, path]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_child_waits_and_says_so(path, mine):
    turn, heard = mine
    events = []
    with holder(path) as other:

        def free_it_once_somebody_waits():
            events.append((heard.receive(), is_free(path)))
            other.stdin.close()

        listener = threading.Thread(target=free_it_once_somebody_waits)
        listener.start()
        with turn():
            assert not is_free(path)
        listener.join()
        other.wait()
    assert events == [({"event": "waiting"}, False)]
    assert heard.receive() == {"event": "running"}


SHARERS = """
import socket, sys, time
from kernels.measure.processes.channel import Channel
from kernels.measure.turn import Turn
turn = Turn(sys.argv[1], Channel(socket.socketpair()[0]))
print("ready", flush=True)
while True:
    with turn(shared=True):
        time.sleep(0.05)
"""


def test_one_that_would_be_alone_gets_its_turn_among_many_that_share(path, mine):
    """Two that share overlap without end: by the lock alone, the third waits for a gap that never comes."""
    turn, _ = mine
    command = [sys.executable, "-c", SHARERS, path]
    sharers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        assert [s.stdout.readline() for s in sharers] == ["ready\n"] * 3
        for _ in range(5):
            with turn():
                assert not is_free(path)
        assert turn.waited_s < ANSWER_S
        with turn_alone(path, lambda: None):
            assert not is_free(path)
    finally:
        for sharer in sharers:
            sharer.kill()
            sharer.communicate()


def test_a_wait_for_the_turn_that_is_given_up_leaves_it_to_others(path):
    def stop():
        raise TimeoutError

    with holder(path) as other:
        with pytest.raises(TimeoutError), turn_alone(path, stop, every_s=0.01):
            raise AssertionError("another has it")
        other.stdin.close()
        other.wait()
    with turn_alone(path, lambda: None):  # the given-up wait got it meanwhile, and let it go
        assert not is_free(path)
    assert is_free(path)


def test_a_killed_child_frees_the_turn(path, mine):
    turn, heard = mine
    with holder(path) as other:
        other.kill()
    with turn(), turn():  # re-entrant
        assert not is_free(path)
    assert select.select([heard.end], [], [], 0.0)[0] == []  # it did not wait, or it would have said so


def test_benchmarks_of_inductor_and_triton_take_their_turn(fork_server, path):
    child = fork_server.fork("guarded", "tests.kernels.measure.guarded")
    child.ask(Look(path), ANSWER_S)
    pump([child], time.monotonic() + ANSWER_S)
    assert child.result(list[bool]) == [True, True, True, True], child.failure
    child.release()


class Tuner:
    """The form of Triton's Autotuner: run benchmarks each configuration once, then launches."""

    def __init__(self, seen, free):
        self.seen, self.free, self.best = seen, free, None

    def _bench(self, config):
        self.seen.append(("bench", self.free()))
        return config

    def run(self):
        if self.best is None:
            timings = []
            for config in (3, 1, 2):
                timings.append(self._bench(config))
                self.seen.append(("between", self.free()))
            self.best = min(timings)
        self.seen.append(("launch", self.free()))
        return self.best


def is_free(path):
    with open(path, "a") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def guarded(turn):
    kind = type("Guarded", (Tuner,), {"run": Tuner.run, "_bench": Tuner._bench})
    _held_while_tuning(kind, turn)
    return kind


def test_all_configurations_are_compared_in_one_turn(path, mine):
    seen = []
    tuner = guarded(mine[0])(seen, lambda: is_free(path))
    assert tuner.run() == 1
    assert [held for name, held in seen if name in ("bench", "between")] == [False] * 6
    assert is_free(path)  # given back at the end of the call
    seen.clear()
    assert tuner.run() == 1
    assert seen == [("launch", True)]  # a tuned call takes no turn


def test_a_tuner_with_its_own_run_gives_each_turn_back(path, mine):
    """FlagGems' LibTuner is one: it kept the GPU from all other candidates until its process ended."""
    seen = []
    own = type("Own", (guarded(mine[0]),), {"run": lambda self: Tuner.run(self)})
    assert own(seen, lambda: is_free(path)).run() == 1
    assert [free for name, free in seen if name == "bench"] == [False] * 3
    assert [free for name, free in seen if name == "between"] == [True] * 3
    assert is_free(path)


class Config:
    """The form of triton.Config."""

    def __init__(self, block):
        self.block = block

    def all_kwargs(self):
        return {"BLOCK": self.block}


class Compiling(Tuner):
    """With a kernel that is compiled at its first use, as Triton's are."""

    def __init__(self, seen, free):
        super().__init__(seen, free)
        self.fn = self
        self.compiled = []

    def prune_configs(self, meta):
        return [Config(block) for block in (3, 1, 2)]

    def _bench(self, config, grid):
        if config.block not in self.compiled:
            self.seen.append(("late", self.free()))
        return super()._bench(config).block

    def run(self, **meta):
        if meta.pop("warmup", False):
            self.compiled.append(meta["BLOCK"])
            self.seen.append(("compile", self.free()))
            return None
        self.best = min(self._bench(config=config, **meta) for config in self.prune_configs(meta))
        return self.best


def test_configurations_are_compiled_before_the_turn_is_taken(path, mine):
    seen = []
    kind = type("Guarded", (Compiling,), {"run": Compiling.run, "_bench": Compiling._bench})
    _held_while_tuning(kind, mine[0])
    assert kind(seen, lambda: is_free(path)).run(grid=(1,)) == 1
    assert seen == [("compile", True)] * 3 + [("bench", False)] * 3


def test_checks_go_side_by_side_and_never_beside_one_that_tunes(path, mine):
    turn, _ = mine
    theirs, far = socket.socketpair()
    with theirs, far:
        other = Turn(path, Channel(theirs))
        with turn(shared=True), other(shared=True):
            pass
        with turn(shared=True), turn():  # a candidate that tunes while it is checked
            assert not free_for(path, fcntl.LOCK_SH)
        with turn(), turn(shared=True):
            assert not free_for(path, fcntl.LOCK_SH)
        with turn(shared=True):
            assert free_for(path, fcntl.LOCK_SH) and not free_for(path, fcntl.LOCK_EX)
        assert free_for(path, fcntl.LOCK_EX)
        other.close()


def test_what_fails_in_a_crowd_keeps_its_turn_until_it_has_ended(path, mine):
    turn, _ = mine
    with pytest.raises(MemoryError), turn(to_the_end=True):
        raise MemoryError
    assert not free_for(path, fcntl.LOCK_EX)
    turn.close()
    assert free_for(path, fcntl.LOCK_EX)


def free_for(path, kind):
    with open(path) as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
