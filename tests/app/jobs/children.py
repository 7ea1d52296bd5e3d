"""Real child processes that do what children do when things go wrong. `python children.py NAME FD`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FD = int(sys.argv[2])
REQUEST = json.loads(sys.stdin.readline())


def say(message: object) -> None:
    os.write(FD, json.dumps(message).encode() + b"\n")


def ok() -> None:
    print("this goes to the log")
    say({"type": "progress", "phase": "half", "fraction": 0.5})
    say({"type": "result", "value": {"echo": REQUEST}})


def pid() -> None:
    say({"type": "result", "value": os.getpid()})


def answer() -> None:
    say({"type": "progress", "phase": "measuring", "candidate": "eager", "fraction": 0.5, "message": "half"})
    say({"type": "result", "value": REQUEST["answer"]})


def faithful() -> None:
    """Hangs, and dies with its server as app.jobs.tasks does."""
    from app.jobs.tasks import _die_with_the_server

    _die_with_the_server()
    sleep()


def error() -> None:
    say({"type": "error", "code": "trace-not-json", "message": "not JSON", "remedy": "send JSON"})


def sleep() -> None:
    Path(REQUEST["pid_file"]).write_text(str(os.getpid()))
    time.sleep(60)


def stubborn() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep()


def polite() -> None:
    """Ends on SIGTERM with an answer."""

    def stop(*_: object) -> None:
        say({"type": "result", "value": "partial"})
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    sleep()


def abort() -> None:
    os.abort()


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def status() -> None:
    raise SystemExit(7)


def silent() -> None:
    """Ends well, and says nothing."""


def garbage() -> None:
    os.write(FD, b"\xff\xfe not json\n")
    time.sleep(60)


def partial() -> None:
    os.write(FD, b'{"type": "result", "value": {"a"')


def twice() -> None:
    say({"type": "result", "value": 1})
    say({"type": "result", "value": 2})


def flood() -> None:
    block = b"x" * (1 << 20)
    while True:
        os.write(FD, block)


def big() -> None:
    """Reads its request late, and answers much."""
    say({"type": "result", "value": "y" * 3_000_000})


def deaf() -> None:
    """Never reads on; the request was read at the top. Says the length of it."""
    say({"type": "result", "value": len(REQUEST["text"])})


def greedy() -> None:
    try:
        bytearray(640 << 20)
    except MemoryError:
        say({"type": "error", "code": "out-of-memory", "message": "out of memory", "remedy": ""})


def orphan() -> None:
    """Leaves a process behind, in a session of its own, out of reach of the group's signals."""
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    Path(REQUEST["pid_file"]).write_text(str(grandchild.pid))
    say({"type": "result", "value": None})


def environment() -> None:
    say({"type": "result", "value": sorted(os.environ)})


def chatty() -> None:
    for _ in range(24):
        os.write(1, b"z" * (1 << 20))
    say({"type": "result", "value": None})


globals()[sys.argv[1]]()
