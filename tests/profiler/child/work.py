"""What the template of these tests prepares, and what its forks do: each line of a request says what."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def prepare() -> None:
    """Ready at once, unless PREPARE names a file: then it writes its number there, and imports for ever, or fails."""
    named = os.environ.get("PREPARE")
    if named:
        with Path(named).open("a") as notes:
            notes.write(f"{os.getpid()}\n")
        if os.environ.get("PREPARE_FAILS"):
            raise ImportError("as asked")
        signal.pause()


def run(arguments: list[str]) -> int:
    """A fork: "exit STATUS", "raise", or "serve FD": one answer a line until the lines end."""
    what, value = arguments[0], arguments[1] if len(arguments) > 1 else ""
    if what == "exit":
        return int(value)
    if what == "raise":
        raise ValueError("as asked")
    answers = int(value)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = DO[asked.get("do", "echo")](asked, answers)
        if answer is not None:
            _say(answers, json.dumps(answer))
    return 0


def _say(answers: int, text: str) -> None:
    left = text.encode() + b"\n"
    while left:
        left = left[os.write(answers, left) :]


def _echo(asked: Json, _: int) -> Json:
    return {"pid": os.getpid(), **asked}


def _hang(asked: Json, _: int) -> None:
    while True:
        signal.pause()


def _spin(asked: Json, _: int) -> None:
    while True:
        pass


def _burn(asked: Json, _: int) -> Json:
    """So many seconds of processor time, and an answer."""
    until = time.process_time() + asked["cpu_s"]
    while time.process_time() < until:
        pass
    return {"pid": os.getpid()}


def _eat(asked: Json, _: int) -> Json:
    """So much memory, kept where asked; what it could not have is told."""
    try:
        taken = bytearray(asked["bytes"])
    except MemoryError:
        return {"error": "memory"}
    if asked.get("keep"):
        KEPT.append(taken)
    return {"pid": os.getpid()}


def _die(asked: Json, _: int) -> None:
    os.kill(os.getpid(), asked["signal"])


def _die_once(asked: Json, _: int) -> Json | None:
    """The first that is asked dies of the signal; the file says whether somebody has."""
    mark = Path(asked["mark"])
    if mark.exists():
        return {"pid": os.getpid()}
    mark.touch()
    return _die(asked, _)


def _leave(asked: Json, _: int) -> None:
    os._exit(asked["status"])


def _last_words(asked: Json, answers: int) -> None:
    """An answer and half of another, which a process that it leaves behind holds open."""
    if os.fork() == 0:
        os.setsid()
        signal.pause()
    _say(answers, '{"pid": 1}')
    os.write(answers, b'{"half')
    os._exit(0)


def _stray(asked: Json, _: int) -> Json:
    """A process of its group that outlives it."""
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    return {"pid": os.getpid(), "stray": pid}


def _raw(asked: Json, answers: int) -> None:
    _say(answers, asked["text"])


def _descriptors(asked: Json, answers: int) -> Json:
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # that of the listing itself
            continue
    return {"open": found, "answers": answers, "inheritable": os.get_inheritable(answers)}


def _state(asked: Json, _: int) -> Json:
    return {
        "session": os.getsid(0),
        "pid": os.getpid(),
        "parent": os.getppid(),
        "niceness": os.nice(0),
        "environment": {k: os.environ.get(k) for k in asked["names"]},
    }


KEPT: list[bytearray] = []
DO: dict[str, Callable[[Json, int], Json | None]] = {
    "echo": _echo,
    "hang": _hang,
    "spin": _spin,
    "burn": _burn,
    "eat": _eat,
    "die": _die,
    "die-once": _die_once,
    "leave": _leave,
    "last-words": _last_words,
    "stray": _stray,
    "raw": _raw,
    "descriptors": _descriptors,
    "state": _state,
}
