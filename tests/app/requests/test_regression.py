"""A validation held to the one before it on the same kind of GPU, and `tritonworthy watch` on a server's hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app import cli
from app.archive import record_store
from app.cli.servers.remote import Remote, RemoteError
from app.requests.regression import before
from tests.app.web.conftest import Serving, serving
from tests.processes import wait_for

Json = dict[str, Any]

RECORD: Json = json.loads(next(s.path for s in record_store.list_record_files() if "swiglu" in s.path.name).read_text())
TEXT = RECORD["region"].replace("8192", "4096")
UPGRADED = "99.1"


def scaled(candidate: Json, times: float) -> Json:
    """A candidate that takes so many times as long."""
    spans = ("time_us", "ratio_to_eager", "ratio_to_best_other")
    longer = {k: {m: v * times for m, v in candidate[k].items()} for k in spans if candidate.get(k)}
    shapes = {"shapes": [scaled(s, times) for s in candidate["shapes"]]} if "shapes" in candidate else {}
    return {**candidate, **longer, **shapes}


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    monkeypatch.setenv("REPLAYED", str(tmp_path / "record.json"))
    with serving(tmp_path / "data", "replayed") as server:
        wait_for(lambda: server.state.service.warm)
        yield server


def write(tmp_path: Path, torch: str, slower: tuple[str, ...] = ()) -> None:
    """What the next measurement will be: the record under that torch, candidates of these tools ten times as slow."""
    candidates = [scaled(c, 10.0) if c["tool"] in slower else c for c in RECORD["candidates"]]
    timed = [c for c in candidates if c["time_us"] and c["tool"] != "eager"]
    best = min(timed, key=lambda c: c["time_us"]["median"])["name"]
    body = {**RECORD, "region": TEXT, "candidates": candidates, "best": best}
    software = {**RECORD["software"], "torch": torch}
    (tmp_path / "record.json").write_text(json.dumps({**body, "software": software, "date": "2026-11-22"}))


def validated(web: Serving, **more: Any) -> Json:
    job = web.client.post("/api/v1/validations?wait=30", json={"region": TEXT, **more}).json()
    assert job["state"] == "done", job
    answer: Json = web.client.get(f"/api/v1/validations/{job['id']}/regression").json()
    return answer


def test_an_upgrade_that_turns_the_times_over_flips_the_advice(web: Serving, tmp_path: Path) -> None:
    write(tmp_path, "2.11.0")
    assert RECORD["advice_after"]["tool"] == "compile"
    first = validated(web)
    assert (first["action"], first["outcome"], first["record"]) == ("no-record", None, None)
    assert "NVIDIA H200" in first["because"]
    again = validated(web)
    assert (again["action"], again["outcome"], again["changed"]) == ("unchanged", "kept", [])
    write(tmp_path, UPGRADED, slower=("compile",))
    flipped = validated(web)
    assert (flipped["outcome"], flipped["changed"]) == ("flipped", ["torch"])
    assert flipped["before"]["tool"] == "compile" != flipped["after"]["tool"]
    assert f"torch 2.11.0 is now {UPGRADED}" in flipped["because"]
    newest = web.client.get("/api/v1/validations").json()["items"]
    pages = [web.client.get(f"/validations/{v['id']}").text for v in newest]
    assert ['id="since"' in page for page in pages] == [True, True, False]
    assert "the advice flipped" in pages[0] and "the advice holds" in pages[1]
    assert f"/compare?a={newest[1]['id']}&amp;b={newest[0]['id']}" in pages[0]
    assert flipped["record"] == newest[1]["id"], "the one just before it, not the first"


def test_a_record_of_the_archive_is_held_to_files_of_earlier_days(tmp_path: Path) -> None:
    own = tmp_path / "own"
    for day in ("2026-11-20", "2026-11-23"):
        record_store.record({**RECORD, "region": TEXT, "date": day}, "swiglu", own)
    with serving(tmp_path / "data", archive_dir=own) as web:
        older, newer = sorted(path.stem for path in own.iterdir())
        assert web.client.get(f"/api/v1/validations/{older}/regression").json()["record"] is None
        answer = web.client.get(f"/api/v1/validations/{newer}/regression").json()
        assert (answer["record"], answer["outcome"]) == (older, "kept")


def test_the_old_path_answers_as_the_new_one_and_is_described_as_the_old_one(tmp_path: Path) -> None:
    own = tmp_path / "own"
    for day in ("2026-11-20", "2026-11-23"):
        record_store.record({**RECORD, "region": TEXT, "date": day}, "swiglu", own)
    with serving(tmp_path / "data", archive_dir=own) as web:
        described = web.client.get("/openapi.json").json()["paths"]
        for name in (*(path.stem for path in own.iterdir()), "z" * 26):
            new, old = (web.client.get(f"/api/v1/validations/{name}/{last}") for last in ("regression", "since"))
            assert (old.status_code, old.json()) == (new.status_code, new.json())
        paths = [f"/api/v1/validations/{{validation_id}}/{last}" for last in ("regression", "since")]
        assert [described[path]["get"].get("deprecated", False) for path in paths] == [False, True]


def test_what_is_not_done_or_not_there_is_told(tmp_path: Path) -> None:
    with serving(tmp_path, "hang") as web:
        job = web.client.post("/api/v1/validations", json={"region": TEXT}).json()
        asked = web.client.get(f"/api/v1/validations/{job['id']}/regression")
        assert (asked.status_code, asked.json()["code"]) == (409, "validation-not-done")
        assert web.client.get(f"/api/v1/validations/{'z' * 26}/regression").status_code == 404


def watch(web: Serving, *more: str) -> int:
    return cli.main(["watch", "--server", web.url, *more])


def test_watch_measures_on_the_server_and_its_status_says_what_flipped(
    web: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "swiglu.txt"
    text.write_text(TEXT)
    assert watch(web) == 3
    assert "measured nothing" in capsys.readouterr().err
    write(tmp_path, "2.11.0")
    assert watch(web, str(text)) == 2, "there is nothing to hold it to"
    assert "no record: swiglu" in capsys.readouterr().out
    write(tmp_path, UPGRADED, slower=("compile",))
    assert watch(web, str(text)) == 0, "under the same versions nothing is measured again"
    assert "unchanged: swiglu" in capsys.readouterr().out
    assert watch(web, str(text), "--force", "--json") == 1
    (row,) = json.loads(capsys.readouterr().out)["items"]
    assert (row["name"], row["outcome"]) == ("swiglu", "flipped")
    assert watch(web) == 0, "and a flip is told once"
    capsys.readouterr()
    assert watch(web, "--force") == 0, "now the newest is the measure"
    assert "kept: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--server", "ftp://x"], "no address of a server"),
        (["--server", "http://me:secret@127.0.0.1:9"], "has no password in it"),
        (["--server", "http://127.0.0.1:9"], "does not answer"),
        (["--on", "H200"], "go with --server"),
        (["--server", "http://127.0.0.1:9", "--dry-run"], "are for this host"),
        (["--server", "http://127.0.0.1:9", "--token-file", "/nowhere"], "/nowhere"),
    ],
)
def test_what_cannot_be_asked_is_status_3(more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["watch", *more]) == 3
    assert said in capsys.readouterr().err


def test_a_full_queue_is_waited_for_and_every_row_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for size in (8, 16, 24, 32):
        files.append(tmp_path / f"r{size}.txt")
        files[-1].write_text(f"x: f32[{size}]\ny = relu(x) * 2\nreturn y\n")
    with serving(tmp_path / "data", "validation", queue_cap=1) as web:
        wait_for(lambda: web.state.service.warm)
        assert watch(web, *map(str, files), "--json") == 2
        rows = json.loads(capsys.readouterr().out)["items"]
        assert [r["name"] for r in rows] == ["r8", "r16", "r24", "r32"]
        assert all("no GPU" in r["because"] for r in rows)
        assert len(web.client.get("/api/v1/validations").json()["items"]) == 4


def test_keeping_a_measurement_hides_no_flip_and_a_part_of_the_candidates_is_none(tmp_path: Path) -> None:
    own = tmp_path / "own"
    body = {**RECORD, "region": TEXT, "date": "2026-11-20"}
    record_store.record(body, "swiglu", own)
    slow = [scaled(c, 10.0) if c["tool"] == "compile" else c for c in RECORD["candidates"]]
    fewer = [c for c in RECORD["candidates"] if c["tool"] == "eager"]
    record_store.record({**body, "date": "2026-11-21", "candidates": fewer, "best": "eager"}, "swiglu", own)
    validation = {**body, "id": "v", "date": "2026-11-22", "created_at": "2026-11-22T00:00:00Z", "candidates": slow}
    record_store.record({k: v for k, v in validation.items() if k != "created_at"} | {"best": "eager"}, "swiglu", own)
    record = before(validation, list(record_store.records(own)))
    assert record is not None and record["date"] == "2026-11-20"
    weighted = [{**c, "shapes": [{**s, "calls": 7.0} for s in c["shapes"]]} for c in slow]
    assert before({**validation, "candidates": weighted}, list(record_store.records(own))) is None


def test_a_kind_that_is_not_there_and_a_bad_region_are_the_servers_to_refuse(
    web: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "r.txt"
    text.write_text(TEXT)
    assert watch(web, str(text), "--on", "NVIDIA B200") == 3
    assert "the server says 422: 'NVIDIA B200' is not in this server" in capsys.readouterr().err
    text.write_text("nonsense")
    assert watch(web, str(text)) == 3
    assert "the server says 422: " in capsys.readouterr().err


def test_the_token_is_sent_and_never_to_another_host(tmp_path: Path) -> None:
    with serving(tmp_path, "hang", token="a" * 20) as web:
        for token in ("one\ntwo", "é" * 20, ""):
            with pytest.raises(RemoteError, match="printable ASCII") as refused:
                Remote(web.url, token)
            assert not token or token not in str(refused.value)
        with pytest.raises(RemoteError, match="401"):
            Remote(web.url).get("/api/v1/device")
        assert Remote(web.url + "/", "a" * 20).get("/api/v1/device")["gpu"] is None
        with pytest.raises(RemoteError, match="the server says 303"):
            Remote(web.url, "a" * 20).get("/region")
