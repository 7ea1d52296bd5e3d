"""Row "path traversal by upload name": a client's name is text, never a path; nor is an id of its making."""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.web.conftest import Serving, serving
from tests.app.web.routes import ACCESS

NAMES = (
    "../../x", "/etc/cron.d/x", "..\\..\\win.json", "C:\\x.json", "a\x00b", "x" * 10_000, ".", "..", "", "~/.ssh/x",
    "%2e%2e%2f%2e%2e%2fx", "....//....//x", "..;/x", "\u2025/\u2025/x", "-rf", "x\r\nX-Evil: 1", "nul\u202e.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server whose reader accepts everything."""
    with serving(tmp_path_factory.mktemp("parent") / "data", "trace", queue_cap=1000) as server:
        yield server


def some_names(count: int) -> list[str]:
    """Names of pieces that paths are made of, the same in every run."""
    chance = random.Random(7402)
    pieces = ["..", "/", "\\", ".", "%2e", "%2f", "\x00", "~", "etc", "C:", "\n", " ", "\u2215", *string.ascii_letters]
    return ["".join(chance.choices(pieces, k=chance.randint(1, 40))) for _ in range(count)]


def body_of(name: str, number: int) -> bytes:
    return json.dumps({"traceEvents": [], "name": name, "number": number}).encode()


def form(name: str) -> tuple[bytes, dict[str, str]]:
    """A form as a hostile client writes it: the name's bytes as they are."""
    # The file differs with the name: the same bytes would not be stored again.
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + name.encode() + b'"\r\n\r\n'
    return head + body_of(name, 1) + b"\r\n--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"}


def test_path_traversal_by_upload_name_writes_no_file_outside_the_uploads(web: Serving) -> None:
    outside = web.folder.parent

    def others() -> set[Path]:
        own = {web.folder / "uploads", web.folder / "logs"}
        return {p for p in outside.rglob("*") if not own & {p, *p.parents} and not p.name.startswith("tritonworthy.db")}

    before = others()
    for name in (*NAMES, *some_names(60)):
        content, headers = form(name)
        sent = web.client.post("/api/v1/traces", content=content, headers=headers)
        assert sent.status_code in (201, 400, 422), (name, sent.text)
        asked = web.client.post("/api/v1/traces", params={"name": name}, content=body_of(name, 2))
        assert asked.status_code in (201, 422), (name, asked.text)
        for response in (sent, asked):
            if response.status_code == 201:
                shown = response.json()["name"]
                assert not re.search(r"[/\\\x00-\x1f\u202e]", shown), shown
                assert 0 < len(shown) <= 200
    assert others() == before
    assert all(re.fullmatch(r"[a-z0-9]{26}", name) for name in web.files())


DOTS = "%2e%2e"  # a client would take the path apart itself where the dots are plain
IDS = (
    DOTS, f"{DOTS}%2f{DOTS}%2fetc%2fpasswd", f"{DOTS}/{DOTS}/etc/passwd", "A" * 26, "a" * 25, "a" * 27, "a" * 26, "%00",
    "é" * 26, "'--", "%5c%5chost%5cshare",
)  # fmt: skip


@pytest.mark.parametrize("path", sorted(p for (m, p) in ACCESS if m == "GET" and "_id}" in p))
def test_path_traversal_by_id_finds_nothing(web: Serving, path: str) -> None:
    for wanted in IDS:
        address = re.sub(r"\{\w+\}", wanted, path)
        response = web.client.get(address)
        assert response.status_code in (404, 422), (address, response.text[:200])
        assert "root:" not in response.text
