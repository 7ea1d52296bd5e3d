"""Rows "info leak", "unguessable results" and "log injection": what answers and logs tell, and to whom."""

from __future__ import annotations

import getpass
import itertools
import json
import logging
import math
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app import logs
from app.storage.database import ID_ALPHABET, ID_LENGTH, new_id
from app.web.server.access import Access
from tests.app.web.conftest import serving
from tests.app.web.routes import ACCESS
from tests.attacks.process import Process, running
from tests.conftest import ROOT

TOKEN = "correct-horse-battery-staple"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
HTML = {"Accept": "text/html"}
MARK = "INJECTED"
NAMES = (
    f"a\n{MARK} CRITICAL fake: the server is on fire", f"a\r\n{MARK}", f"\x1b[2J\x1b[31m{MARK}", f"\x00{MARK}",
    f"\u2028{MARK}\u2029", f"\x85{MARK}", f"\u202e{MARK}", f"%0a{MARK}", f"%0d%0a{MARK}", "%s%s%s%n", "{0.__class__}",
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with running(tmp_path_factory.mktemp("leaks"), max_upload_bytes=1_000_000, max_region_chars=5_000) as process:
        yield process


def secrets_of(server: Process) -> list[str]:
    """What no answer may have in it: our folders, the host's name, the user."""
    told = [str(ROOT), str(server.folder), str(server.folder.parent), str(Path.home()) + "/", getpass.getuser() + "@"]
    host = rf"(?<![\w.-]){re.escape(socket.gethostname())}(?![\w.-])"
    return [
        host,
        *map(re.escape, [*told, "site-packages", "Traceback", 'File "', "/usr/lib", "sqlite:", "sqlite3", "/proc/"]),
    ]


SHIPPED = ("/learn", "/accuracy", "/openapi.json")
"""Pages of what was written when the program was: large, and the same on every host."""


def provoke(server: Process) -> Iterator[httpx.Response]:
    """Answers to everything that can go wrong from outside, as JSON and as a page."""
    client, unknown = server.client, "a" * 26
    for (method, path), kind in ACCESS.items():
        if method != "MOUNT" and kind is not Access.WORK and not path.startswith(SHIPPED):
            address = re.sub(r"\{\w+\}", unknown, path)
            if not address.endswith("/events"):
                yield client.request(method, address, headers={} if path.startswith("/api/") else HTML)
    for body in (b"", b"{", b"\xff", b"PK\x03\x04", b"\x80\x04", b"[1]", b"{}" * 1000, bytes(2_000_000)):
        yield client.post("/api/v1/traces?wait=60" if body in (b"{", b"PK\x03\x04") else "/api/v1/traces", content=body)
        yield client.post("/api/v1/advice", content=body, headers={"Content-Type": "application/json"})
        if len(body) < 2 or len(body) > 10_000:  # others are read first, by a child
            yield client.post("/traces", files={"file": ("x", body)}, headers=HTML)
        yield client.post("/regions", content=body, headers=HTML)
    for text in ("x: f32[4]\ny = nothing(x)\nreturn y", "(" * 400, "x" * 6000, "x: f32[4]\ny = x.to('/etc')\nreturn y"):
        yield client.post("/api/v1/advice", json={"region": text, "oracle": "off"})
        yield client.post("/api/v1/validations", json={"region": text})
        yield client.post("/regions/preview", data={"text": text}, headers=HTML)
    yield client.get("/", headers={"Host": "evil.test"})
    yield client.get("/nowhere", headers=HTML)
    yield client.get("/static/%2e%2e/%2e%2e/etc/passwd")
    yield client.put("/healthz")
    yield client.get("/api/v1/traces?limit=x&after=" + "y" * 60)
    yield client.get("/api/v1/device")
    yield client.get("/readyz")
    yield client.get("/metrics")
    yield client.get("/device", headers=HTML)


def test_info_leak_no_answer_names_a_folder_a_host_or_a_user(server: Process) -> None:
    forbidden, seen = secrets_of(server), set()
    for response in provoke(server):
        seen.add(response.status_code)
        assert response.status_code != 500, response.request.url
        for text in (response.text, str(response.headers)):
            assert not [s for s in forbidden if re.search(s, text)], (response.request.url, response.status_code)
    assert {200, 400, 404, 405, 413, 422} <= seen


def test_info_leak_the_snapshot_of_an_error(server: Process) -> None:
    """Every field that a problem has: another one is thought about before it is added here."""
    answer = server.client.get("/api/v1/jobs/x").json()
    assert answer == {
        "type": "about:blank", "title": "There is no such job", "status": 404, "code": "not-found", "detail": "",
    }  # fmt: skip
    page = server.client.get("/nowhere", headers=HTML).text
    assert "/nowhere" not in page.partition("<main")[2].partition("</main>")[0]


def test_info_leak_a_fault_says_nothing_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError(f"secret detail in {ROOT}")

    with serving(tmp_path, "trace") as web:
        monkeypatch.setattr(web.state.store, "region", broken)
        for path, headers in itertools.product(("/api/v1/regions/", "/regions/"), ({}, HTML)):
            response = web.client.get(path + "a" * 26, headers=headers)
            assert response.status_code == 500
            assert response.headers["connection"] == "close"
            assert "secret" not in response.text
            assert str(ROOT) not in response.text


# -------------------------------------------------------------------------------------------------- unguessable results


def test_unguessable_results_ids_have_at_least_128_bits() -> None:
    assert ID_LENGTH * math.log2(len(ID_ALPHABET)) > 128
    made = [new_id() for _ in range(2000)]
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"[a-z0-9]{26}", i) for i in made)
    for place in range(ID_LENGTH):  # no letter is a clock's or a counter's
        assert len({i[place] for i in made}) == len(ID_ALPHABET), place


def test_unguessable_results_enumeration_finds_nothing(server: Process) -> None:
    known = server.client.post("/api/v1/traces", content=b"{}").json()["id"]
    near = [known[:-1] + c for c in "abcdefghij0123456789" if c != known[-1]]
    for wanted in (*near, known.upper(), known + "a", known[:-1], "1", "0", "-1"):
        for what in ("traces", "regions", "validations", "jobs", "checks"):
            assert server.client.get(f"/api/v1/{what}/{wanted}").status_code == 404, (what, wanted)
    assert server.client.get(f"/api/v1/traces/{known}").status_code == 200


def test_unguessable_results_without_the_token_nothing_is_listed_nor_told_from_nothing(tmp_path: Path) -> None:
    """A stranger learns neither what there is nor whether an id exists: the same answer to all of them."""
    with serving(tmp_path, "trace", token=TOKEN) as server:
        trace = server.client.post("/api/v1/traces?name=ours", content=b"{}", headers=BEARER).json()["id"]
        answers = set()
        for wanted, what in itertools.product((trace, "a" * 26, "../x"), ("traces", "regions", "jobs", "checks")):
            answers.add(server.client.get(f"/api/v1/{what}/{wanted}").text)
        for path in ("/api/v1/traces", "/api/v1/regions", "/api/v1/validations", "/api/v1/checks", "/metrics"):
            response = server.client.get(path)
            assert response.status_code == 401
            answers.add(response.text)
        assert len(answers) == 1
        assert trace not in answers.pop()
        assert server.client.get("/history", headers=HTML).status_code == 303
        assert server.client.get("/api/v1/traces", headers=BEARER).json()["items"][0]["id"] == trace


# -------------------------------------------------------------------------------------------------------- log injection


def test_log_injection_by_names_paths_headers_and_what_is_no_http(server: Process) -> None:
    for name in NAMES:
        server.client.post("/api/v1/traces", params={"name": name}, content=b"{}")
        server.client.post("/api/v1/traces", files={"file": (name.replace("\x00", ""), b"{")})
        server.client.get("/api/v1/jobs/" + re.sub("[^a-z%0-9]", "", name) + MARK)
        server.client.post("/api/v1/advice", json={"region": f"x: f32[4]\ny = {name}\nreturn y", "oracle": "off"})
        with server.connect() as connection:
            connection.sendall(f"GET /{name} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {name}\r\n\r\n".encode())
            connection.recv(1000)
    text = server.log.read_bytes().decode("utf-8", "strict")
    lines = text.split("\n")
    assert lines[-1] == ""
    assert len(lines) > len(NAMES)
    for line in lines[:-1]:
        assert line.isprintable(), line
        assert not line.lstrip().startswith(MARK), line


@pytest.mark.parametrize("form", [logs.TextLines(), logs.JsonLines()], ids=["text", "json"])
def test_log_injection_one_record_is_one_line(form: logging.Formatter) -> None:
    for name in NAMES:
        record = logging.LogRecord("x", logging.WARNING, "", 0, "read %r or %s", (name, name), None)
        line = form.format(record)
        assert line.isprintable()
        if isinstance(form, logs.JsonLines):
            assert json.loads(line)["message"] == f"read {name!r} or {name}"
