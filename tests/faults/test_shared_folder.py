"""Two servers on one data folder, their workers and they themselves killed at random: no job runs twice at once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from app.storage import job_table
from app.storage.store import Store
from tests.app.storage.validations import add_validation
from tests.faults.servers import Server, notes
from tests.processes import alive, wait_for

JOBS = 200
WORKERS_KILLED = 30
SERVERS_KILLED = 2


def begun(folder: Path) -> list[tuple[int, int]]:
    """(number of the job, pid of its worker), as they began."""
    words = notes(folder, "begun")
    return [(int(number), int(pid)) for number, pid in zip(words[::2], words[1::2], strict=True)]


def kill_a_worker(folder: Path, known: set[int]) -> int:
    """Of those that run and were not killed before; 0 where there is none at this moment."""
    living = [pid for _, pid in begun(folder)[-4:] if pid not in known and alive(pid)]
    if not living:
        return 0
    known.add(living[-1])
    with suppress(ProcessLookupError):
        os.kill(living[-1], signal.SIGKILL)
    return 1


def test_a_job_is_never_run_twice_at_once_and_none_is_lost(serve: Callable[..., Server], tmp_path: Path) -> None:
    random.seed(5)
    servers = [serve("numbered") for _ in range(2)]
    for server in servers:
        assert server.url
    store = Store(f"sqlite:///{tmp_path / 'data' / 'tritonworthy.db'}")
    ids = [
        add_validation(store, name="r", region="x", region_id=None, request={"number": n}, cap=JOBS)[0]
        for n in range(JOBS)
    ]

    def ended() -> int:
        with store.database.read() as connection:
            return sum(n for (_, state), n in job_table.counts(connection).items() if state in job_table.FINAL)

    known: set[int] = set()
    workers = 0
    to_kill = [JOBS // 4, JOBS // 2][:SERVERS_KILLED]
    deadline = time.monotonic() + 240
    while ended() < JOBS:
        assert time.monotonic() < deadline, ended()
        if to_kill and ended() >= to_kill[0]:
            to_kill.pop(0)
            servers.pop(0).kill()
            servers.append(serve("numbered"))
        elif workers < WORKERS_KILLED:
            workers += kill_a_worker(tmp_path, known)
        time.sleep(random.uniform(0.02, 0.2))
    assert not to_kill
    assert workers == WORKERS_KILLED
    assert not (tmp_path / "twice").exists(), "two workers held the same job"
    times = Counter(number for number, _ in begun(tmp_path))
    assert set(times) == set(range(JOBS))
    assert max(times.values()) == 2, "killed, and run again once"
    for number, job_id in enumerate(ids):
        job = store.job(job_id)
        assert job is not None
        events = [e["event"] for e in store.events(job_id)]
        assert events.count("done") == 1
        assert job["attempt"] <= job_table.MAX_ATTEMPTS
        if job["state"] == "done":
            assert job["result"]["reason"] == f"job {number}"
        else:
            # Killed twice: given up, and said so.
            assert (job["state"], job["attempt"]) == ("failed", 2)
            assert job["error"]["code"] in ("out-of-memory", "worker-lost")
    states = Counter(store.job_state(i) for i in ids)
    assert states["done"] > JOBS * 0.9
    store.close()
    wait_for(lambda: not any(alive(pid) for _, pid in begun(tmp_path)), 5)
