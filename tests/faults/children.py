"""Children of jobs that behave well or badly, with what a real one does about its server. `python children.py NAME FD`.

FAULTS_FOLDER is where they leave notes: pids, and a line for each beginning and end.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

FD = int(sys.argv[2])
FOLDER = Path(os.environ["FAULTS_FOLDER"])
REQUEST = json.loads(sys.stdin.readline())


def say(message: object) -> None:
    os.write(FD, json.dumps(message).encode() + b"\n")


def note(name: str, text: str) -> None:
    """One whole line, however many write at once."""
    with (FOLDER / name).open("a") as file:
        file.write(text + "\n")


def answer(reason: str = "no GPU", **more: object) -> None:
    note("answers", str(os.getpid()))
    trace = {"events": 1, "kernels": 1, "profiler_steps": 0, "steps": 1, "notes": [], "regions": []}
    validation = {"outcome": "unmeasured", "reason": reason, "region": REQUEST.get("region", ""), "candidates": []}
    say({"type": "result", "value": trace if "path" in REQUEST else validation, **more})


def die_with_the_server() -> None:
    from app.jobs.tasks import _die_with_the_server

    _die_with_the_server()


def hang() -> None:
    """For as long as nobody writes `go`."""
    die_with_the_server()
    say({"type": "progress", "phase": "measure", "fraction": 0.5, "message": "half"})
    note("pids", str(os.getpid()))
    while not (FOLDER / "go").exists():
        time.sleep(0.02)
    answer()


def slow() -> None:
    """Says nothing for long: what a real one does while it imports."""
    die_with_the_server()
    note("pids", str(os.getpid()))
    time.sleep(60)


def deaf() -> None:
    """Hangs, and does not hear SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang()


def busy() -> None:
    """Computes for a minute without ever letting another thread run."""
    die_with_the_server()
    note("pids", str(os.getpid()))
    re.fullmatch(r"(a|a)*b", "a" * 34)


def faithless() -> None:
    """Hangs without a look at its server, and so does a process that it starts in a session of its own."""
    if (FOLDER / "go").exists():
        exclusive()
        return
    holder = (FOLDER / "lock").open("w")
    fcntl.flock(holder, fcntl.LOCK_EX)
    other = subprocess.Popen(["sleep", "120"], start_new_session=True, pass_fds=(holder.fileno(),))
    note("pids", f"{os.getpid()}\n{other.pid}")
    time.sleep(120)


def exclusive() -> None:
    """Says in its answer whether somebody else was at work on the same."""
    with (FOLDER / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            answer("twice at once")
        else:
            answer("alone")


def stopped() -> None:
    """The real task's main, with a task that ends when it is told to."""
    from app.jobs import tasks

    if (FOLDER / "go").exists():
        answer()
        return

    def wait(_request: object, _say: object) -> dict[str, Any]:
        note("pids", str(os.getpid()))
        while not tasks.stopped():
            time.sleep(0.02)
        return {"outcome": "unmeasured", "reason": "cancelled", "region": "", "candidates": []}

    tasks.TASKS["validate"] = wait
    rest, theirs = os.pipe()
    os.write(theirs, b"{}\n")
    # The server's end of our stdin stays open behind it.
    os.dup2(rest, 0)
    sys.stdin = os.fdopen(0)
    sys.exit(tasks.main(["validate", str(FD)]))


def numbered() -> None:
    """A short job that holds a lock of its number, and so finds out whether it runs twice at once."""
    die_with_the_server()
    number = REQUEST["number"]
    with (FOLDER / f"lock-{number}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("twice", str(number))
        note("begun", f"{number} {os.getpid()}")
        time.sleep(0.05)
        answer(f"job {number}")


def filler() -> None:
    """Fills the disk in mid job, then has much to tell."""
    full = Path(os.environ.get("FILL") or FOLDER) / "full"
    if not full.exists():
        with suppress(OSError), full.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
    answer("much " * 100_000)


def orphans() -> None:
    """Leaves ten processes behind that nobody waits for, some of which have ended."""
    for number in range(10):
        if os.fork() == 0:
            os.setsid()
            if number % 2:
                time.sleep(120)
            os._exit(0)
    note("pids", str(os.getpid()))
    answer()


def health() -> None:
    """What the GPU says of itself: well, unless the file `sick` says otherwise; `hung` is one that does not answer."""
    note("asked", str(os.getpid()))
    asked = len((FOLDER / "asked").read_text().split())
    when = FOLDER / "sick_when"
    if when.exists() and str(asked) in when.read_text().split():
        say({"type": "error", "code": "gpu-suspect", "message": "an illegal memory access", "remedy": ""})
        return
    if (FOLDER / "hung").exists():
        time.sleep(120)
    if (FOLDER / "sick").exists():
        wrong = (FOLDER / "sick").read_text()
        say({"type": "error", "code": "gpu-suspect", "message": wrong, "remedy": ""})
    else:
        say({"type": "result", "value": {}})


def without_gpu() -> None:
    """A validation that finds no GPU while the file `sick` is there."""
    answer("no GPU" if (FOLDER / "sick").exists() else "nothing to measure")


def crash() -> None:
    os.abort()


globals()[sys.argv[1]]()
