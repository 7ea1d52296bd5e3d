"""The file: whole lines whoever writes at once, bad ones named, branches merged, each run once."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest

from app.history.jsonl import COMMIT_IS, LineError, append, merged, parse, read, render
from app.history.model import Environment
from app.history.to_json import entry_id, entry_json, entry_of
from tests.app.history.runs import H100, run


def test_what_was_appended_is_read_and_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.jsonl"
    runs = [run(n, 1000.0 + n) for n in range(3)]
    assert append(path, runs[:2]) == 2
    assert append(path, runs) == 1
    assert append(path, runs) == 0
    assert read(path).entries == tuple(runs)
    assert read(tmp_path / "none.jsonl").entries == ()
    assert [entry_of(entry_json(entry)) for entry in runs] == runs


def test_a_line_that_was_cut_keeps_its_place_and_the_next_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    append(path, [run(0, 1.0)])
    path.write_bytes(path.read_bytes() + render([run(1, 1.0)])[:40])
    append(path, [run(2, 1.0)])
    history = read(path)
    assert [entry.id for entry in history.entries] == ["run-main-0", "run-main-2"]
    assert [(bad.number, bad.problem) for bad in history.bad_lines] == [(2, "not JSON, or cut off")]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema": 2}, "written as schema 2, which this version does not read: it reads 1"),
        ({"measures": 3}, "no run of a check: Expected `array`, got `int` - at `$.measures`"),
        ({"at": "yesterday"}, "`at` is an ISO 8601 time such as 2026-11-26T11:30:00Z"),
        ({"id": ""}, "no run of a check: `id` and `check` are not empty"),
        ({"commit": "x" * 501}, "a text is longer than 500 characters"),
        ({"at": "9999-12-31T23:59:59-10:00"}, "`at` is an ISO 8601 time such as 2026-11-26T11:30:00Z"),
        ({"at": "0001-01-01T00:00:00+10:00"}, "`at` is an ISO 8601 time such as 2026-11-26T11:30:00Z"),
        ({"at": "0001-01-01T00:00:00Z"}, "`at` is in the years 1970 to 2200"),
        ({"at": "2201-01-01T00:00:00Z"}, "`at` is in the years 1970 to 2200"),
        ({"check": "n\0ul"}, "a text has control characters"),
        ({"parents": ["a"] * 17}, "more than 32 versions of software or 16 parents"),
        ({"commit": "a; curl evil|sh #"}, COMMIT_IS),
        ({"commit": "--orphan"}, COMMIT_IS),
        ({"parents": ["a", "$(b)"]}, COMMIT_IS),
    ],
)
def test_a_bad_line_says_what_is_wrong_with_it(change: dict[str, object], problem: str) -> None:
    line = json.dumps({**entry_json(run(0, 1.0)), **change}).encode()
    assert [bad.problem for bad in parse(b"\n" + line).bad_lines] == [problem]
    assert parse(b"\n" + line).bad_lines[0].number == 2


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-300, 1e300])
def test_a_value_that_no_measurement_has_is_refused(value: float) -> None:
    (bad,) = parse(render([run(0, value)])).bad_lines
    assert bad.problem == "step.json, step time: a value is from 1e-12 to 1e+18"


@pytest.mark.parametrize("spread", [-0.1, 101.0, 1e308])
def test_a_spread_that_no_samples_have_is_refused(spread: float) -> None:
    one = run(0, 1.0)
    (bad,) = parse(render([replace(one, measures=(replace(one.measures[0], spread=spread),))])).bad_lines
    assert bad.problem == "step.json, step time: a spread is from 0 to 100"


def test_more_versions_than_an_environment_has_are_refused() -> None:
    software = {f"n{n}": "1" for n in range(33)}
    (bad,) = parse(render([run(0, 1.0, Environment("NVIDIA H200", software))])).bad_lines
    assert bad.problem == "more than 32 versions of software or 16 parents"


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with pytest.raises(LineError, match="a commit has letters"):
        append(path, [run(0, 1.0), run(1, 1.0, commit="a b")])
    assert not path.exists()


@pytest.mark.parametrize("text", [b"[1]", b"null", b"1e999", b"\xff\xfe", b"[" * 100_000, b"{" + b" " * 1_000_001])
def test_a_hostile_line_is_a_bad_line(text: bytes) -> None:
    assert len(parse(text).bad_lines) == 1


def test_lines_of_two_branches_merge_by_time(tmp_path: Path) -> None:
    ours, theirs = [run(n, 1.0) for n in (0, 1, 4)], [run(n, 1.0) for n in (0, 2, 3)]
    text = render(ours) + render(theirs)
    assert [entry.id for entry in parse(text).entries] == [f"run-main-{n}" for n in range(5)]
    assert merged(ours, theirs) == parse(text).entries


def test_a_later_line_takes_no_runs_place() -> None:
    """Whoever adds a line with the id of a run that is there would rewrite what was measured."""
    honest = run(0, 1.0)
    (measure,) = honest.measures
    forged = replace(honest, measures=(replace(measure, value=2.0),))
    history = parse(render([honest, forged, replace(honest, at="2026-01-09T00:00:00Z")]))
    assert history.entries == (honest,)
    assert [(b.number, b.problem) for b in history.bad_lines] == [(2, "has the id of line 1 and other values")]


def _append_some(path: Path, writer: int) -> None:
    for number in range(20):
        append(path, [run(100 * writer + number, 1.0)])


def test_writers_at_once_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_some, args=(path, writer)) for writer in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    history = read(path)
    assert (len(history.entries), history.bad_lines) == (80, ())


def test_an_id_is_of_what_was_measured() -> None:
    one = run(0, 1.0)
    assert entry_id(one) == entry_id(replace(one, id="other"))
    assert entry_id(one) == entry_id(replace(one, at="2027-01-01T00:00:00.000000Z"))
    assert entry_id(one) != entry_id(run(0, 1.1))
    assert entry_id(one) != entry_id(replace(one, commit="other"))
    assert entry_id(one) != entry_id(replace(one, environment=H100))
    assert len(entry_id(one)) == 32


def test_a_pipe_a_link_and_a_large_file_are_no_history(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept\n")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "link.jsonl").symlink_to(victim)
    with (tmp_path / "large.jsonl").open("wb") as file:
        file.truncate(64_000_001)
    for name, problem in (("pipe", "no regular file"), ("link", "a symbolic link"), ("large", "larger than 64 MB")):
        path = tmp_path / f"{name}.jsonl"
        with pytest.raises(OSError, match=problem):
            read(path)
        with pytest.raises(OSError, match=problem):
            append(path, [run(0, 1.0)])
    assert victim.read_text() == "kept\n"
