"""An upload whose content is here already, while that trace is deleted: each interleaving, forced."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.check.config import DEFAULTS
from app.requests import checks as submit_check
from app.requests import traces as submit_trace
from app.requests.uploads import Received, Upload
from app.settings import Settings
from app.storage import checks, tables
from app.storage.database import new_id
from app.storage.store import Store
from tests.conftest import ROOT

EXAMPLE = ROOT / "app" / "examples" / "rms_norm_by_hand.txt"


@pytest.fixture
def state(tmp_path: Path, database_url: str) -> Iterator[Any]:
    """What submitting works on, with a queue that nobody serves."""
    settings = Settings(data_dir=tmp_path / "data", min_free_disk_bytes=0)
    settings.make_folders()
    store = Store(database_url, settings.uploads_dir)
    nobody = SimpleNamespace(wake=lambda kind: None, cancel=lambda job_id: None)
    yield SimpleNamespace(settings=settings, store=store, queue=nobody)
    store.close()


def files(state: Any) -> set[str]:
    return {path.name for path in state.settings.uploads_dir.iterdir()}


def once(after: Callable[[], None], call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, followed the first time by something that another request does."""
    left = [after]

    def called(*given: Any, **named: Any) -> Any:
        answer = call(*given, **named)
        if left:
            left.pop()()
        return answer

    return called


@pytest.mark.parametrize("point", ["add_trace", "trace", None])
def test_a_delete_during_an_identical_upload_takes_neither_answer_nor_file(
    state: Any, point: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit_trace.submit_file(state, EXAMPLE, "first")

    def delete() -> None:
        submit_trace.delete_trace(state, first["id"])

    if point:
        monkeypatch.setattr(state.store, point, once(delete, getattr(state.store, point)))
    second = submit_trace.submit_file(state, EXAMPLE, "second")
    assert second is not None
    assert second["status"] == "reading"
    known = state.store.trace(second["id"])
    if known is None:  # deleted after the answer was read: as if the delete had come after the upload
        assert point == "trace"
        assert files(state) == set()
        return
    assert files(state) == {state.store.trace_file(second["id"])}
    assert (state.settings.uploads_dir / second["id"]).read_bytes() == EXAMPLE.read_bytes()
    assert (second["id"] == first["id"]) == (point is None)


def test_a_check_that_is_removed_while_the_same_is_asked_for_is_queued_anew(
    state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, new = submit_check._queue(state, DEFAULTS, {}, [], None)
    assert new

    def remove() -> None:
        with state.store.database.write() as connection:
            connection.execute(tables.checks.delete().where(tables.checks.c.id == first["id"]))
            connection.execute(tables.jobs.delete().where(tables.jobs.c.id == first["id"]))

    monkeypatch.setattr(checks, "add", once(remove, checks.add))
    second, new = submit_check._queue(state, DEFAULTS, {}, [], None)
    assert new
    assert second["id"] != first["id"]
    assert state.store.job(second["id"])["state"] == "queued"


def test_a_rank_that_is_deleted_while_the_same_ranks_are_sent_again_stays(
    state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several ranks each is looked at again, and not the first alone."""

    def send() -> dict[str, str]:
        made = []
        for rank in range(2):
            path = state.settings.uploads_dir / new_id()
            path.write_text(f'{{"traceEvents": [], "rank": {rank}}}')
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            made.append(Upload(path, f"rank {rank}", content, path.stat().st_size))
        submit_trace._submit(state, Received(tuple(made), {}, {}), None, None, True)
        return {trace["name"]: trace["id"] for trace in state.store.traces()["items"]}

    ranks = send()
    monkeypatch.setattr(
        state.store, "trace", once(lambda: submit_trace.delete_trace(state, ranks["rank 1"]), state.store.trace)
    )
    listed = send()
    assert listed["rank 0"] == ranks["rank 0"] and listed["rank 1"] != ranks["rank 1"]
    assert files(state) == set(listed.values())
