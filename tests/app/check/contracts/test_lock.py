"""tritonworthy.lock.json: what is kept of an answer, what goes, and which files are refused."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from app.check.config import ConfigError
from app.check.contracts.lock import MAX_ENTRIES, Lock, LockUnwritableError, accepted, read_lock, write_lock
from app.check.contracts.model import Asked, Contract, Unanswered
from tests.app.check.contracts.answers import NORM, ONE, answer
from tests.conftest import ROOT

OTHER = Contract("other", pattern="*", max_kernels=1)


def test_what_was_accepted_is_read_again_with_its_code(tmp_path: Path) -> None:
    code = "@triton.jit\ndef ä(x):\n    pass\n" * 400
    write_lock(tmp_path / "lock", accepted([Asked(NORM, (answer(code=code, recompiles=2),))], Lock()))
    entry = read_lock(tmp_path / "lock").entry(NORM, "norm")
    assert entry is not None
    assert (entry.kernel_code, entry.kernels, entry.recompiles, entry.torch) == (code, 1, 2, "2.13.0+cpu")
    assert (tmp_path / "lock").stat().st_size < len(code) / 4


def test_no_file_is_an_empty_lock(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "lock") == Lock()


def test_what_could_not_be_asked_keeps_what_it_had() -> None:
    before = accepted([Asked(NORM, (ONE,)), Asked(OTHER, (answer(of="a"), answer(of="b")))], Lock())
    unanswered = accepted([Asked(NORM, (Unanswered("norm", "no"),)), Asked(OTHER, (Unanswered("*", "no"),))], before)
    assert unanswered == before
    partly = accepted([Asked(OTHER, (answer(of="a", kernels=3), Unanswered("b", "no")))], before)
    assert [(e.name, e.of, e.kernels) for e in partly.contracts if e.name == "other"] == [
        ("other", "a", 3), ("other", "b", 1)
    ]  # fmt: skip
    fewer = accepted([Asked(OTHER, (answer(of="b"),))], before)
    assert [(e.name, e.of) for e in fewer.contracts] == [("RMSNorm", "norm"), ("other", "b")]


def test_two_configurations_of_one_folder_do_not_lose_each_others_answers() -> None:
    first = accepted([Asked(NORM, (ONE,))], Lock())
    both = accepted([Asked(OTHER, (answer(of="a"),))], first)
    assert [e.name for e in both.contracts] == ["RMSNorm", "other"]
    assert accepted([Asked(NORM, (ONE,))], both) == both, "nor does one change where the other's stand"
    assert accepted([Asked(OTHER, (answer(of="a"),))], both) == both
    changed = accepted([Asked(NORM, (answer(kernels=2),))], both)
    assert [(e.name, e.kernels) for e in changed.contracts] == [("RMSNorm", 2), ("other", 1)]


def test_a_contract_about_something_else_has_nothing_accepted() -> None:
    lock = accepted([Asked(NORM, (ONE,))], Lock())
    assert lock.entry(Contract("RMSNorm", region="other.txt", max_kernels=1), "norm") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"schema": 1', b'"schema": 2'),
        (b'"kernels": 1', b'"kernels": "1"'),
        (b'"kernels": 1,', b""),
        (b'"code": "', b'"code": "AAAA'),
        (b'"mode"', b'"more": 1, "mode"'),
        (b'{\n  "schema"', b'[\n  "schema"'),
    ],
)
def test_a_damaged_file_is_refused_by_name(before: bytes, after: bytes, tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    write_lock(path, accepted([Asked(NORM, (ONE,))], Lock()))
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after))
    with pytest.raises(ConfigError) as error:
        read_lock(path)
    assert "lock.json" in error.value.message


def test_cut_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    lock = accepted([Asked(NORM, (ONE,))], Lock())
    (entry,) = lock.contracts
    path.write_text(path.name)
    write_lock(path, lock)
    path.write_bytes(path.read_bytes().replace(entry.code.encode(), entry.code[:8].encode()))
    with pytest.raises(ConfigError, match="cut off"):
        read_lock(path)


def bombs(number: int, size: int) -> Lock:
    """Entries of code that is small only while it is compressed."""
    (entry,) = accepted([Asked(NORM, (answer(code=" " * size),))], Lock()).contracts
    return Lock(contracts=tuple(msgspec.structs.replace(entry, of=str(n)) for n in range(number)))


def test_sources_that_are_large_together_are_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    path.write_bytes(msgspec.json.encode(bombs(60, 15 << 20)))
    assert path.stat().st_size < 2 << 20
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="more than 64 MiB of generated kernels"):
            read_lock(path)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_more_answers_than_contracts_can_have_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    path.write_bytes(msgspec.json.encode(bombs(MAX_ENTRIES + 1, 1)))
    with pytest.raises(ConfigError, match="more than 2000 answers"):
        read_lock(path)


@pytest.mark.parametrize("lock", [bombs(MAX_ENTRIES + 1, 1), bombs(5, 15 << 20), bombs(1, 17 << 20)])
def test_a_lock_that_could_not_be_read_again_is_not_written(lock: Lock, tmp_path: Path) -> None:
    with pytest.raises(LockUnwritableError):
        write_lock(tmp_path / "lock.json", lock)
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_leaves_the_lock_as_it_was_and_nothing_else(tmp_path: Path) -> None:
    """In a process that may write no file longer than 4,000 bytes, as on a disk that is full."""
    path = tmp_path / "lock.json"
    write_lock(path, accepted([Asked(NORM, (ONE,))], Lock()))
    path.chmod(0o640)
    before = path.read_bytes()
    script = """if 1:
        import pathlib, resource, signal, sys
        from app.check.contracts.lock import LockUnwritableError, write_lock
        from tests.app.check.contracts.test_lock import bombs
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
        try:
            write_lock(pathlib.Path(sys.argv[1]), bombs(100, 10))
        except LockUnwritableError:
            sys.exit(7)
    """
    assert subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, timeout=300).returncode == 7
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    write_lock(path, Lock())
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_lock_that_is_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("lock.json")
    write_lock(tmp_path / "link", Lock())
    assert (tmp_path / "link").is_symlink() and read_lock(tmp_path / "lock.json") == Lock()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(LockUnwritableError, match="none"):
        write_lock(tmp_path / "none" / "lock.json", Lock())
