"""One child records at a time and nobody builds meanwhile; several build at once; who is late is ended alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.corpus.recording import parent
from tools.corpus.recording.made import Place
from tools.corpus.recording.parent import Parent, Running
from tools.corpus.recording.rows import ROWS


class Pipe:
    """What was sent to a child."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, state: str) -> None:
        self.sent.append(state)


class Process:
    """A child that has ended. pid: of no process that a test may end."""

    pid = 2**22 + 1

    def join(self, timeout: float) -> None: ...

    def is_alive(self) -> bool:
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(parent.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def crew(tmp_path: Path, clock: list[float]) -> Parent:
    return Parent([], Place("cpu", True), tmp_path, 100.0, 12)


def add(crew: Parent, state: str, count: int, entered: float = 1000.0) -> list[Running]:
    made: Any = [Running(row, Process(), Pipe(), 1000.0, state, entered) for row in ROWS[:count]]
    crew.running += made
    return list(made)


def test_eight_build_at_once_and_the_others_wait(crew: Parent) -> None:
    ready = add(crew, "ready", 11)
    crew.give_leave()
    assert [r.state for r in ready] == ["building"] * 8 + ["ready"] * 3
    crew.give_leave()
    assert sum(r.state == "building" for r in ready) == 8


def test_one_records_when_none_builds_and_none_builds_while_it_records(crew: Parent) -> None:
    built, ready = add(crew, "built", 2), add(crew, "ready", 2)
    crew.give_leave()
    crew.give_leave()
    assert [r.state for r in (*built, *ready)] == ["recording", "built", "ready", "ready"]
    built[0].state = "recorded"
    crew.give_leave()
    assert [r.state for r in (*built, *ready)] == ["recorded", "recording", "ready", "ready"]
    assert not any(r.shared for r in built)


def test_a_slow_builder_is_waited_for_and_then_named_in_the_report(crew: Parent, clock: list[float]) -> None:
    built, slow = add(crew, "built", 1), add(crew, "building", 1)
    crew.give_leave()
    assert built[0].state == "built"
    clock[0] += parent.PATIENCE_S + 1
    crew.give_leave()
    assert (built[0].state, built[0].shared, slow[0].state) == ("recording", True, "building")


def test_who_is_too_long_in_a_state_is_ended_and_no_other(crew: Parent, clock: list[float]) -> None:
    late = add(crew, "recording", 1)
    others = add(crew, "built", 2, entered=1000.0 + parent.STATE_SECONDS["recording"])
    clock[0] += parent.STATE_SECONDS["recording"] + 1
    crew.stop_late()
    assert crew.running == others
    assert [(line["name"], line["state"]) for line in crew.report] == [(late[0].row.name, "failed")]
    assert "recording" in crew.report[0]["error"]
