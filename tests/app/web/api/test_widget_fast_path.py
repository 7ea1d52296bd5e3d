"""The widget's short way gives what the long way gives, and takes nothing that is not a widget's answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from app.advice.widget import BOUNDS, KINDS
from tests.app.web.conftest import Serving

JSON = {"Content-Type": "application/json"}
ANSWERS = {"share_of_step": 0.2, "uniqueness": 0.62, "irregularity": 0.35}


@pytest.mark.parametrize(("bound", "kind"), [(None, None), (BOUNDS[0], None), (None, "custom"), (BOUNDS[1], "gemm")])
def test_both_ways_give_the_same_bytes(web: Serving, bound: str | None, kind: str | None) -> None:
    service = web.state.service
    asked = {"widget": {**ANSWERS, "bound": bound, "kind": kind}}
    service.tables_maker.join()
    service.widget_tables.discard((bound, kind))
    assert not service.answers_at_once(**asked["widget"])
    long = web.client.post("/api/v1/advice", json=asked)
    assert service.answers_at_once(**asked["widget"])
    short = web.client.post("/api/v1/advice", json=asked)
    assert (short.status_code, short.content) == (long.status_code, long.content)
    assert {k: v for k, v in short.headers.items() if k != "date"} == {
        k: v for k, v in long.headers.items() if k != "date"
    }
    assert short.json()["criteria"]
    assert set(KINDS) > {"gemm", "custom"}


def test_a_started_server_makes_every_table_before_it_is_asked(web: Serving) -> None:
    service = web.state.service
    service.tables_maker.join()
    assert all(service.answers_at_once(bound=bound, kind=kind) for bound in (None, *BOUNDS) for kind in (None, *KINDS))


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 422, "invalid-json"),
        (b"[" * 900, 422, "invalid-json"),
        (b"", 422, "invalid-request"),
        (b'{"widget": {"uniqueness": 2, "irregularity": 0}}', 422, "invalid-request"),
        (b'{"widget": {"uniqueness": true, "irregularity": 0}}', 422, "invalid-request"),
        (b'{"widget": {"uniqueness": "0.5", "irregularity": 0}}', 422, "invalid-request"),
        (b'{"widget": {"uniqueness": NaN, "irregularity": 0}}', 422, "invalid-request"),
        (b'{"widget": {"uniqueness": 0, "irregularity": 0}, "more": 1}', 422, "invalid-request"),
        (b'{"widget": {"uniqueness": 0, "irregularity": 0}, "region": "x"}', 422, "invalid-request"),
        (b'{"widget": {"uniqueness": 0, "irregularity": 0}}' + b" " * 5000, 200, ""),
        (b'{"widget": {"share_of_step": null, "uniqueness": 0.5, "irregularity": 0}}', 200, ""),
    ],
)
def test_what_is_not_plainly_a_widget_is_answered_as_ever(web: Serving, body: bytes, status: int, code: str) -> None:
    web.client.post("/api/v1/advice", json={"widget": ANSWERS})
    answer = web.client.post("/api/v1/advice", content=body, headers=JSON)
    assert (answer.status_code, answer.json().get("code", "")) == (status, code)


def test_a_body_in_pieces_is_put_together(web: Serving) -> None:
    web.client.post("/api/v1/advice", json={"widget": ANSWERS})
    text = json.dumps({"widget": ANSWERS}).encode()

    def pieces() -> Iterator[bytes]:
        yield text[:10]
        yield text[10:]

    answer = web.client.post("/api/v1/advice", content=pieces(), headers=JSON)
    assert answer.json() == web.client.post("/api/v1/advice", json={"widget": ANSWERS}).json()


def test_a_body_that_does_not_say_that_it_is_json_is_refused(web: Serving) -> None:
    text = json.dumps({"widget": ANSWERS})
    assert web.client.post("/api/v1/advice", content=text, headers={"Content-Type": "text/plain"}).status_code == 415


def test_a_share_that_is_not_known_counts_as_worth_it(web: Serving) -> None:
    asked = {"uniqueness": 0.9, "irregularity": 0.9, "bound": "memory", "kind": "custom"}
    answer = web.client.post("/api/v1/advice", json={"widget": asked}).json()
    worth = next(c for c in answer["criteria"] if c["name"] == "worth-it")
    assert worth["holds"] is None
    assert (
        answer["tool"]
        == web.client.post("/api/v1/advice", json={"widget": {**asked, "share_of_step": 1}}).json()["tool"]
    )
    assert "share_of_step" not in {c["of"] for c in answer["would_change"]}


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/v1/traces", {"GET", "HEAD", "POST"}),
        ("/api/v1/traces/abc", {"GET", "HEAD", "DELETE", "PATCH"}),
        ("/api/v1/advice", {"POST"}),
    ],
)
def test_a_405_names_every_method_of_the_path(web: Serving, path: str, allowed: set[str]) -> None:
    answer = web.client.request("PUT", path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
