"""Whatever a child of the pool does, its caller is told what it was, and the next is answered."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from profiler.child import pool as module
from profiler.child.limits import MIB, Limits
from profiler.child.lines import LineChild
from profiler.child.pool import FailedError, Failure, Pool
from profiler.child.process import FD
from profiler.child.template import Template
from tests.conftest import ROOT
from tests.processes import alive, wait_for
from tests.profiler.child.conftest import WORK

LIMITS = Limits(timeout_s=60.0, grace_s=0.0, memory_bytes=64 * MIB, cpu_s=30.0)

Make = Callable[..., Pool]


@pytest.fixture
def make(template: Template) -> Iterator[Make]:
    """Pools that have their children."""
    with ExitStack() as made:

        def pool(**more: Any) -> Pool:
            given = {"size": 2, "limits": LIMITS, "waiting_cap": 8, "wait_s": 60.0, "template": template} | more
            found = Pool(given.pop("template"), ["serve", FD], **given)
            made.callback(found.stop)
            found.start()
            wait_for(lambda: len(found.idle) == found.size)
            return found

        yield pool


class Asking(threading.Thread):
    """One who asks, and what became of it."""

    def __init__(self, pool: Pool, who: str | None = None, **request: Any) -> None:
        super().__init__(daemon=True)
        self.pool, self.who, self.request = pool, who, request
        self.answer: Any = None
        self.failure: Failure | None = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self.pool.ask(self.request, who=self.who)
        except FailedError as failed:
            self.failure = failed.failure

    def end(self) -> Any:
        self.join(60)
        assert not self.is_alive()
        return self.failure or self.answer


def busy(pool: Pool, number: int) -> None:
    wait_for(lambda: len(pool.busy) == number)


def failure(pool: Pool, **request: Any) -> Failure:
    with pytest.raises(FailedError) as failed:
        pool.ask(request)
    return failed.value.failure


def let_go(pool: Pool) -> None:
    """End whoever is asked to hang."""
    for member in list(pool.busy):
        os.kill(member.child.pid, signal.SIGABRT)


@pytest.mark.parametrize(
    ("request_", "limits", "told"),
    [
        ({"do": "hang"}, {"timeout_s": 0.3}, Failure.TIMEOUT),
        ({"do": "spin"}, {"cpu_s": 1.0}, Failure.CPU),
        ({"do": "die", "signal": int(signal.SIGSEGV)}, {}, Failure.CRASHED),
        ({"do": "die", "signal": int(signal.SIGKILL)}, {}, Failure.KILLED),
        ({"do": "leave", "status": 0}, {}, Failure.CRASHED),
        ({"do": "raw", "text": "no json"}, {}, Failure.CRASHED),
        ({"do": "raw", "text": '{"one": 1}\n{"too": "many"}'}, {}, Failure.CRASHED),
    ],
)
def test_why_there_is_no_answer_is_told_and_the_next_is_answered(
    make: Make, request_: dict[str, Any], limits: dict[str, float], told: Failure
) -> None:
    pool = make(size=1)
    first = pool.ask({})["pid"]
    with pytest.raises(FailedError) as failed:
        pool.ask(request_, limits=Limits(**{"timeout_s": 60.0, "cpu_s": 30.0, **limits}))
    assert failed.value.failure is told
    assert pool.ask({"n": 2})["n"] == 2
    assert not alive(first)
    assert pool.ended == {told: 1}


def test_memory_is_the_childs_to_tell_and_bounded(make: Make) -> None:
    pool = make(size=1)
    assert pool.ask({"do": "eat", "bytes": 32 * MIB})["pid"]
    assert pool.ask({"do": "eat", "bytes": 200 * MIB}) == {"error": "memory"}


def test_a_child_that_keeps_memory_is_replaced_and_each_request_has_its_whole_measure(make: Make) -> None:
    pool = make(size=1)
    for _ in range(4):
        assert pool.ask({"do": "eat", "bytes": 40 * MIB, "keep": True}).get("pid")
    assert pool.forks > 2


def test_who_is_killed_from_outside_in_mid_work_is_answered_by_another(make: Make, tmp_path: Path) -> None:
    pool = make()
    answer = pool.ask({"do": "die-once", "signal": int(signal.SIGKILL), "mark": str(tmp_path / "mark")})
    assert alive(answer["pid"])
    assert not pool.ended


def test_a_child_that_died_while_nobody_asked_costs_nobody_an_answer(make: Make) -> None:
    pool = make()
    for signum in (signal.SIGKILL, signal.SIGSEGV):
        with pool.changed:  # the keeper is not to see it first
            pids = [m.child.pid for m in pool.idle]
            for member in pool.idle:
                os.kill(member.child.pid, signum)
            for member in pool.idle:
                member.child.process.wait(20)
        assert pool.ask({"n": 1})["pid"] not in pids
        wait_for(lambda: len(pool.idle) == 2)


def test_the_templates_death_costs_nobody_an_answer(own_pool_template: Template, make: Make, tmp_path: Path) -> None:
    pool = make(template=own_pool_template)
    assert own_pool_template.life is not None
    asking = Asking(pool, do="die-once", signal=int(signal.SIGSTOP), mark=str(tmp_path / "mark"))
    wait_for((tmp_path / "mark").exists)
    os.kill(own_pool_template.life.process.pid, signal.SIGKILL)
    assert alive(asking.end()["pid"])


@pytest.fixture
def own_pool_template() -> Iterator[Template]:
    made = Template(WORK, cwd=ROOT)
    yield made
    made.stop()


def test_questions_wait_in_turn_and_no_more_than_may(make: Make) -> None:
    pool = make(size=1, waiting_cap=3)
    hanging = Asking(pool, do="hang")
    busy(pool, 1)
    order: list[int] = []
    waiting = []
    for number in range(3):
        waiting.append(InTurn(pool, order, number))
        wait_for(lambda number=number: len(pool.waiting) == number + 1)
    assert failure(pool, n=9) is Failure.QUEUE_FULL
    let_go(pool)
    assert hanging.end() is Failure.CRASHED
    for one in waiting:
        one.end()
    assert order == [0, 1, 2]
    assert pool.ask({"n": 9})["n"] == 9


class InTurn(Asking):
    """Notes when it was its turn."""

    def __init__(self, pool: Pool, order: list[int], number: int) -> None:
        self.order, self.number = order, number
        super().__init__(pool, n=number)

    def run(self) -> None:
        super().run()
        self.order.append(self.number)


def test_who_waits_too_long_is_told_so(make: Make) -> None:
    pool = make(size=1, wait_s=0.2)
    hanging = Asking(pool, do="hang")
    busy(pool, 1)
    assert failure(pool, n=1) is Failure.WAITED
    let_go(pool)
    hanging.end()


def test_one_client_leaves_a_child_and_places_to_others(make: Make) -> None:
    pool = make(size=2, waiting_cap=8)
    hanging = [Asking(pool, "one", do="hang")]
    busy(pool, 1)
    waiting = [Asking(pool, "one", n=n) for n in range(4)]
    wait_for(lambda: len(pool.waiting) == 4)
    assert len(pool.idle) == 1, "it waits though there is a child"
    assert Asking(pool, "one", n=9).end() is Failure.QUEUE_FULL, "half of the places, and no more"
    assert Asking(pool, "another", n=1).end()["n"] == 1
    assert Asking(pool, None, n=2).end()["n"] == 2
    let_go(pool)
    assert [one.end() for one in hanging] == [Failure.CRASHED]
    assert sorted(one.end()["n"] for one in waiting) == [0, 1, 2, 3]


def test_a_client_alone_has_the_only_child(make: Make) -> None:
    assert make(size=1).ask({"n": 1}, who="one")["n"] == 1


def test_the_child_that_had_a_text_has_it_again(make: Make) -> None:
    pool = make(size=2)
    first = pool.ask({}, prefer="a")["pid"]
    other = next(m.child.pid for m in pool.idle if m.child.pid != first)
    with pool.changed:
        pool.idle.sort(key=lambda m: m.child.pid == first)  # the other one first
    assert pool.ask({}, prefer="a")["pid"] == first
    assert pool.ask({}, prefer="b")["pid"] in (first, other)


def test_a_child_is_replaced_after_so_many_requests_and_when_it_asks_for_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASKS_PER_CHILD", 3)
    pool = make(size=1)
    pids = [pool.ask({})["pid"] for _ in range(6)]
    assert len(set(pids)) == 2
    assert pids == sorted(pids, key=pids.index)
    before = pool.ask({"retire": True})["pid"]
    assert pool.ask({})["pid"] != before
    wait_for(lambda: not any(alive(pid) for pid in {*pids, before}))


def test_to_stop_ends_all_and_tells_who_waits_and_who_is_worked_for(make: Make) -> None:
    pool = make(size=2)
    hanging = [Asking(pool, do="hang") for _ in range(2)]
    busy(pool, 2)
    waiting = [Asking(pool, n=1) for _ in range(3)]
    wait_for(lambda: len(pool.waiting) == 3)
    pids = [m.child.pid for m in pool.busy]
    began = time.monotonic()
    pool.stop()
    assert [one.end() for one in (*hanging, *waiting)] == [Failure.STOPPED] * 5
    assert time.monotonic() - began < 5
    assert not any(alive(pid) for pid in pids)
    assert not pool.keeper or not pool.keeper.is_alive()
    assert failure(pool) is Failure.STOPPED
    assert (pool.idle, pool.busy) == ([], [])


def test_to_stop_does_not_wait_for_a_template_that_imports(tmp_path: Path) -> None:
    path = tmp_path / "imports"
    template = Template(WORK, cwd=ROOT, env={**os.environ, "PREPARE": str(path)})
    pool = Pool(template, ["serve", FD], size=2, limits=LIMITS, waiting_cap=8, wait_s=60.0)
    try:
        pool.start()
        asking = Asking(pool, n=1)
        wait_for(path.exists)
        began = time.monotonic()
        pool.stop()
        assert time.monotonic() - began < 2
        assert asking.end() is Failure.STOPPED
        assert pool.keeper is not None
        assert not pool.keeper.is_alive()
    finally:
        template.stop()


def test_a_child_that_outlives_its_limit_is_told_of_until_it_has_ended(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs in a driver: it does not end though it is killed."""
    pool = make(size=2)
    monkeypatch.setattr("profiler.child.lines.UNKILLABLE_S", 0.1)
    killed: list[int] = []
    monkeypatch.setattr("profiler.child.lines.kill_tree", lambda process: killed.append(process.pid))
    with pytest.raises(FailedError):
        pool.ask({"do": "hang"}, limits=Limits(0.1))
    assert pool.stuck() == 0, "it has a little time"
    monkeypatch.setattr(module, "STUCK_S", -60.0)
    assert pool.stuck() == 1
    monkeypatch.undo()
    assert pool.ask({"n": 1})["n"] == 1, "others are answered meanwhile"
    os.kill(killed[0], signal.SIGKILL)
    wait_for(lambda: not pool.busy and len(pool.idle) == 2)
    assert pool.stuck() == 0


def test_a_child_that_makes_no_sense_from_the_start_is_tried_again_in_a_while(
    template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.05)
    pool = Pool(template, ["exit", "3"], size=1, limits=LIMITS, waiting_cap=8, wait_s=0.3)
    pool.start()
    try:
        assert failure(pool) is Failure.WAITED
        wait_for(lambda: pool.forks > 2)
        assert not pool.ready
    finally:
        pool.stop()


def test_a_child_that_could_not_be_closed_gives_its_place_back(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no descriptor is left to look for what it started."""
    pool = make(size=1)
    close = LineChild.close

    def refused(child: LineChild) -> None:
        monkeypatch.setattr(LineChild, "close", close)
        close(child)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(LineChild, "close", refused)
    with pytest.raises(OSError, match="Too many"):
        pool.ask({"do": "die"})
    assert not pool.busy
    wait_for(lambda: len(pool.idle) == 1)
