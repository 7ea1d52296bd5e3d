"""Uploads: what is refused leaves nothing behind, and no client chooses where a byte goes."""

from __future__ import annotations

import gzip
import hashlib
import random
import socket
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from app.errors import Problem
from app.requests import uploads
from app.requests.uploads import display_name
from app.settings import Settings
from app.storage.database import new_id
from tests.app.web.conftest import Serving, serving
from tests.profiler.trace.read.test_archive import archive
from tests.profiler.trace.read.test_members import zipped

BODY = b'{"traceEvents": []}'
LIMIT = 200_000


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that takes uploads up to LIMIT bytes, and drops one that stalls for a second."""
    settings: dict[str, Any] = {"max_upload_bytes": LIMIT, "upload_idle_timeout_s": 1.0}
    with serving(tmp_path_factory.mktemp("small"), "trace", **settings) as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_left(small: Serving) -> Iterator[None]:
    """After each test every file belongs to a trace that the API lists."""
    yield
    listed = {t["id"] for t in small.client.get("/api/v1/traces?limit=200").json()["items"]}
    assert set(small.files()) == listed
    assert {p.name for p in small.folder.iterdir()} <= {
        "uploads", "logs", "tritonworthy.db", "tritonworthy.db-wal", "tritonworthy.db-shm"
    }  # fmt: skip


def test_raw_body(small: Serving) -> None:
    response = small.client.post("/api/v1/traces?fresh=true&wait=20&name=my+step", content=BODY)
    assert response.status_code == 201
    trace = response.json()
    assert response.headers["location"] == f"/api/v1/traces/{trace['id']}"
    assert trace["name"] == "my step"
    assert trace["status"] == "ready"
    assert trace["events"] == len(BODY) == trace["bytes"]
    assert trace["sha256"] == hashlib.sha256(BODY).hexdigest()


def test_multipart_gives_the_same_bytes(small: Serving) -> None:
    packed = gzip.compress(BODY)
    files = {"file": ("step.json.gz", packed, "application/gzip")}
    response = small.client.post("/api/v1/traces?fresh=true&wait=20", files=files, data={"other": "field"})
    assert response.status_code == 201
    assert response.json()["name"] == "step.json.gz"
    assert response.json()["sha256"] == hashlib.sha256(packed).hexdigest()


def test_a_chunked_body_has_no_length_and_works(small: Serving) -> None:
    def chunks() -> Iterator[bytes]:
        for start in range(0, len(BODY), 5):
            yield BODY[start : start + 5]

    response = small.client.post("/api/v1/traces?fresh=true&wait=20", content=chunks())
    assert response.json()["sha256"] == hashlib.sha256(BODY).hexdigest()


def test_without_wait_it_answers_at_once(small: Serving) -> None:
    small.child("hang")
    started = time.monotonic()
    trace = small.client.post("/api/v1/traces?fresh=true", content=BODY).json()
    assert trace["status"] == "reading"
    assert trace["regions"] == []
    waited = small.client.post("/api/v1/traces?fresh=true&wait=0.3", content=BODY)
    assert (waited.status_code, waited.json()["status"]) == (201, "reading")
    assert time.monotonic() - started < 30  # the job sleeps a minute
    for item in small.client.get("/api/v1/traces?limit=2").json()["items"]:
        assert small.client.delete(f"/api/v1/traces/{item['id']}").status_code == 204
    small.child("trace")


@pytest.mark.parametrize("content", [b"", None])
def test_empty(small: Serving, content: bytes | None) -> None:
    response = small.client.post("/api/v1/traces?fresh=true&wait=5", content=content)
    assert response.status_code == 422
    assert response.json()["code"] == "trace-empty"


def test_empty_multipart_file(small: Serving) -> None:
    response = small.client.post("/api/v1/traces", files={"file": ("x.json", b"")})
    assert (response.status_code, response.json()["code"]) == (422, "trace-empty")


def test_a_form_without_a_file(small: Serving) -> None:
    response = small.client.post("/api/v1/traces", files={"other": ("x.json", BODY)})
    assert (response.status_code, response.json()["code"]) == (422, "upload-not-a-file")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no boundary here",
        b"--b\r\nContent-Disposition: form-data; name=file; filename=x\r\n\r\ncut off",
        b"--b\r\nbroken header\r\n\r\nx\r\n--b--\r\n",
        b"\x00" * 1000,
    ],
)
def test_broken_multipart(small: Serving, body: bytes) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    response = small.client.post("/api/v1/traces", content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["code"] == "bad-multipart"


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=" + "b" * 5000])
def test_a_boundary_that_is_none(small: Serving, kind: str) -> None:
    response = small.client.post("/api/v1/traces", content=b"x", headers={"Content-Type": kind})
    assert response.status_code == 400


@pytest.mark.parametrize("extra", [1, 100_000, 10_000_000])
def test_too_large(small: Serving, extra: int) -> None:
    content = b" " * (LIMIT + extra)

    def chunks() -> Iterator[bytes]:
        yield content

    for body in ({"content": content}, {"content": chunks()}, {"files": {"file": ("x", content)}}):
        response = small.client.post("/api/v1/traces", **body)  # type: ignore[arg-type]
        assert response.status_code == 413, body.keys()
        assert response.json()["code"] in ("upload-too-large", "body-too-large")
    assert small.client.post("/api/v1/traces?fresh=true&wait=20", content=content[:LIMIT]).status_code == 201


def test_an_announced_size_is_refused_before_it_is_sent(small: Serving) -> None:
    host, port = small.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        head = f"POST /api/v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10**12}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")


def test_an_unknown_content_encoding(small: Serving) -> None:
    response = small.client.post("/api/v1/traces", content=BODY, headers={"Content-Encoding": "br"})
    assert (response.status_code, response.json()["code"]) == (415, "unsupported-media-type")


def test_a_connection_that_is_cut_and_one_that_stalls(small: Serving) -> None:
    host, port = small.url.removeprefix("http://").split(":")
    head = b"POST /api/v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nsome"
    with socket.create_connection((host, int(port)), timeout=5) as cut:
        cut.sendall(head)
        time.sleep(0.2)
    with socket.create_connection((host, int(port)), timeout=5) as stalled:
        stalled.sendall(head)
        assert small.client.get("/healthz").status_code == 200
        assert stalled.recv(1000).startswith(b"HTTP/1.1 408")
    deadline = time.monotonic() + 120
    while len(small.files()) != len(small.client.get("/api/v1/traces?limit=200").json()["items"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)


NAMES = [
    "../../etc/passwd",
    "/abs/olute.json",
    "..\\..\\win.json",
    ".",
    "..",
    "a\x00b",
    "x" * 400,
    "<script>alert(1)</script>",
    "trace\r\nSet-Cookie: a=b",
    "%2e%2e%2fx",
    "",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text_and_never_paths(small: Serving, name: str) -> None:
    before = {p for p in small.folder.parent.rglob("*") if small.folder not in p.parents}
    for response in (
        small.client.post("/api/v1/traces", params={"name": name, "fresh": True}, content=BODY),
        small.client.post("/api/v1/traces?fresh=true", files={"file": (name or "n", BODY)}),
    ):
        assert response.status_code == 201
        assert response.json()["name"] in (display_name(name), display_name(unquote(name)), "trace", "n")
    assert {p for p in small.folder.parent.rglob("*") if small.folder not in p.parents} == before
    assert all(len(f) == 26 and f.isalnum() for f in small.files())
    for item in small.client.get("/api/v1/traces?limit=2").json()["items"]:
        assert small.client.delete(f"/api/v1/traces/{item['id']}").status_code == 204


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("../../x.json", "x.json"),
        ("C:\\a\\b.json.gz", "b.json.gz"),
        ("..", "trace"),
        (None, "trace"),
        ("a\u202eb\x00c\n", "abc"),
        ("日本.json", "日本.json"),
        ("y" * 999, "y" * 200),
    ],
)
def test_display_names(given: str | None, shown: str) -> None:
    assert display_name(given) == shown


def test_a_full_disk_is_said_and_the_next_upload_works(small: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = uploads.shutil.disk_usage
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda path: usage(path)._replace(free=1000))
    for body in ({"content": BODY}, {"files": {"file": ("x", BODY)}}):
        response = small.client.post("/api/v1/traces", **body)  # type: ignore[arg-type]
        assert (response.status_code, response.json()["code"]) == (507, "disk-full")
    assert small.client.get("/readyz").status_code == 503
    monkeypatch.undo()
    assert small.client.post("/api/v1/traces?fresh=true&wait=20", content=BODY).status_code == 201
    deadline = time.monotonic() + 120  # what was found is kept for a moment
    while small.client.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_deleted_trace_takes_its_file_along(small: Serving) -> None:
    trace = small.client.post("/api/v1/traces?fresh=true&wait=20", content=BODY).json()
    assert trace["id"] in small.files()
    assert small.client.delete(f"/api/v1/traces/{trace['id']}").status_code == 204
    assert trace["id"] not in small.files()
    assert small.client.get(f"/api/v1/traces/{trace['id']}").status_code == 404
    assert small.client.delete(f"/api/v1/traces/{trace['id']}").status_code == 404
    assert small.client.get(f"/api/v1/regions/{trace['regions'][0]['id']}").status_code == 404


def test_memory_does_not_grow_with_the_upload(tmp_path: Path) -> None:
    def rss() -> int:
        fields = Path("/proc/self/statm").read_text().split()
        return int(fields[1]) * 4096

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield bytes(1 << 20)

    with serving(tmp_path, "trace") as web:
        web.client.post("/api/v1/traces?fresh=true&wait=20", content=BODY)
        before = rss()
        assert web.client.post("/api/v1/traces?fresh=true&wait=20", content=chunks()).json()["bytes"] == 100 << 20
        assert rss() - before < 50 << 20


def test_of_a_form_with_many_files_one_is_open_at_a_time(tmp_path: Path) -> None:
    """Every file of 18 forms open until the last byte came were all descriptors of the server."""
    settings = Settings(data_dir=tmp_path, min_free_disk_bytes=0)
    settings.make_folders()
    taken = uploads._Taken(tmp_path / new_id(), settings, None, uploads.Form())
    for number in range(5):
        taken.take([uploads.Part(uploads.TRACE_FIELD, f"rank {number}"), b"{}"])
        assert [file.file.closed for _, file in taken.files] == [True] * number + [False]
    assert [trace.size for trace in taken.finish(None).traces] == [2] * 5


def taken_of(folder: Path, *files: bytes) -> uploads._Taken:
    """The files of one form, as they were received."""
    settings = Settings(data_dir=folder, min_free_disk_bytes=0)
    settings.make_folders()
    taken = uploads._Taken(settings.uploads_dir / new_id(), settings, None, uploads.Form())
    for number, data in enumerate(files):
        taken.take([uploads.Part(uploads.TRACE_FIELD, f"file {number}"), data])
    return taken


def refusal(taken: uploads._Taken) -> Problem:
    """What the files are refused with. Nothing of them may stay."""
    with pytest.raises(Problem) as refused:
        taken.finish(None)
    taken.drop()
    assert list(taken.settings.uploads_dir.iterdir()) == []
    return refused.value


def test_archives_of_one_form_have_no_more_traces_together_than_a_form_has_files(tmp_path: Path) -> None:
    half = zipped({f"rank{i}.json": BODY for i in range(uploads.MAX_FILES // 2)})
    assert len(taken_of(tmp_path / "full", half, half).finish(None).traces) == uploads.MAX_FILES
    for name, more in (("an archive", (half, half, half)), ("a file", (half, half, BODY))):
        refused = refusal(taken_of(tmp_path / name, *more))
        assert (refused.status, refused.code) == (422, "too-many-files")


@pytest.mark.parametrize("packed", [True, False])
def test_a_tape_that_breaks_off_in_its_second_trace_leaves_itself_only(tmp_path: Path, packed: bool) -> None:
    noise = random.Random(0).randbytes(100_000)
    data = archive({"rank0.json": BODY, "rank1.json": b"[" + noise}, packed=packed)
    cut = data[: len(data) - 60_000]
    taken = taken_of(tmp_path, cut)
    assert [trace.size for trace in taken.finish(None).traces] == [len(cut)]
    assert list(taken.settings.uploads_dir.iterdir()) == [taken.path]
    assert [file.file.closed for _, file in taken.files] == [True]


def test_a_zip_whose_second_trace_is_damaged_is_no_single_trace(tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(100_000)
    data = bytearray(zipped({"rank0.json": BODY, "rank1.json": b"[" + noise}))
    data[50_000:50_020] = bytes(20)
    refused = refusal(taken_of(tmp_path, bytes(data)))
    assert (refused.status, refused.code) == (422, "trace-truncated")


@pytest.mark.parametrize("write", [archive, zipped], ids=["tar.gz", "zip"])
def test_a_configuration_next_to_a_trace_is_no_rank(tmp_path: Path, write: Callable[[dict[str, bytes]], bytes]) -> None:
    taken = taken_of(tmp_path, write({"config.json": b'{"lr": 0.1}', "rank0.json": BODY}))
    (trace,) = taken.finish(None).traces
    assert gzip.decompress(trace.path.read_bytes()) == BODY


def test_a_packing_that_is_not_unpacked_here_is_said(tmp_path: Path) -> None:
    refused = refusal(taken_of(tmp_path, zipped({"rank0.json": BODY}, zipfile.ZIP_BZIP2)))
    assert refused.status == 422
    assert "bzip2" in refused.detail
