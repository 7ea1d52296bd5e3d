"""What HTTP itself says of the API's answers: tags and 304, limits, links to the next page, waiting for an end."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.check.hostile_trace import EXAMPLE
from tests.app.web.conftest import Serving, serving

Json = dict[str, Any]

REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("data"), queue_cap=8, max_upload_bytes=1_000_000) as server:
        yield server


@pytest.fixture(scope="module")
def trace(real: Serving) -> Json:
    answer: Json = real.client.post("/api/v1/traces?wait=120", content=EXAMPLE.read_bytes(), timeout=150).json()
    assert answer["status"] == "ready"
    return answer


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Serving]:
    """A server whose jobs never end, with room for two of a kind."""
    with serving(tmp_path, "hang", queue_cap=2) as server:
        yield server


NUMBER = itertools.count()


def check(server: Serving) -> httpx.Response:
    """A check that nobody made before: the same once more would be the same."""
    body = {"regions": [REGION], "check": {"name": f"check-{next(NUMBER)}"}}
    return server.client.post("/api/v1/checks", json=body)


# ---------------------------------------------------------------------------------------------------------------- tags


def test_every_get_of_the_api_has_a_tag_and_is_304_to_who_has_it(real: Serving, trace: Json) -> None:
    region = trace["regions"][0]["id"]
    for path in (
        "/api/v1/traces", f"/api/v1/traces/{trace['id']}", f"/api/v1/regions/{region}", "/api/v1/device",
        f"/api/v1/jobs/{trace['id']}", "/openapi.json", f"/traces/{trace['id']}.json", "/checks.json",
    ):  # fmt: skip
        first = real.client.get(path)
        tag = first.headers["etag"]
        assert first.status_code == 200
        assert first.headers["cache-control"] == "private, no-cache"
        assert tag.startswith('W/"'), "the same bytes may be sent compressed"
        for asked in (tag, tag.removeprefix("W/"), f'"x", {tag}', "*"):
            again = real.client.get(path, headers={"If-None-Match": asked})
            assert (again.status_code, again.content) == (304, b""), path
            assert again.headers["etag"] == tag
            assert "content-length" not in again.headers
            assert "content-security-policy" in again.headers
        other = real.client.get(path, headers={"If-None-Match": '"another"'})
        assert (other.status_code, other.content) == (200, first.content)


def test_what_changes_has_another_tag(real: Serving, trace: Json) -> None:
    before = real.client.get("/api/v1/checks")
    job = check(real).json()
    assert real.client.get(f"/api/v1/checks/{job['id']}?wait=60", timeout=90).json()["state"] == "done"
    after = real.client.get("/api/v1/checks", headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.headers["etag"] != before.headers["etag"]


def test_errors_changes_and_streams_have_no_tag(real: Serving, trace: Json) -> None:
    assert "etag" not in real.client.get(f"/api/v1/traces/{'a' * 26}", headers={"If-None-Match": "*"}).headers
    assert real.client.get(f"/api/v1/traces/{'a' * 26}", headers={"If-None-Match": "*"}).status_code == 404
    assert "etag" not in check(real).headers
    assert "etag" not in real.client.get("/").headers
    with real.client.stream("GET", f"/api/v1/jobs/{trace['id']}/events", headers={"If-None-Match": "*"}) as stream:
        assert stream.status_code == 200
        assert "etag" not in stream.headers
        assert "event: done" in stream.read().decode()


# -------------------------------------------------------------------------------------------------------------- limits


def limits(answer: httpx.Response) -> tuple[int, int]:
    """(quota, what is left of it) of the places in the queue."""
    policy = re.fullmatch(r'"(\w+)";q=(\d+);qu="concurrent-requests"', answer.headers["ratelimit-policy"])
    left = re.fullmatch(r'"(\w+)";r=(\d+)', answer.headers["ratelimit"])
    assert policy
    assert left
    assert policy[1] == left[1]
    return int(policy[2]), int(left[2])


def test_the_places_in_the_queue_are_told_until_there_is_none(stuck: Serving) -> None:
    first = check(stuck)
    assert first.status_code == 202
    deadline = time.monotonic() + 120
    while stuck.client.get(f"/api/v1/jobs/{first.json()['id']}").json()["state"] != "running":
        assert time.monotonic() < deadline
    answers = [check(stuck) for _ in range(3)]
    assert [a.status_code for a in answers] == [202, 202, 429]
    assert [limits(a) for a in answers] == [(2, 1), (2, 0), (2, 0)]
    assert int(answers[-1].headers["retry-after"]) > 0
    # Another kind of job has a queue of its own. It may run by now: then it takes no place.
    assert limits(stuck.client.post("/api/v1/validations", json={"region": REGION})) in ((2, 1), (2, 2))


def test_the_largest_upload_is_told_before_and_after_it(real: Serving) -> None:
    for answer in (real.client.get("/api/v1/traces"), real.client.post("/api/v1/traces", content=b"x" * 2_000_000)):
        assert answer.headers["upload-limit"] == "max-size=1000000"
    assert answer.status_code == 413


# --------------------------------------------------------------------------------------------------------------- pages


def test_a_list_is_walked_by_its_links_and_nothing_comes_twice(real: Serving) -> None:
    made = [check(real).json()["id"] for _ in range(5)]
    seen: list[str] = []
    path = "/api/v1/checks?limit=2"
    while path:
        answer = real.client.get(path)
        if not seen:
            check(real)  # what is added meanwhile moves no page
        seen += [item["id"] for item in answer.json()["items"]]
        link = answer.headers.get("link", "")
        assert bool(link) is (answer.json()["next"] is not None)
        match = re.fullmatch(r'<(/api/v1/checks\?[^>]*limit=2[^>]*)>; rel="next"', link)
        path = match[1] if match else ""
    assert len(seen) == len(set(seen))
    assert [i for i in seen if i in made] == made[::-1]


@pytest.mark.parametrize("what", ["traces", "regions", "validations", "checks"])
def test_a_cursor_that_is_none_of_ours_is_refused(real: Serving, what: str) -> None:
    for after in ("x", "~", "9999", "2026-11-22T14:17:27.000000Z~../../etc"):
        assert real.client.get(f"/api/v1/{what}", params={"after": after}).status_code == 422
    gone = f"2026-11-22T14:17:27.000000Z~{'a' * 26}"  # of a row that is not there any more
    assert real.client.get(f"/api/v1/{what}", params={"after": gone}).status_code == 200


# ------------------------------------------------------------------------------------------------------------- waiting


def test_waiting_ends_with_the_job_and_at_once_for_what_is_not_there(real: Serving, stuck: Serving) -> None:
    job = check(real).json()
    done = real.client.get(f"/api/v1/jobs/{job['id']}?wait=60", timeout=90).json()
    assert (done["state"], done["result"]["id"]) == ("done", job["id"])
    started = time.monotonic()
    for path in ("jobs", "traces", "validations", "checks"):
        assert real.client.get(f"/api/v1/{path}/{'a' * 26}?wait=60").status_code == 404
        assert real.client.get(f"/api/v1/{path}/{'a' * 26}?wait=-1").status_code == 422
    assert time.monotonic() - started < 20
    hangs = stuck.client.post("/api/v1/validations?wait=0.3", json={"region": REGION}).json()
    assert hangs["state"] in ("queued", "running")
    assert stuck.client.get(f"/api/v1/validations/{hangs['id']}?wait=0.3").json()["outcome"] is None


# ---------------------------------------------------------------------------------------------------------------- text


def test_half_a_surrogate_pair_in_a_name_is_json_that_can_be_read(real: Serving) -> None:
    """UTF-8 has none; a trace's JSON may, as an escape."""
    data = json.loads(gzip.decompress(EXAMPLE.read_bytes()))
    for event in data["traceEvents"]:
        if event.get("cat") == "kernel":
            event["name"] = f"\ud800{event['name']}"
    content = json.dumps(data).encode()
    response = real.client.post("/api/v1/traces?wait=120", content=gzip.compress(content))
    assert response.status_code == 201, response.text
    for path in (f"/api/v1/traces/{response.json()['id']}", f"/traces/{response.json()['id']}.json"):
        text = real.client.get(path).content.decode("utf-8")
        json.loads(text)
        assert "\N{REPLACEMENT CHARACTER}" in text
