"""The real server in a process of its own, and a Chromium that reports what a user would not see."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright

from tests.conftest import ROOT

# A test machine has two cores, and torch is at work on them.
expect.set_options(timeout=60_000)

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Reported by the browser before anything else of the page runs.
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (e) => {
  window.violations.push(e.violatedDirective + " " + e.blockedURI);
});
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(folder: Path, **more: str) -> Iterator[str]:
    """The address of a running server with an empty data folder, until the block ends."""
    port = free_port()
    settings = {
        "TRITONWORTHY_DATA_DIR": str(folder / "data"),
        "TRITONWORTHY_PORT": str(port),
        "TRITONWORTHY_BUDGET_S": "20",
        **more,
    }
    log = (folder / "log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve"],
        cwd=ROOT,
        env=os.environ | settings,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    base = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.2)
            with suppress(OSError), urllib.request.urlopen(f"{base}/readyz", timeout=2) as response:
                if json.load(response)["advice_warm"]:
                    break
        yield base
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        log.close()
    assert "Traceback" not in (folder / "log").read_text()


# These end with this folder's tests: while Playwright is open its event loop counts as running in the main thread, and
# asyncio.run of any other test would fail.
@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server of most tests: without the oracle, whose process takes half a gigabyte."""
    with running(tmp_path_factory.mktemp("server"), TRITONWORTHY_ORACLE="off") as base:
        yield base


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="package")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "no Chromium: `make test` installs the system's package"
    browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
    yield browser
    browser.close()


@dataclass
class Watched:
    """A page and what went wrong behind it. expected: statuses of responses that a test provokes."""

    page: Page
    base: str
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    expected: tuple[int, ...] = ()

    def check(self) -> None:
        """No console error, no violation of the content policy, no request to another host."""
        assert self.page.evaluate("window.violations || []") == []
        provoked = tuple(f"status of {status}" for status in self.expected)
        assert [e for e in self.errors if not any(p in e for p in provoked)] == []
        assert self.hosts <= {urlsplit(self.base).netloc}


@pytest.fixture
def open_page(chromium: Browser, server: str) -> Iterator[Callable[..., Watched]]:
    """A function that opens a fresh context, watched; every page is checked at the end of the test."""
    contexts: list[BrowserContext] = []
    watched: list[Watched] = []

    def open_one(**options: object) -> Watched:
        context = chromium.new_context(base_url=server, **options)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.add_init_script(WATCH)
        found = Watched(page, server)
        page.on("console", lambda m: found.errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: found.errors.append(str(e)))
        page.on(
            "request",
            lambda r: found.hosts.add(urlsplit(r.url).netloc) if r.url.startswith(("http", "ws")) else None,
        )
        watched.append(found)
        return found

    yield open_one
    try:
        for found in watched:
            if found.page.url.startswith("http"):
                found.check()
    finally:
        for context in contexts:
            context.close()


@pytest.fixture(scope="session")
def handrolled(data: Path) -> Path:
    return data / "traces" / "handrolled_blocks_bf16_eager_stack.json.gz"
