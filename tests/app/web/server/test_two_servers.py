"""Two servers of one store, on each database: what one is asked for the other does, tells of, cancels and deletes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.web.conftest import Serving, serving

REGION = "x: f32[64]\ny = gelu(x) * 2\nreturn y\n"


@pytest.fixture
def two(tmp_path: Path, database_url: str) -> Iterator[tuple[Serving, Serving]]:
    """The first takes no jobs, so the second does them; each knows the shared folder by a path of its own."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "mounted").symlink_to(shared)
    settings = {"database_url": database_url}
    with (
        serving(tmp_path / "one", "trace", shared_dir=shared, **settings) as one,
        serving(tmp_path / "two", "trace", shared_dir=tmp_path / "mounted", **settings) as two,
    ):
        one.state.queue._claim = lambda kind: None
        yield one, two


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def validate(server: Serving) -> str:
    answer = server.client.post("/api/v1/validations", json={"region": REGION, "device": ["cpu"]})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def test_an_upload_to_one_is_read_by_the_other_and_deleted_by_it(two: tuple[Serving, Serving]) -> None:
    one, other = two
    form = {"file": ("a.json", b"[1, 2, 3]"), "execution_trace": ("e.json", b"{}")}
    made = one.client.post("/api/v1/traces?wait=20", files=form).json()
    assert (made["status"], made["events"]) == ("ready", len(b"[1, 2, 3]"))
    uploads = one.folder.parent / "shared" / "uploads"
    assert sorted(p.name for p in uploads.iterdir()) == [made["id"], f"{made['id']}.execution_trace"]
    asked = one.state.store.job_request(made["id"])
    assert str(uploads) not in str(asked)
    assert [r["name"] for r in other.client.get(f"/api/v1/traces/{made['id']}").json()["regions"]] == [
        "first",
        "second",
    ]
    assert other.client.delete(f"/api/v1/traces/{made['id']}").status_code == 204
    assert not list(uploads.iterdir())
    assert one.client.get(f"/api/v1/traces/{made['id']}").status_code == 404


def test_either_tells_the_events_of_a_job_and_resumes_where_the_other_stopped(two: tuple[Serving, Serving]) -> None:
    one, other = two
    job_id = validate(one)
    seen = []
    with one.client.stream("GET", f"/api/v1/jobs/{job_id}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("id: "):
                seen.append(int(line[4:]))
            if len(seen) == 2:
                break
    said = other.client.get(f"/api/v1/jobs/{job_id}/events", headers={"Last-Event-ID": str(seen[-1])}).text
    seen += [int(line[4:]) for line in said.splitlines() if line.startswith("id: ")]
    assert seen == list(range(1, len(seen) + 1))
    assert [line[7:] for line in said.splitlines() if line.startswith("event: ")][-1] == "done"
    assert one.client.get(f"/api/v1/jobs/{job_id}").json() == other.client.get(f"/api/v1/jobs/{job_id}").json()


def test_a_job_is_cancelled_by_the_server_that_does_not_run_it(two: tuple[Serving, Serving]) -> None:
    one, other = two
    other.child("hang")
    job_id = validate(one)
    until(lambda: other.state.store.job_state(job_id) == "running")
    asked = time.monotonic()
    assert one.client.post(f"/api/v1/jobs/{job_id}/cancel").json()["state"] == "running"
    until(lambda: one.state.store.job_state(job_id) == "cancelled")
    assert time.monotonic() - asked < 30  # a second until it is seen, 0.3 s of grace; by itself it would sleep a minute
