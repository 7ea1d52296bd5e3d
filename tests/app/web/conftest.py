"""A real server on a real port, with children that the test chooses."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.cli.serve import Server, make_server
from app.jobs import worker_identity
from app.main import create_app, make_templates
from app.settings import Settings
from profiler.child.template import Template

CHILDREN = Path(__file__).with_name("children.py")


@dataclasses.dataclass
class Serving:
    """A server that runs, a client for it, and the folder of its data."""

    app: FastAPI
    server: Server
    url: str
    client: httpx.Client
    folder: Path

    @property
    def state(self) -> Any:
        return self.app.state

    def child(self, name: str, **limits: Any) -> None:
        """Let jobs be done by this child of children.py from now on."""
        queue = self.state.queue
        queue.context = dict
        queue.command = lambda _: [sys.executable, str(CHILDREN), name, "{fd}"]
        queue.limits = {kind: dataclasses.replace(limit, **limits) for kind, limit in queue.limits.items()}

    def files(self) -> list[str]:
        return sorted(p.name for p in (self.folder / "uploads").iterdir())


Serve = Callable[..., Any]


@functools.cache
def shared_templates() -> dict[str, Template]:
    """What the servers of one test process fork from: each would import for seconds."""
    made = make_templates(worker_identity.owner())
    for template in made.values():
        atexit.register(template.stop)
    return made


@contextmanager
def serving(folder: Path, child: str | None = None, **settings: Any) -> Iterator[Serving]:
    """Serve on a free port of 127.0.0.1 until the block ends, with jobs done by a child of children.py or for real.

    Without the oracle, whose process takes half a gigabyte and seconds to start: test_oracle.py has one with it.
    """
    defaults = {"port": 0, "kill_grace_s": 0.3, "shutdown_s": 2, "oracle": "off"}
    app = create_app(Settings(data_dir=folder, **{**defaults, **settings}), shared_templates())
    # With the protocol named: asyncio turns Nagle's algorithm off for such sockets only, as for uvicorn's own.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = make_server(app, app.state.settings, "warning")
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    client = httpx.Client(base_url=url, timeout=60, trust_env=False)
    app_server = Serving(app, server, url, client, folder)
    if child is not None:
        app_server.child(child)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not server.started:
        assert thread.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with client:
        yield app_server
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()
    listener.close()


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server for the tests of a module; its jobs are done by children.py."""
    with serving(tmp_path_factory.mktemp("data"), "trace") as server:
        yield server
