"""A PostgreSQL server for tests: the system's, in a folder of its own, on a Unix socket, gone at the end."""

from __future__ import annotations

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

USER = "tritonworthy"
PR_SET_PDEATHSIG = 1

CONFIGURATION = {
    "listen_addresses": "",
    "max_connections": 200,
    # Nobody needs a test's data after the machine's power failed.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "logging_collector": "off",
    "log_min_messages": "warning",
    "log_statement": "none",
}


def binaries() -> Path | None:
    """The folder of initdb and postgres, the newest where there are several; None without PostgreSQL."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = [p for p in Path("/usr/lib/postgresql").glob("*/bin") if (p / "initdb").exists()]
    return max(versions, key=lambda p: int(p.parent.name), default=None)


class Postgres:
    """start() and stop(); root is taken for the unprivileged user that PostgreSQL insists on."""

    def __init__(self, bin_dir: Path) -> None:
        self.bin = bin_dir
        self.folder = Path(tempfile.mkdtemp(prefix="twpg-"))
        self.identity: dict[str, Any] = {}
        if os.getuid() == 0:
            account = _unprivileged()
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self.identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self.process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        made = subprocess.run(
            [self.bin / "initdb", "-D", self.folder / "data", "-U", USER, "-A", "trust", "-E", "UTF8",
             "--locale=C", "--no-sync"],
            capture_output=True, text=True, timeout=120, cwd="/", **self.identity,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr

    def start(self) -> None:
        options = [part for name, value in CONFIGURATION.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.bin / "postgres", "-D", self.folder / "data", "-k", self.folder, *options],
                stdout=log, stderr=log, cwd="/", preexec_fn=end_with_parent, **self.identity,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def stop(self) -> None:
        """Cut every connection and end."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)
            self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def url(self, name: str) -> str:
        return f"postgresql://{USER}@/{name}?host={self.folder}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty database, which is dropped at the end whoever is still connected."""
        name = f"t{secrets.token_hex(6)}"
        self._administer(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            yield self.url(name)
        finally:
            self._administer(f"DROP DATABASE {name} WITH (FORCE)")

    def _administer(self, statement: str) -> None:
        engine = sa.create_engine(
            self.url("postgres").replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool
        )
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(statement)

    def _answers(self) -> bool:
        try:
            self._administer("SELECT 1")
        except sa.exc.OperationalError:
            return False
        return True


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("no user postgres or nobody to run PostgreSQL as")


def end_with_parent() -> None:
    """For Popen: a killed test run leaves no server behind. SIGINT is PostgreSQL's fast shutdown, and uvicorn's."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
