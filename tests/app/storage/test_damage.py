"""Damage: what says that stored data is not what was written, and when a large file is read again."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.storage import damage
from app.storage.damage import Integrity, LostError, Presence, is_damage, is_whole
from app.storage.database import Database
from tests.processes import wait_for


def made(path: Path, rows: int = 2000) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        connection.executemany("INSERT INTO t (b) VALUES (?)", [("x" * 100,)] * rows)
        connection.commit()
    return path


def test_a_file_with_one_bad_page_is_not_whole(tmp_path: Path) -> None:
    path = made(tmp_path / "a b%20?.db")
    assert is_whole(path)
    with path.open("r+b") as file:
        file.seek(20 * 4096)
        file.write(os.urandom(4096))
    assert not is_whole(path)


def test_a_file_that_cannot_be_read_now_is_what_it_was(tmp_path: Path) -> None:
    assert is_whole(tmp_path / "none.db", True)
    assert not is_whole(tmp_path / "none.db", False)
    assert not (tmp_path / "none.db").exists(), "and is not made"


def test_a_large_file_keeps_nobody_waiting_and_is_read_a_twentieth_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, go, looks = [0.0], threading.Event(), []

    def slow(path: Path, unknown: bool) -> bool:
        looks.append(now[0])
        go.wait(20)
        now[0] += 10.0
        return False

    monkeypatch.setattr(damage, "is_whole", slow)
    integrity = Integrity(tmp_path, clock=lambda: now[0], wait_s=0.0)
    assert integrity() and integrity(), "as far as is known, while it is read once"
    go.set()
    assert wait_for(lambda: not integrity())
    wait_for(lambda: not integrity.looking)
    for now[0] in (11.0, 100.0, 209.0):
        integrity()
    assert looks == [0.0]
    now[0] = 211.0
    integrity()
    wait_for(lambda: looks == [0.0, 211.0])


@pytest.mark.parametrize("change", ["remove", "replace"])
def test_a_file_that_is_not_the_one_that_was_opened_is_gone(change: str, tmp_path: Path) -> None:
    path = made(tmp_path / "a.db")
    there = Presence(path)
    there()
    os.rename(made(tmp_path / "b.db"), path) if change == "replace" else path.unlink()
    with pytest.raises(LostError, match="is gone"):
        there()


def test_of_a_database_nothing_more_is_written_once_it_is_known_to_be_damaged(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a.db'}")
    with database.write() as connection:
        connection.execute(sa.text("CREATE TABLE notes (a TEXT)"))
    database.damaged = True
    with database.read() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM notes")) == 0, "what can be read is"
    with pytest.raises(LostError, match="damaged"), database.write():
        pass
    database.close()


def test_json_that_was_valid_when_it_was_written_and_is_none_is_damage(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a.db'}")
    with database.write() as connection:
        connection.execute(sa.text("CREATE TABLE notes (a JSON)"))
        connection.execute(sa.text("INSERT INTO notes VALUES ('{\"a\": \x01')"))
    table = sa.Table("notes", sa.MetaData(), sa.Column("a", sa.JSON))
    with pytest.raises(LostError, match="damaged"), database.read() as connection:
        connection.execute(sa.select(table.c.a)).all()
    database.close()


def test_errors_that_pass_are_no_damage() -> None:
    assert not is_damage(sqlite3.OperationalError("database is locked"))
    assert not is_damage(sqlite3.OperationalError("no such table: x"))
    assert is_damage(sqlite3.OperationalError("Could not decode to UTF-8 column 'a'"))
