"""Children of jobs that hang, crash and lie: `python children.py NAME FD`."""

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
HERE = Path(__file__).parent


def say(message: object) -> None:
    os.write(FD, json.dumps(message).encode() + b"\n")


def stubborn() -> None:
    """Ignores SIGTERM, and has a child in a session of its own that does so too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(
        [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"],
        start_new_session=True,
    )
    say({"type": "progress", "phase": "hanging"})
    time.sleep(300)


def abort() -> None:
    os.abort()


def segv() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(5)


def garbage() -> None:
    os.write(FD, b"\x00\xff not json at all\n")
    time.sleep(300)


def partial() -> None:
    os.write(FD, b'{"type": "result", "value": {"outcome": "confirmed"')


def flood() -> None:
    """2 GB of an answer that never ends, as fast as it is taken."""
    try:
        os.write(FD, b'{"type": "result", "value": "')
        for _ in range(2048):
            os.write(FD, b"x" * (1 << 20))
    except BrokenPipeError:
        return


def chatter() -> None:
    """2 GB to the log, then a good answer."""
    for _ in range(2048):
        os.write(1, b"x" * (1 << 20))
    validation()


def lie() -> None:
    """A verdict with times that no measurement has."""
    body = {"outcome": "confirmed", "reason": "", "region": REQUEST.get("region"), "best": "eager"}
    candidate = {"name": "eager", "tool": "skip", "status": "ok", "message": "", "time_us": {"median": -1.0}}
    say({"type": "result", "value": {**body, "candidates": [candidate]}})


def twice() -> None:
    validation()
    validation()


def deep() -> None:
    os.write(FD, b'{"type": "result", "value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")


def no_object() -> None:
    say({"type": "result", "value": [1, 2, 3]})


def validation() -> None:
    body = {"outcome": "unmeasured", "reason": "no GPU", "region": REQUEST.get("region"), "candidates": []}
    say({"type": "result", "value": body})


def hang() -> None:
    time.sleep(300)


globals()[sys.argv[1]]()
