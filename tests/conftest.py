"""Paths and databases that tests share, and how the suite is spread over the cores (`make test`)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from tests.postgres import Postgres

ROOT = Path(__file__).resolve().parent.parent

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)
DATA = ROOT / "tests" / "data"
"""Real traces, regions and measurements; each folder says where they come from in its MANIFEST.md."""

WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if WORKERS > 1:
    # Before torch and numpy are imported, here and in every child: the workers share the cores.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // WORKERS)))

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test downloads a model

LONG = (
    "tests/kernels/test_interpreted.py",
    "tests/browser/",
    "tests/app/jobs/ray/",
    "tests/faults/",
    "tests/app/web/api/test_openapi.py",
    "tests/fuzz/",
    "tests/app/jobs/test_queue.py",
    "tests/kernels/test_builds.py",
    "tests/profiler/region/mining/test_mine.py",
    "tests/app/cli/test_cli.py",
    "tests/app/web/pages/test_pages.py",
    "tests/profiler/oracle/test_process.py",
    "tests/kernels/test_offline.py",
    "tests/app/web/api/test_companions.py",
    "tests/kernels/measure/test_session.py",
    "tests/kernels/measure/candidate/test_cheats.py",
    "tests/profiler/oracle/inductor/test_record.py",
    "tests/app/trace_report/",
    "tests/docs/test_traces.py",
    "tests/docs/test_ci.py",
    "tests/app/web/api/test_checks.py",
)
"""What takes long begins first, so that no worker is left alone with it at the end."""

APART = ("tests/kernels/test_interpreted.py", "tests/kernels/test_builds.py")
"""Files whose tests share nothing and are long enough to go to different workers."""

TOGETHER = {
    "tests/app/jobs/ray/": "fleet",
    "tests/browser/": "browser",
    "tests/profiler/region/mining/test_mine.py": "mined",
    "tests/profiler/trace/analyze/test_gpu_utilization.py": "mined",
    "tests/profiler/region/mining/test_backward_pairs.py": "mined",
    "tests/profiler/region/mining/test_findings.py": "mined",
    "tests/app/trace_report/": "reported",
    "tests/docs/test_traces.py": "reported",
}
"""Files that share what takes seconds to make: a server and a browser, a Ray cluster, traces with their regions and
their reports."""


class Scheduling(LoadFileScheduling):
    """A file, with the servers and children that its fixtures start, stays on one worker."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(APART):
            return nodeid
        groups = (group for start, group in TOGETHER.items() if nodeid.startswith(start))
        return next(groups, super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if WORKERS > 1:
        items.sort(key=lambda i: next((n for n, long in enumerate(LONG) if i.nodeid.startswith(long)), len(LONG)))


@pytest.fixture(autouse=True)
def gradients():
    """On, as torch begins: a worker switches them by its region, for its own process, and some tests are one."""
    switch = getattr(sys.modules.get("torch"), "set_grad_enabled", None)  # absent while a server's thread imports it
    if switch is not None:
        switch(True)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real traces, regions and measurements."""
    return DATA


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server of this worker process."""
    from tests.postgres import Postgres, binaries  # here: it needs sqlalchemy, and tests of kernels need none

    folder = binaries()
    if folder is None:
        missing = "PostgreSQL is not installed: tools/install_postgres.sh"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    server = Postgres(folder)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    with postgres.database() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same on each kind of database that the store runs on."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url
