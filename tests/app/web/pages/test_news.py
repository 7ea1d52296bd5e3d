"""An answer that waits for a trace's parts comes with them, and a page that has them is not kept waiting."""

from __future__ import annotations

import asyncio
import itertools
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.objects.trace import TraceProgress
from app.requests.state import ServerState
from app.web.pages import news
from app.web.pages.news import until_parts

READING: TraceProgress = {
    "status": "reading", "ahead": None, "stage": "", "fraction": None, "parts": False, "step_time_us": None,
    "regions": 0, "advised": [],
}  # fmt: skip
PARTS: TraceProgress = {**READING, "parts": True, "step_time_us": 5.0, "regions": 3}
READY: TraceProgress = {**PARTS, "status": "ready", "advised": [0, 1, 2]}


class Told:
    """A server that tells of a trace what a list says, its last entry again and again; `asked` counts."""

    def __init__(self, *told: TraceProgress | None) -> None:
        self.told = itertools.chain(told, itertools.repeat(told[-1]))
        self.asked = 0
        self.closing = threading.Event()
        self.store = SimpleNamespace(reading=self.reading)

    def reading(self, trace_id: str) -> TraceProgress | None:
        self.asked += 1
        return next(self.told)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only sleeping moves."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(news.asyncio, "sleep", sleep)
    monkeypatch.setattr(news.time, "monotonic", lambda: sum(pauses))
    return pauses


def wait(told: Told, shown: str, hold_s: float = 3.0) -> None:
    asyncio.run(until_parts(cast(ServerState, cast(Any, told)), "t", shown, hold_s))


def test_the_parts_are_told_soon_after_they_are_there(slept: list[float]) -> None:
    wait(Told(READING, READING, PARTS), "reading")
    assert sum(slept) < news.GATHER_S + 0.12


def test_a_trace_that_is_advised_on_at_once_is_told_whole(slept: list[float]) -> None:
    told = Told(READING, PARTS, READY)
    wait(told, "reading")
    assert told.asked == 3


def test_what_a_page_waits_behind_is_told_when_it_changes(slept: list[float]) -> None:
    told = Told({**READING, "ahead": 2}, {**READING, "ahead": 1})
    wait(told, "waiting-2")
    assert told.asked == 2


@pytest.mark.parametrize("last", [READY, {**READING, "status": "failed"}, None])
def test_what_ends_is_told_at_once(slept: list[float], last: TraceProgress | None) -> None:
    told = Told(last)
    wait(told, "reading")
    assert (told.asked, slept) == (1, [])


def test_a_page_that_has_the_parts_is_not_kept_waiting(slept: list[float]) -> None:
    told = Told(PARTS)
    wait(told, "advising-0")
    assert (told.asked, slept) == (0, [])


def test_nobody_waits_for_longer_than_asked_nor_asks_more_than_needed(slept: list[float]) -> None:
    told = Told(READING)
    wait(told, "reading")
    assert 3.0 <= sum(slept) <= 3.0 + news.LOOK_S[1]
    assert told.asked < 40


def test_a_server_that_stops_answers(slept: list[float]) -> None:
    told = Told(READING)
    told.closing.set()
    wait(told, "reading")
    assert told.asked == 0
