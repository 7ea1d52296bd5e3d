"""One measurement at a time on a GPU: a lock in the file system, which a process that ends gives back. No torch."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO


def lock_folder() -> Path:
    """Where the locks of this user's GPUs lie."""
    return Path(tempfile.gettempdir()) / f"tritonworthy-{os.getuid()}"


def somebody_measures() -> bool:
    """Some GPU's lock is held: then no context is made before the lock is ours, since it would disturb."""
    try:
        for path in lock_folder().glob("gpu-*.lock"):
            with open(path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def open_lock(card: str) -> TextIO:
    """The file whose lock means this card, in a folder of this user's own. OSError where there can be none."""
    folder = lock_folder()
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "the lock's folder is another user's")
    return open(os.path.join(folder, f"gpu-{re.sub('[^A-Za-z0-9-]', '', card)}.lock"), "a")


def locked(file: TextIO) -> bool:
    """Whether this process now holds it; False where another does."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def door_of(turn: str) -> str:
    """The file whose lock is held by the one that has the turn next (kernels.measure.turn)."""
    return f"{turn}-door"


@contextlib.contextmanager
def turn_alone(turn: str, check: Callable[[], None], every_s: float = 0.05) -> Iterator[None]:
    """The turn held by this process, alone. check: called while waiting; what it raises ends the wait.

    The wait is a thread's: who only looked from time to time would always come behind those that wait all the time.
    """
    lock, held, abandoned = threading.Lock(), threading.Event(), threading.Event()
    files: list[TextIO] = []

    def wait() -> None:
        with open(door_of(turn), "a") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            file = open(turn, "a")  # noqa: SIM115 (handed over, or closed below)
            fcntl.flock(file, fcntl.LOCK_EX)
        with lock:
            if abandoned.is_set():
                file.close()
            files.append(file)
            held.set()

    threading.Thread(target=wait, daemon=True).start()
    try:
        while not held.wait(every_s):
            check()
        yield
    finally:
        with lock:
            abandoned.set()
            for file in files:
                file.close()
