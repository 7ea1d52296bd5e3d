"""A database of unknown origin: what it holds is data, whatever its schema would have run."""

from __future__ import annotations

import random
import sqlite3
import time
import tracemalloc
from pathlib import Path

import pytest

from profiler.trace import TraceError, read_trace
from profiler.trace.read.formats import sqlite_file
from profiler.trace.read.formats.nsys import TABLES
from profiler.trace.read.formats.sqlite_file import MOST_VALUE_BYTES, open_database
from tests.profiler.trace.files import SMALL, loaded, written
from tests.profiler.trace.nsys_export import Export, export
from tests.profiler.trace.read.formats.test_nsys import kernel_times

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COLUMNS = "start INTEGER, end INTEGER, streamId INTEGER, correlationId INTEGER, demangledName INTEGER"


def database(path: Path, *statements: str) -> Path:
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()
    return path


@pytest.fixture
def made(tmp_path: Path) -> Path:
    run = Export(tmp_path / "run.sqlite")
    for number in range(20):
        run.kernel(number * 100, number * 100 + 50, number + 1, f"kernel {number}")
    run.close()
    return tmp_path / "run.sqlite"


def altered(path: Path, *statements: str) -> Path:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()
    return path


def test_a_view_in_the_place_of_a_table_is_never_run(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start, x AS end FROM n"
    path = database(
        tmp_path / "v.sqlite", f"CREATE VIEW {KERNELS} AS {endless}", "CREATE TABLE NVTX_EVENTS (start, end)"
    )
    started = time.process_time()
    assert len(read_trace(path).kernels.name) == 0
    assert time.process_time() - started < 5


def test_a_virtual_table_is_never_opened(tmp_path: Path) -> None:
    path = database(tmp_path / "v.sqlite", f"CREATE VIRTUAL TABLE {KERNELS} USING fts5(start, end)",
                    "CREATE TABLE NVTX_EVENTS (start, end)")  # fmt: skip
    assert len(read_trace(path).kernels.name) == 0


def test_a_generated_column_is_never_computed(tmp_path: Path) -> None:
    path = database(
        tmp_path / "g.sqlite",
        f"CREATE TABLE {KERNELS} (start INTEGER, end INTEGER, streamId AS (start * 7) VIRTUAL, "
        "correlationId INTEGER AS (start) STORED)",
        f"INSERT INTO {KERNELS} (start, end) VALUES (1, 2)",
    )
    with open_database(path, TABLES) as opened:
        assert opened.tables == {KERNELS: ("start", "end")}
        assert list(opened.rows(KERNELS, ("start", "streamId", "correlationId"), 10)) == [(1, None, None)]


def test_only_the_wanted_tables_and_stored_columns_can_be_read(made: Path) -> None:
    with open_database(made, TABLES) as opened:
        connection = opened._connection
        for statement in (
            "ATTACH ':memory:' AS other", "PRAGMA user_version = 3", "DELETE FROM StringIds", "CREATE TABLE x (y)",
            "SELECT load_extension('x')", "SELECT randomblob(10)",
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x FROM n",
        ):  # fmt: skip
            with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
                connection.execute(statement).fetchone()
        assert connection.getlimit(sqlite3.SQLITE_LIMIT_ATTACHED) == 0


def test_triggers_and_strange_indices_are_no_hindrance(made: Path) -> None:
    altered(
        made, f"CREATE INDEX i ON {KERNELS} (start)", f"CREATE INDEX part ON {KERNELS} (end) WHERE end > 3",
        f"CREATE TRIGGER t AFTER INSERT ON {KERNELS} BEGIN DELETE FROM StringIds; END",
        "CREATE VIEW v AS SELECT * FROM StringIds",
    )  # fmt: skip
    assert len(read_trace(made).kernels.name) == 20


def test_names_that_look_like_statements_are_names(tmp_path: Path) -> None:
    path = database(tmp_path / "q.sqlite", f'CREATE TABLE {KERNELS} (start, end, "x"" FROM StringIds; --", "1")',
                    f"INSERT INTO {KERNELS} VALUES (1, 2, 3, 4)")  # fmt: skip
    assert len(read_trace(path).kernels.name) == 1


def test_a_text_that_is_too_long_is_refused_unread(made: Path) -> None:
    altered(made, f"UPDATE StringIds SET value = hex(zeroblob({MOST_VALUE_BYTES})) WHERE id = 1")
    tracemalloc.start()
    try:
        with pytest.raises(TraceError) as refused:
            read_trace(made)
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024**2
    finally:
        tracemalloc.stop()
    assert (refused.value.code, "1 MiB" in refused.value.message) == ("trace-too-large", True)


def test_texts_that_are_too_many_are_refused(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler.trace.read.formats.nsys.MOST_TEXT_CHARS", 100)
    with pytest.raises(TraceError, match="more than 100 characters"):
        read_trace(made)


def test_a_file_that_takes_too_long_is_given_up(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "MOST_READ_S", -1.0)
    monkeypatch.setattr(sqlite_file, "_STEPS", 1)
    with pytest.raises(TraceError) as refused:
        read_trace(made)
    assert refused.value.code == "trace-too-large"


def test_a_name_that_is_no_utf_8_is_shown_as_well_as_it_can_be(made: Path) -> None:
    altered(made, "UPDATE StringIds SET value = CAST(x'6bff' AS TEXT) WHERE id = 1")
    assert "k\ufffd" in read_trace(made).names


def test_nothing_is_written_and_no_journal_is_followed(made: Path) -> None:
    """A hot journal beside the file would be rolled back into it by any other opener."""
    before = made.read_bytes()
    (made.parent / "run.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    (made.parent / "run.sqlite-wal").write_bytes(b"\x37\x7f\x06\x82" + bytes(500))
    listed = sorted(made.parent.iterdir())
    made.chmod(0o400)
    assert len(read_trace(made).kernels.name) == 20
    assert made.read_bytes() == before
    assert sorted(made.parent.iterdir()) == listed


def test_a_path_of_strange_characters_opens_the_file_itself(made: Path) -> None:
    for name in ("a?mode=rwc&x=%41.sqlite", "a#b.sqlite", "ä ö%2e.sqlite"):
        path = written(made.parent, made.read_bytes(), name)
        assert len(read_trace(path).kernels.name) == 20


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        ((), "no nsys export"),
        (("CREATE TABLE bookmarks (id INTEGER, url TEXT)",), "no nsys export"),
        (("CREATE TABLE StringIds (id INTEGER, value TEXT)",), "no kernels, no calls"),
    ],
    ids=["empty", "another program's", "strings alone"],
)
def test_a_database_of_another_program_is_refused_in_words(
    statements: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    path = database(tmp_path / "other.sqlite", "PRAGMA user_version = 1", *statements)
    with pytest.raises(TraceError) as refused:
        read_trace(path)
    assert (refused.value.code, words in refused.value.message) == ("trace-not-a-trace", True)
    assert "nsys export --type sqlite" in refused.value.remedy


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5, 0.9])
def test_a_cut_export_is_refused_in_words(share: float, tmp_path: Path) -> None:
    data = export(loaded(SMALL), tmp_path / "run.sqlite").read_bytes()
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path, data[: int(len(data) * share)]))
    assert refused.value.code == "trace-bad-sqlite"
    assert refused.value.message.startswith("The database is damaged or cut off")
    assert "nsys export --type sqlite" in refused.value.remedy


def test_an_encrypted_or_overwritten_one_is_refused_in_words(made: Path) -> None:
    data = made.read_bytes()
    noise = random.Random(3).randbytes(len(data) - 16)
    for broken in (data[:16] + noise, data[:100] + bytes(len(data) - 100), data[:16] + b"\xff" * 84 + data[100:]):
        with pytest.raises(TraceError) as refused:
            read_trace(written(made.parent, broken))
        assert refused.value.code in ("trace-bad-sqlite", "trace-not-a-trace")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One of the ways in which a file of pages goes wrong."""
    broken = bytearray(data)
    way = rng.randrange(6)
    if way == 0:
        for _ in range(rng.choice((1, 3, 20))):
            broken[rng.randrange(16, len(broken))] ^= 1 << rng.randrange(8)
    elif way == 1:
        at = rng.randrange(16, len(broken))
        broken[at : at + rng.randrange(1, 600)] = rng.randbytes(rng.randrange(1, 600))
    elif way == 2:
        pages = [broken[at : at + 4096] for at in range(0, len(broken), 4096)]
        a, b = rng.randrange(1, len(pages)), rng.randrange(1, len(pages))
        pages[a], pages[b] = pages[b], pages[a]
        broken = bytearray(b"".join(pages))
    elif way == 3:
        del broken[rng.randrange(100, len(broken)) :]
    elif way == 4:  # a pointer in an inner page, or a cell's place
        page = 4096 * rng.randrange(len(broken) // 4096)
        at = page + rng.randrange(8, 60)
        broken[at : at + 4] = rng.randrange(40).to_bytes(4, "big")
    else:
        at = rng.randrange(100, min(len(broken), 4096 * 2))
        broken[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
    return bytes(broken)


def test_whatever_happened_to_its_bytes_an_export_is_answered_or_refused(tmp_path: Path) -> None:
    """400 damaged files: figures that make sense or words, never another error, never for long."""
    path = export(loaded(SMALL), tmp_path / "run.sqlite")
    data, whole = path.read_bytes(), kernel_times(read_trace(path))
    rng = random.Random(28)
    refused: dict[str, int] = {}
    same = 0
    for _ in range(400):
        started = time.process_time()
        try:
            trace = read_trace(written(tmp_path, mutated(data, rng)))
            assert len(trace.kernels.name) + len(trace.ops.name) <= trace.events
            assert (trace.kernels.duration_us >= 0).all()
            same += kernel_times(trace) == whole
        except TraceError as error:
            assert error.message
            refused[error.code] = refused.get(error.code, 0) + 1
        assert time.process_time() - started < 5
    assert set(refused) <= {"trace-bad-sqlite", "trace-not-a-trace", "trace-too-large", "trace-not-json"}
    assert refused["trace-bad-sqlite"] > 100
    assert same > 20
