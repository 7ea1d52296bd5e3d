"""Nothing is lost and nothing is there twice after 500 kills, by the record; and the account of it is no empty one."""

from __future__ import annotations

import copy
import json
import os
import random
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.settings import Settings
from app.storage.store import Store
from benchmarks.server.kills import (
    NOTHING,
    RECORD,
    STRAY_S,
    Strays,
    choose,
    database_says,
    failed_claims,
    left_files,
    left_to_retention,
    victims,
)
from benchmarks.server.kills_load import FAULTS, Accepted, Outcome, Whole, account, trace
from benchmarks.server.processes import Process

Json = dict[str, Any]

PART: Json = {
    "changed": False, "kills": 500, "killed": {"server SIGKILL": 40, "child SIGKILL": 460}, "stop_s_max": 1.5,
    "died_at_the_end": False, "database": "ok", "states": {"read done": 90, "validate done": 50, "check done": 70},
    **dict.fromkeys(FAULTS, 0), "orphans": 0, "zombies": 0, "left_files": 0, "unexpected": [], "left_after_stop": [],
    "died_by_itself": [],
}  # fmt: skip
GOOD: Json = {"as_child": PART, "as_init": {**PART}}

recorded = pytest.mark.skipif(
    not RECORD.is_file(), reason="not measured on a quiet machine yet: benchmarks.server.kills"
)


@recorded
def test_record_holds_every_claim() -> None:
    assert failed_claims(json.loads(RECORD.read_text())) == []


@pytest.mark.parametrize("part", ["as_child", "as_init"])
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("kills", 499, "499 kills"),
        ("changed", True, "not in a commit"),
        ("died_at_the_end", True, "ended by itself"),
        ("stop_s_max", 10.5, "from SIGTERM"),
        ("database", "malformed page", "malformed page"),
        ("states", {"read done": 90, "check done": 70}, "no validate was done"),
        ("killed", {"child SIGKILL": 500}, "no server was killed"),
        ("killed", {"server SIGTERM": 500}, "no child was killed"),
        *((what, ["it"] if isinstance(PART[what], list) else 1, what) for what in NOTHING),
    ],
)
def test_a_record_that_does_not_hold_is_told(part: str, key: str, value: object, said: str) -> None:
    assert failed_claims(GOOD) == []
    worse = copy.deepcopy(GOOD)
    worse[part][key] = value
    (told,) = failed_claims(worse)
    assert said in told and told.startswith(part)


def test_a_part_that_was_not_measured_is_told() -> None:
    assert failed_claims({"as_child": PART}) == ["as_init: not measured"]


# ----------------------------------------------------------------------------------------------------------- account

WHOLE = Whole(2, 2, frozenset({"short"}))
PARTS = [{"id": "r1", "advice": {}}, {"id": "r2", "advice": {}}]
READ = Accepted("t", "read", "kills 1")
VALIDATE = Accepted("v", "validate", "return x")
CHECK = Accepted("c", "check", "")
ENDED: Json = {"state": "done", "error": None}
ROWS: dict[str, list[Json]] = {
    "read": [{"id": "t", "name": "kills 1", "status": "ready"}],
    "validate": [{"id": "v", "region": "return x", "state": "done"}],
    "check": [{"id": "c"}],
}
FOUND = {
    "t": Outcome(ENDED, {"regions": PARTS, "notes": [{"code": "short"}]}, 1),
    "v": Outcome(ENDED, {"outcome": "unmeasured"}, 1),
    "c": Outcome(ENDED, {"outcome": "passed"}, 1),
}


def faults(
    changed: dict[str, Outcome] | None = None, rows: dict[str, list[Json]] | None = None, **cut: int
) -> dict[str, int]:
    """How many of each fault there are; of none, nothing."""
    said = account([READ, VALIDATE, CHECK], FOUND | (changed or {}), ROWS | (rows or {}), cut, WHOLE)
    return {fault: len(told) for fault, told in said.items() if told}


def test_what_is_there_once_and_whole_is_no_fault() -> None:
    assert faults() == {}


def read(**trace: Any) -> dict[str, Outcome]:
    return {"t": replace(FOUND["t"], thing={"regions": PARTS, "notes": [], **trace})}


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"t": Outcome(None, None, 0)}, "lost"),
        ({"v": replace(FOUND["v"], thing=None)}, "lost"),
        ({"v": replace(FOUND["v"], job={"state": "running", "error": None})}, "unfinished"),
        ({"v": replace(FOUND["v"], done_events=0)}, "unfinished"),
        ({"v": replace(FOUND["v"], done_events=2)}, "twice"),
        ({"v": replace(FOUND["v"], thing={"outcome": None})}, "incomplete"),
        ({"c": replace(FOUND["c"], job={"state": "failed", "error": None})}, "unexplained"),
        ({"c": replace(FOUND["c"], job={"state": "failed", "error": {"code": "fault", "message": ""}})}, "unexplained"),
        (read(regions=PARTS[:1]), "incomplete"),
        (read(regions=[*PARTS, {"id": "r3", "advice": {}}]), "twice"),
        (read(regions=[PARTS[0], PARTS[0]]), "twice"),
        (read(regions=[PARTS[0], {"id": "r2", "advice": None}]), "incomplete"),
    ],
)
def test_each_fault_is_entered_where_it_belongs(changed: dict[str, Outcome], fault: str) -> None:
    assert faults(changed) == {fault: 1}


def test_a_part_without_advice_is_no_fault_where_a_note_says_why() -> None:
    parts = [PARTS[0], {"id": "r2", "advice": None}]
    assert faults(read(regions=parts, notes=[{"code": "region-failed"}])) == {}
    assert faults(read(regions=parts, notes=[{"code": "short"}])) == {"incomplete": 1}


def test_a_job_that_failed_and_says_why_is_no_fault() -> None:
    failed = {"state": "failed", "error": {"code": "worker-lost", "message": "The server stopped twice."}}
    assert faults({"v": Outcome(failed, {"outcome": None}, 1)}) == {}


def test_what_no_list_has_is_lost_and_what_it_has_twice_is_twice() -> None:
    assert faults(rows={"validate": []}) == {"lost": 1}
    assert faults(rows={"check": [{"id": "c"}, {"id": "c"}]}) == {"twice": 1}


def test_one_upload_that_became_two_traces_is_twice_unless_one_failed() -> None:
    again = {"id": "u", "name": "kills 1", "status": "ready"}
    assert faults(rows={"read": [*ROWS["read"], again]}, read=1) == {"twice": 1}
    assert faults(rows={"read": [*ROWS["read"], {**again, "status": "failed"}]}, read=1) == {}


def test_what_nobody_was_told_of_needs_a_request_that_was_cut_off() -> None:
    rows = {"check": [{"id": "c"}, {"id": "d"}]}
    assert faults(rows=rows, check=1) == {}
    assert faults(rows=rows) == {"unasked": 1}


def test_an_upload_answered_twice_with_one_id_is_one() -> None:
    said = account([READ, READ], FOUND, {**ROWS, "validate": [], "check": []}, {}, WHOLE)
    assert not any(said.values())


def test_no_two_uploads_have_the_same_content() -> None:
    assert len({trace(n) for n in range(5)}) == 5


# --------------------------------------------------------------------------------------------------------- processes


def process(pid: int, parent: int, state: str = "S", name: str = "python") -> Process:
    return Process(pid, name, parent, state, 1000 + pid)


def by_pid(*rows: Process) -> dict[int, Process]:
    return {row.pid: row for row in rows}


def test_any_living_process_below_the_server_may_be_killed_and_those_that_work_by_depth() -> None:
    rows = by_pid(
        process(2, 1),
        *(process(pid, 2) for pid in range(10, 30)),
        process(40, 10),
        process(41, 10, "Z"),
        *(process(pid, 40) for pid in range(60, 70)),
        process(50, 1),
    )
    by_depth = victims(2, rows)
    assert {depth: sorted(p.pid for p in of) for depth, of in by_depth.items()} == {
        1: list(range(10, 30)), 2: [40], 3: list(range(60, 70)),
    }  # fmt: skip
    rng = random.Random(1)
    first = {victim.pid for _, victim in filter(None, (choose(by_depth, True, rng) for _ in range(2000)))}
    assert first == set(range(10, 30))
    chosen = Counter(filter(None, (choose(by_depth, False, rng) for _ in range(2000))))
    assert {victim.pid for _, victim in chosen} == {40, *range(60, 70)}
    assert 850 < sum(count for (depth, _), count in chosen.items() if depth == 2) < 1150
    assert choose({1: by_depth[1]}, False, rng) is None


def unwatched(server_pid: int) -> Strays:
    """One whose looks the test takes itself."""
    return Strays(SimpleNamespace(process=SimpleNamespace(pid=server_pid)))  # type: ignore[arg-type]


ME, SERVER, CHILD, GRANDCHILD = 900001, 900002, 900003, 900004
"""Beyond the pids of most systems: nothing here is signalled, and `reap` of one of them finds no child."""


def test_who_loses_its_parent_and_stays_is_an_orphan() -> None:
    strays = unwatched(SERVER)
    server = process(SERVER, ME)
    strays.look(by_pid(server, process(CHILD, SERVER), process(GRANDCHILD, CHILD, name="worker")), ME, 0.0)
    alone = by_pid(server, process(GRANDCHILD, ME, name="worker"))
    strays.look(alone, ME, 1.0)
    strays.look(alone, ME, STRAY_S)
    assert strays.told("orphan") == []
    strays.look(alone, ME, STRAY_S + 1.0)
    assert strays.told("orphan") == ["worker"] and strays.told("zombie") == []


def test_an_orphan_that_the_server_as_init_adopted_is_one_too() -> None:
    strays = unwatched(SERVER)
    server = process(SERVER, ME)
    strays.look(by_pid(server, process(CHILD, SERVER), process(GRANDCHILD, CHILD)), ME, 0.0)
    alone = by_pid(server, process(GRANDCHILD, SERVER))
    for now in (1.0, 1.0 + STRAY_S):
        strays.look(alone, ME, now)
    assert len(strays.told("orphan")) == 1


def test_who_ends_in_time_is_none_of_them() -> None:
    strays = unwatched(SERVER)
    server = process(SERVER, ME)
    strays.look(by_pid(server, process(CHILD, SERVER), process(GRANDCHILD, CHILD)), ME, 0.0)
    strays.look(by_pid(server, process(GRANDCHILD, ME), process(CHILD, SERVER, "Z")), ME, 1.0)
    for now in (STRAY_S, 2 * STRAY_S, 3 * STRAY_S):
        strays.look(by_pid(server), ME, now)
    assert strays.left == {}


def test_a_pid_used_again_is_another_process() -> None:
    strays = unwatched(SERVER)
    server = process(SERVER, ME)
    for number in range(4):
        dead = Process(CHILD, "worker", SERVER, "Z", number)
        strays.look(by_pid(server, dead), ME, number * STRAY_S)
    assert strays.left == {}


def test_a_child_that_the_server_does_not_wait_for_is_a_zombie() -> None:
    strays = unwatched(SERVER)
    dead = by_pid(process(SERVER, ME), process(CHILD, SERVER, "Z", "worker"))
    for now in (0.0, STRAY_S):
        strays.look(dead, ME, now)
    assert strays.told("zombie") == ["worker"]


def test_the_dead_that_this_program_adopted_are_waited_for() -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    strays = unwatched(SERVER)
    strays.look(by_pid(process(ended.pid, os.getpid(), "Z")), os.getpid(), 0.0)
    with pytest.raises(ChildProcessError):
        os.waitpid(ended.pid, os.WNOHANG)
    ended.wait()
    assert strays.first_seen_s == {}


# -------------------------------------------------------------------------------------------------------------- disk


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "tritonworthy.db")) as database:
        database.execute("CREATE TABLE traces (id TEXT, file TEXT)")
        database.execute("CREATE TABLE jobs (id TEXT, state TEXT, request TEXT)")
        database.execute("INSERT INTO traces VALUES ('t', 't')")
        database.execute("INSERT INTO jobs VALUES ('t', 'done', '{}'), ('c', 'queued', '{\"path\": \"waits\"}')")
        database.commit()
    for name in ("uploads/t", "uploads/t.beside", "uploads/waits", "logs/t.log", "oracle/ab/answer.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def test_what_belongs_to_a_trace_or_a_job_is_not_left(data: Path) -> None:
    assert left_files(data) == []
    assert database_says(data) == "ok"


@pytest.mark.parametrize(
    "name", ["uploads/u", "uploads/u.beside", "logs/spare-1f.log", "logs/gone.log", "oracle/ab/tmpx1", "oracle/a.part"]
)
def test_what_belongs_to_nothing_is_left(data: Path, name: str) -> None:
    (data / name).write_bytes(b"x")
    assert left_files(data) == [name]


def test_an_upload_that_a_killed_server_had_begun_is_retentions(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    settings.make_folders()
    Store(settings.url, settings.uploads_dir).close()
    (settings.uploads_dir / "begun").write_bytes(b"{")
    assert left_files(tmp_path) == ["uploads/begun"]
    temporary = tmp_path / "temporary"
    (temporary / "tritonworthy-turn-x1").mkdir(parents=True)
    (temporary / "torchinductor_me").mkdir()
    assert left_to_retention(tmp_path, temporary) == 2
    assert [path.name for path in temporary.iterdir()] == ["torchinductor_me"]
    assert left_files(tmp_path) == []
