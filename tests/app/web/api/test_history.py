"""/api/v1/history on a real server: runs are sent or kept by checks, series say what changed, and what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.history import jsonl
from app.history.model import Entry, Series, SeriesKey
from app.lru_cache import Recent
from app.objects.history import HistoryAppended, HistoryDetail, HistoryList
from app.requests import check_history
from app.web.api.history import BODY_BYTES
from tests.app.check.hostile_trace import EXAMPLE
from tests.app.objects.exact import differences
from tests.app.web.conftest import Serving, serving
from tools.checks.check_api import sample_runs

Json = dict[str, Any]
CONFIG = '[check]\nname = "block"\ndevice = "H200"\n'


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("shared"), "trace") as server:
        yield server


@pytest.fixture
def web(shared: Serving) -> Iterator[Serving]:
    """A server without a history."""
    yield shared
    for item in shared.client.get("/api/v1/history").json()["items"]:
        shared.client.delete(f"/api/v1/history/{item['id']}")


def send(server: Serving, runs: list[Json], **more: Any) -> httpx.Response:
    return server.client.post("/api/v1/history", json={"entries": runs}, **more)


def lines(runs: list[Json]) -> bytes:
    return "".join(json.dumps(run) + "\n" for run in runs).encode()


def send_lines(server: Serving, data: bytes, kind: str = "application/x-ndjson") -> httpx.Response:
    return server.client.post("/api/v1/history", content=data, headers={"Content-Type": kind})


def only_series(server: Serving) -> Json:
    (item,) = server.client.get("/api/v1/history").json()["items"]
    return item  # type: ignore[no-any-return]


def test_runs_that_are_sent_make_a_series_that_tells_the_planted_change(web: Serving) -> None:
    answer = send(web, sample_runs())
    assert answer.status_code == 200
    assert differences(HistoryAppended, answer.json()) == []
    assert answer.json() == {"added": 24, "known": 0, "other_values": [], "bad_lines": []}
    listed = web.client.get("/api/v1/history").json()
    assert differences(HistoryList, listed) == []
    item = only_series(web)
    assert (item["key"], item["runs"], len(item["recent"])) == (
        {"check": "nightly", "branch": "main", "subject": "step", "metric": "time"}, 24, 24
    )  # fmt: skip
    detail = web.client.get(f"/api/v1/history/{item['id']}").json()
    assert differences(HistoryDetail, detail) == []
    (change,) = detail["changes"]
    # 8 % were planted at run 16 of 24.
    assert change["cause"] == "regression"
    assert change["after"]["commit"] == sample_runs()[16]["commit"]
    assert change["ratio"]["low"] <= 1.08 <= change["ratio"]["high"]
    assert item["change"] == change
    assert [p["run"]["commit"] for p in detail["points"]] == [run["commit"] for run in sample_runs()]
    assert detail["checks"] == {} and detail["devices"] == ["NVIDIA H200"]
    assert detail["branches"] == [{"branch": "main", "id": item["id"]}]


def test_the_same_file_is_sent_again_as_it_grows(web: Serving) -> None:
    runs = sample_runs()
    assert send_lines(web, lines(runs[:10])).json() == {"added": 10, "known": 0, "other_values": [], "bad_lines": []}
    assert send_lines(web, lines(runs), "application/jsonl; charset=utf-8").json()["added"] == 14
    assert send_lines(web, lines(runs)).json() == {"added": 0, "known": 24, "other_values": [], "bad_lines": []}
    assert only_series(web)["runs"] == 24


def test_a_file_of_the_command_line_is_taken_as_it_was_written(web: Serving, tmp_path: Any) -> None:
    entries = [jsonl.parse_line(json.dumps(run).encode()) for run in sample_runs(6)]
    file = tmp_path / "history.jsonl"
    jsonl.append(file, entries)
    assert send_lines(web, file.read_bytes()).json()["added"] == 6


def test_lines_that_are_no_run_are_named_and_left_out(web: Serving) -> None:
    good = lines(sample_runs(3))
    too_long = json.dumps({**sample_runs(1)[0], "id": "x" * 65}).encode()
    sent = b'{"no": "run"}\n' + good + b"\n" + too_long + b'\n{"cut'
    answer = send_lines(web, sent).json()
    assert (answer["added"], [bad["number"] for bad in answer["bad_lines"]]) == (3, [1, 6, 7])
    assert "at most 64" in answer["bad_lines"][1]["problem"]


@pytest.mark.parametrize(
    ("body", "kind", "status", "code", "said"),
    [
        (b"", "application/x-ndjson", 422, "history-invalid", "There is no line"),
        (b"{}\n", "application/x-ndjson", 422, "history-invalid", "Line 1"),
        (b'{"entries', "application/json", 422, "invalid-json", "JSON"),
        (b'{"entries": [], "more": 1}', "application/json", 422, "history-invalid", "more"),
        (b'{"entries": [{}]}', "application/json", 422, "history-invalid", "entries[0]"),
        (b"x=1", "application/x-www-form-urlencoded", 415, "unsupported-media-type", "application/jsonl"),
        (b"x" * (BODY_BYTES + 1), "application/x-ndjson", 413, "body-too-large", str(BODY_BYTES)),
    ],
)
def test_what_is_no_history_is_refused_in_words(
    web: Serving, body: bytes, kind: str, status: int, code: str, said: str
) -> None:
    answer = send_lines(web, body, kind)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in problem["detail"]
    assert web.client.get("/api/v1/history").json()["items"] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("value", -1.0),
        ("value", "1"),
        ("samples", 0),
        ("samples", 2**60),
        ("spread", -0.1),
        ("unit", "u" * 501),
        ("value", 1e-300),
        ("value", 1e300),
        ("spread", 1e200),
        ("subject", "n\0ul"),
    ],
)
def test_a_measure_that_cannot_be_is_refused_with_its_place_and_nothing_is_kept(
    web: Serving, field: str, value: object
) -> None:
    runs = sample_runs(2)
    runs[1]["measures"][0][field] = value
    answer = send(web, runs)
    assert answer.status_code == 422, answer.text
    assert "entries[1]" in answer.json()["detail"]
    assert web.client.get("/api/v1/history").json()["items"] == []


def test_a_run_of_a_known_id_with_other_values_is_told_and_changes_nothing(web: Serving) -> None:
    runs = sample_runs(2)
    send(web, runs)
    runs[1]["measures"][0]["value"] = 1.0
    expected = {"added": 0, "known": 2, "other_values": [runs[1]["id"]], "bad_lines": []}
    assert send(web, runs).json() == expected
    assert send_lines(web, lines(runs)).json() == expected
    assert only_series(web)["recent"] == [run["measures"][0]["value"] for run in sample_runs(2)]


def test_an_entry_of_json_is_as_long_as_a_line_may_be(web: Serving) -> None:
    long = {**sample_runs(1)[0], "more": "x" * jsonl.MAX_LINE_BYTES}
    answer = send(web, [sample_runs(2)[1], long])
    assert (answer.status_code, answer.json()["detail"]) == (422, "entries[1]: longer than 1,000,000 bytes.")


def test_packed_runs_are_refused_as_packed(web: Serving) -> None:
    headers = {"Content-Type": "application/jsonl", "Content-Encoding": "gzip"}
    answer = web.client.post("/api/v1/history", content=gzip.compress(lines(sample_runs(1))), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")
    assert "Content-Encoding 'gzip'" in answer.json()["detail"]


def test_a_series_that_cannot_be_analysed_costs_its_own_change_alone(
    web: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(web, [*sample_runs(), *({**run, "id": f"b{n}", "branch": "broken"} for n, run in enumerate(sample_runs()))])
    real = check_history.series_of

    def broken(key: SeriesKey, entries: list[Entry]) -> Series:
        if key.branch == "broken":
            raise OverflowError
        return real(key, entries)

    monkeypatch.setattr(check_history, "series_of", broken)
    monkeypatch.setattr(check_history, "_newest", Recent(10))
    items = web.client.get("/api/v1/history").json()["items"]
    assert {item["key"]["branch"]: item["change"] is None for item in items} == {"main": False, "broken": True}


def test_lists_are_narrowed_and_paged_and_have_etags(web: Serving) -> None:
    other = [{**run, "id": f"o{n}", "branch": "topic"} for n, run in enumerate(sample_runs(6))]
    for run in other[3:]:
        run["environment"] = {**run["environment"], "device": "NVIDIA A100"}
    send(web, [*sample_runs(6), *other])

    def branches(**query: Any) -> list[str]:
        items = web.client.get("/api/v1/history", params=query).json()["items"]
        return [item["key"]["branch"] for item in items]

    assert sorted(branches()) == ["main", "topic"]
    assert branches(branch="topic") == branches(device="NVIDIA A100") == ["topic"]
    assert branches(check="no such") == []
    first = web.client.get("/api/v1/history", params={"limit": 1})
    assert 'rel="next"' in first.headers["link"]
    following = web.client.get("/api/v1/history", params={"limit": 1, "after": first.json()["next"]}).json()
    assert {first.json()["items"][0]["id"], following["items"][0]["id"]} == {
        item["id"] for item in web.client.get("/api/v1/history").json()["items"]
    }
    topic = web.client.get("/api/v1/history", params={"branch": "topic"}).json()["items"][0]["id"]
    narrowed = web.client.get(f"/api/v1/history/{topic}", params={"device": "NVIDIA A100"})
    assert len(narrowed.json()["points"]) == 3 and narrowed.json()["runs"] == 3
    assert len(web.client.get(f"/api/v1/history/{topic}", params={"runs": 2}).json()["points"]) == 2
    again = web.client.get(narrowed.url, headers={"If-None-Match": narrowed.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_deleted_series_is_gone_and_an_unknown_one_is_none(web: Serving) -> None:
    send(web, sample_runs(6))
    path = f"/api/v1/history/{only_series(web)['id']}"
    assert web.client.delete(path).status_code == 204
    for answer in (web.client.delete(path), web.client.get(path), web.client.get("/api/v1/history/nothing")):
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


def test_an_upload_says_how_large_it_may_be(web: Serving) -> None:
    assert send(web, sample_runs(1)).headers["upload-limit"] == f"max-size={BODY_BYTES}"


# ------------------------------------------------------------------------------------------------------- kept by checks


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server whose jobs are done for real."""
    with serving(tmp_path_factory.mktemp("data")) as server:
        yield server


def form(server: Serving, **fields: str) -> httpx.Response:
    files = [("file", ("step.json.gz", EXAMPLE.read_bytes())), ("config", (None, CONFIG))]
    files += [(name, (None, value)) for name, value in fields.items()]  # type: ignore[misc]
    return server.client.post("/api/v1/checks?wait=120", files=files, timeout=150)


def test_a_check_that_names_its_commit_is_kept_once_for_each_commit(real: Serving) -> None:
    sent = {"history": "true", "branch": "topic", "software": "torch=2.14.0, triton=3.8.0", "method": "profiler"}
    first = form(real, commit="a" * 40, **sent)
    assert (first.status_code, first.json()["state"]) == (202, "done"), first.text
    assert form(real, commit="a" * 40, **sent).status_code == 200, "the same check is here already"
    assert form(real, commit="b" * 40, **sent).status_code == 202, "the same trace of another commit is another run"
    items = real.client.get("/api/v1/history", params={"branch": "topic"}).json()["items"]
    step = next(item for item in items if item["key"]["subject"] == "step.json.gz")
    assert step["key"]["check"] == "block"
    detail = real.client.get(f"/api/v1/history/{step['id']}").json()
    assert [point["run"]["commit"] for point in detail["points"]] == ["a" * 40, "b" * 40]
    (value,) = {point["value"] for point in detail["points"]}
    check = real.client.get(f"/api/v1/checks/{first.json()['id']}").json()
    assert value == check["subjects"][0]["step_time_us"]
    environment = detail["points"][0]["run"]["environment"]
    assert environment["device"] == check["subjects"][0]["device"]
    assert {"torch": "2.14.0", "triton": "3.8.0"}.items() <= environment["software"].items()
    assert environment["method"].startswith("profiler")
    assert detail["checks"][detail["points"][0]["run"]["id"]] == check["id"]


def test_a_stored_trace_is_kept_under_the_default_branch(real: Serving) -> None:
    trace = real.client.post("/api/v1/traces?wait=120", content=EXAMPLE.read_bytes(), timeout=150).json()
    body = {"traces": [trace["id"]], "history": True, "commit": "c" * 40, "software": {"torch": "2.13.0"}}
    job = real.client.post("/api/v1/checks?wait=120", json=body, timeout=150).json()
    assert job["state"] == "done", job
    items = real.client.get("/api/v1/history", params={"branch": check_history.DEFAULT_BRANCH}).json()["items"]
    assert {item["newest"]["commit"] for item in items} == {"c" * 40}


def test_a_check_without_a_commit_is_in_no_history(real: Serving) -> None:
    before = real.client.get("/api/v1/history").json()
    assert form(real).json()["state"] == "done"
    region = {"regions": ["x: f32[64]\ny = gelu(x)\nreturn y\n"], "history": True, "commit": "d" * 40}
    measured_nothing = real.client.post("/api/v1/checks?wait=120", json=region, timeout=150)
    assert measured_nothing.json()["state"] == "done"
    assert real.client.get("/api/v1/history").json() == before


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"history": "true"}, "needs `commit`"),
        ({"commit": "a"}, "go with `history`"),
        ({"history": "yes", "commit": "a"}, "true or false"),
        ({"history": "true", "commit": "a", "software": "torch"}, "NAME=VERSION"),
        ({"history": "true", "commit": "a" * 201}, "at most 200"),
        ({"history": "true", "commit": "a; sh #"}, "a commit has letters"),
        ({"history": "true", "commit": "a", "software": "torch=1,torch=2"}, "torch twice"),
        ({"history": "true", "commit": "a", "branch": "b\x01"}, "control characters"),
    ],
)
def test_what_a_history_lacks_is_said_before_anything_is_done(real: Serving, fields: dict[str, str], said: str) -> None:
    answer = form(real, **fields)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert said in answer.json()["detail"]
    assert real.files() == [] or all("." not in name for name in real.files())
