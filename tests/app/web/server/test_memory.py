"""What is free goes back to the system; nothing that is in use does."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
import threading

import pytest

from app.web.server import memory
from tests.conftest import ROOT

HOARD = """
import threading
from pathlib import Path
from app.web.server.memory import trim

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

def hold(kept):
    data = [bytes(64_000) for _ in range(2000)]  # below mmap's threshold: in the thread's arena
    kept.extend(data[-1:])  # so that the arena cannot shrink from its end

kept = []
threads = [threading.Thread(target=hold, args=(kept,)) for _ in range(2)]
[t.start() for t in threads], [t.join() for t in threads]
before = resident()
assert trim()
print(before - resident(), sum(map(len, kept)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
def test_what_threads_freed_is_resident_until_it_is_trimmed() -> None:
    told = subprocess.run([sys.executable, "-c", HOARD], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pages, kept = map(int, told.split())
    assert pages * 4096 > 20_000_000
    assert kept == 2 * 64_000


def test_where_the_c_library_has_no_trim_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert memory.trim() is False


def test_it_trims_now_and_then_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Semaphore(0)
    monkeypatch.setattr(memory, "trim", lambda: done.release() or True)
    trimmer = memory.Trimmer(0.01)
    trimmer.start()
    assert done.acquire(timeout=10) and done.acquire(timeout=10)
    trimmer.stop()
    assert not trimmer.thread.is_alive()
