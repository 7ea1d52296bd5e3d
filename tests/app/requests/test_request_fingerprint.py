"""The same content once more is what is here already: traces and checks by their hash, also from several at once."""

from __future__ import annotations

import gzip
import importlib.metadata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.requests import request_fingerprint
from app.requests.uploads import Upload
from app.thresholds import DEFAULTS
from tests.app.check.hostile_trace import EXAMPLE
from tests.app.web.conftest import Serving, serving
from tests.profiler.trace.analyze.test_ranks import rank_file

Json = dict[str, Any]

BYTES = EXAMPLE.read_bytes()
REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
CONFIG = '[check]\nname = "block"\n[assertions]\ncompile = "error"\n'


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server whose jobs end at once with a made-up trace; nothing here depends on what is in it."""
    with serving(tmp_path_factory.mktemp("data"), "trace") as server:
        yield server


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path, "hang") as server:
        yield server


def upload(server: Serving, data: bytes = BYTES, query: str = "wait=30") -> httpx.Response:
    return server.client.post(f"/api/v1/traces?{query}", content=data)


def ids(server: Serving) -> list[str]:
    return [t["id"] for t in server.client.get("/api/v1/traces?limit=200").json()["items"]]


def test_the_same_bytes_are_the_same_trace_with_200(web: Serving) -> None:
    first = upload(web)
    files = web.files()
    again = upload(web, query="name=another")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert again.json()["name"] == first.json()["name"]
    assert again.headers["location"] == first.headers["location"]
    assert web.files() == files, "what was sent twice lies here once"
    form = web.client.post("/api/v1/traces?wait=30", files={"file": ("renamed.json.gz", BYTES)})
    assert (form.status_code, form.json()["id"]) == (200, first.json()["id"])
    page = web.client.post("/traces", files={"file": ("renamed.json.gz", BYTES)})
    assert page.headers["location"] == f"/traces/{first.json()['id']}"
    assert ids(web).count(first.json()["id"]) == 1


def test_fresh_reads_them_anew(web: Serving) -> None:
    data = gzip.compress(b'{"traceEvents": [], "fresh": 1}')
    first = upload(web, data)
    anew = upload(web, data, "wait=30&fresh=true")
    assert (anew.status_code, anew.json()["id"] != first.json()["id"]) == (201, True)


def test_what_lies_beside_a_trace_is_part_of_it(web: Serving) -> None:
    data, other = gzip.compress(b'{"traceEvents": [], "beside": 1}'), gzip.compress(b'{"traceEvents": []}')
    lender = upload(web, other).json()["id"]
    plain = upload(web, data).json()["id"]

    def beside(what: bytes) -> httpx.Response:
        files = {"file": ("a.json.gz", data), "companion": ("b.json.gz", what)}
        return web.client.post("/api/v1/traces?wait=30", files=files)

    first = beside(other)
    assert first.status_code == 201
    assert first.json()["id"] != plain
    again = beside(other)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    # By its id it is the same file.
    by_id = upload(web, data, f"wait=30&companion={lender}")
    assert (by_id.status_code, by_id.json()["id"]) == (200, first.json()["id"])
    assert beside(gzip.compress(b'{"traceEvents": [], "other": 1}')).status_code == 201
    assert upload(web, data, "wait=30&group=job").status_code == 201
    assert upload(web, data, "wait=30&group=job").status_code == 200


def test_ranks_in_one_form_are_one_set_however_often_it_is_sent(web: Serving, tmp_path: Path) -> None:
    def send(*ranks: int) -> httpx.Response:
        files = [("file", (f"{r}.json", rank_file(tmp_path, r, 100.0 * r + 100).read_bytes())) for r in ranks]
        return web.client.post("/api/v1/traces?wait=30", files=files)

    before = len(ids(web))
    first, again, more = send(0, 1), send(0, 1), send(0, 1, 2)
    assert [a.status_code for a in (first, again, more)] == [201, 200, 201]
    assert again.json()["id"] == first.json()["id"] != more.json()["id"]
    assert len(ids(web)) == before + 5


def test_a_trace_that_is_gone_or_failed_is_read_again(web: Serving, tmp_path: Path) -> None:
    data = gzip.compress(b'{"traceEvents": [], "gone": 1}')
    first = upload(web, data).json()["id"]
    assert web.client.delete(f"/api/v1/traces/{first}").status_code == 204
    assert upload(web, data).status_code == 201
    with serving(tmp_path, "crash") as crashing:
        failed = upload(crashing)
        assert failed.status_code == 422
        crashing.child("trace")
        read = upload(crashing)
        assert read.status_code == 201
        assert read.json()["id"] != failed.json()["trace"]


def test_many_at_once_make_one_trace(stuck: Serving) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: upload(stuck, query=""), range(8)))
    assert sorted(a.status_code for a in answers) == [200] * 7 + [201]
    assert len({a.json()["id"] for a in answers}) == 1
    assert len(stuck.files()) == 1


def test_after_an_upgrade_of_a_library_the_same_bytes_are_advised_on_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Upload(Path("x"), "x", "0" * 64, 1)
    request: Json = {"config": {}, "sources": [], "baseline": None, "archives": [], "max_uncompressed_bytes": 1}

    def both() -> tuple[str | None, str]:
        request_fingerprint._installed_versions.cache_clear()
        return request_fingerprint.of_trace(sent, None, {}, None, DEFAULTS), request_fingerprint.of_check(
            request, {}, DEFAULTS
        )

    before = both()
    assert both() == before
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99" if name == "torch" else real(name))
    after = both()
    monkeypatch.undo()
    assert both() == before
    assert not set(after) & set(before)


# -------------------------------------------------------------------------------------------------------------- checks


def check(server: Serving, config: str = CONFIG, data: bytes = BYTES) -> httpx.Response:
    files = {"file": ("step.json.gz", data), "config": ("tritonworthy.toml", config.encode())}
    return server.client.post("/api/v1/checks", files=files)


def test_the_same_check_is_one_job(stuck: Serving) -> None:
    first, again = check(stuck), check(stuck)
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json()["id"] == first.json()["id"]
    assert len(stuck.files()) == 1
    assert check(stuck, CONFIG.replace("error", "warn")).status_code == 202
    assert check(stuck, data=gzip.compress(b"{}")).status_code == 202
    body = {"regions": [REGION], "assertions": {"compile": "warn"}}
    texts = [stuck.client.post("/api/v1/checks", json=body) for _ in range(2)]
    assert [a.status_code for a in texts] == [202, 200]
    # A check that was stopped is done again.
    stuck.client.post(f"/api/v1/jobs/{first.json()['id']}/cancel")
    stuck.client.get(f"/api/v1/checks/{first.json()['id']}?wait=20")
    assert check(stuck).status_code == 202


def test_a_finished_check_stands_unless_it_measures(tmp_path: Path) -> None:
    with serving(tmp_path) as real:

        def ask(validate: bool) -> httpx.Response:
            body = {"regions": [REGION], "check": {"validate": validate}, "assertions": {"compile": "warn"}}
            response = real.client.post("/api/v1/checks?wait=120", json=body, timeout=150)
            assert response.json()["state"] == "done", response.text
            return response

        first, again = ask(False), ask(False)
        assert (first.status_code, again.status_code) == (202, 200)
        assert again.json() == first.json()
        measured, anew = ask(True), ask(True)
        assert (measured.status_code, anew.status_code) == (202, 202)
        assert measured.json()["id"] != anew.json()["id"]
        # A new record may say more: what rests on the archive is judged again.
        (tmp_path / "archive").mkdir(exist_ok=True)
        (tmp_path / "archive" / "x.json").write_text("{}")
        assert ask(False).status_code == 202
