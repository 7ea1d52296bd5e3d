"""What a child says is heard whole, whatever it leaves behind; what is no answer is told; nothing stays open."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.child import lines
from profiler.child.lines import BrokenChildError, LineChild
from profiler.child.process import FD, FORK
from profiler.child.template import NoTemplateError, Template
from tests.conftest import ROOT
from tests.processes import alive, wait_for
from tests.profiler.child.conftest import WORK, Serving
from tests.profiler.child.test_limits import asked


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def silent() -> Iterator[LineChild]:
    """A program that ends at once and says nothing."""
    made = LineChild([sys.executable, "-c", ""], log=None)
    yield made
    made.close()


def test_requests_and_answers_larger_than_a_pipe(serving: Serving) -> None:
    text = "x" * 3_000_000
    assert asked(serving(), text=text)["text"] == text


def test_what_a_child_that_has_ended_still_said_is_heard_though_its_answer_is_held_open(serving: Serving) -> None:
    """A whole line and half of one, and somebody else who could still write: no end of file ever comes."""
    child = serving()
    child.send({"do": "last-words"})
    child.exchange()
    child.process.wait(20)
    began = time.monotonic()
    heard = child.rest()
    assert heard in ([{"pid": 1}], [])  # or heard by the exchange before
    assert child.received == b'{"half'
    assert time.monotonic() - began < 5


def test_who_waits_for_a_child_that_says_nothing_more_does_not_spin() -> None:
    script = "import os, sys, time\nos.close(int(sys.argv[1]))\ntime.sleep(600)"
    child = LineChild([sys.executable, "-c", script, FD], log=None)
    try:
        wait_for(lambda: child.exchange() or not child.selector.get_map())
        rounds, began = 0, time.monotonic()
        while time.monotonic() - began < 0.5:
            assert child.exchange(0.5) == []
            rounds += 1
        assert rounds <= 1 + 0.5 / lines.TICK_S
    finally:
        child.close()


def test_who_asks_a_child_that_has_ended_hears_nothing_and_gets_no_error(silent: LineChild) -> None:
    wait_for(lambda: silent.poll() is not None)
    silent.send({"n": 1})
    assert silent.exchange() == []
    assert silent.rest() == []


def test_the_end_of_a_child_is_heard_without_waiting(silent: LineChild) -> None:
    while silent.poll() is None:
        began = time.monotonic()
        silent.exchange(30.0)
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("text", ["no json", "[" * 100_000, '{"a": 1}\n{'])
def test_what_is_no_json_is_told(serving: Serving, text: str) -> None:
    with pytest.raises(BrokenChildError, match="protocol"):
        asked(serving(), do="raw", text=text)


def test_a_child_that_says_too_much_is_told(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    child = serving()
    monkeypatch.setattr(lines, "OUTPUT_BYTES", 1 << 20)
    for _ in range(3):  # of one request
        assert len(asked(child, text="x" * 700_000)["text"]) == 700_000
    with pytest.raises(BrokenChildError, match="too much"):
        asked(child, text="x" * 1_100_000)


def test_a_log_that_cannot_be_written_costs_no_work(template: Template, tmp_path: Path) -> None:
    child = LineChild([FORK, "serve", FD], log=tmp_path / "gone" / "log", template=template)
    try:
        assert asked(child, n=1)["n"] == 1
        child.move_log(tmp_path / "log")
    finally:
        child.close()
    assert list(tmp_path.iterdir()) == []


def test_a_log_keeps_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LOG_BYTES", 1000)
    script = "print('first', flush=True)\nwhile True: print('and again', flush=True)"
    child = LineChild([sys.executable, "-c", script], log=tmp_path / "log")
    try:
        wait_for(lambda: (tmp_path / "log").stat().st_size > 1000)
        child.exchange()
    finally:
        child.end()
        child.exchange()
        child.close()
    kept = (tmp_path / "log").read_bytes()
    assert kept.startswith(b"first\nand again\n")
    assert len(kept) == 1000


def test_nothing_stays_open(template: Template, tmp_path: Path) -> None:
    stopped = Template(WORK, cwd=ROOT)
    stopped.stop()
    assert template.wait_ready(60)
    before = descriptors()
    for _ in range(3):
        child = LineChild([FORK, "serve", FD], log=tmp_path / "log", template=template)
        assert asked(child, n=1)["n"] == 1
        child.close()
        child.close()
        with pytest.raises(NoTemplateError):
            LineChild([FORK, "serve", FD], log=tmp_path / "log", template=stopped)
        with pytest.raises(FileNotFoundError):
            LineChild(["no such program"], log=tmp_path / "log")
    assert descriptors() == before


def test_none_can_be_opened_and_nothing_stays_open(template: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has used up its descriptors half way."""
    assert template.wait_ready(60)
    pipe, left = os.pipe, [1]

    def scarce() -> tuple[int, int]:
        if not left:
            raise OSError(24, "Too many open files")
        left.pop()
        return pipe()

    before = descriptors()
    monkeypatch.setattr(lines.os, "pipe", scarce)
    with pytest.raises(OSError, match="Too many"):
        LineChild([FORK, "serve", FD], log=None, template=template)
    assert descriptors() == before


def test_to_end_a_child_ends_what_it_started(serving: Serving) -> None:
    child = serving()
    stray = asked(child, do="stray")["stray"]
    assert child.end()
    assert child.poll() == -signal.SIGKILL
    wait_for(lambda: not alive(stray))


def test_the_end_of_its_requests_ends_a_child(serving: Serving) -> None:
    child = serving()
    assert asked(child, n=1)
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), child.input)
    assert child.process.wait(20) == 0
