"""tritonworthy.lock.json: what is kept of an answer, what goes, and which files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.check.config import ConfigError
from app.check.contracts.lock import Lock, LockUnwritableError, accepted, read_lock, write_lock
from app.check.contracts.model import Asked, Contract, Unanswered
from tests.app.check.contracts.answers import NORM, ONE, answer

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


def test_what_could_not_be_asked_keeps_what_it_had_and_what_is_no_contract_goes() -> None:
    before = accepted([Asked(NORM, (ONE,)), Asked(OTHER, (answer(of="a"), answer(of="b")))], Lock())
    unanswered = accepted([Asked(NORM, (Unanswered("norm", "no"),)), Asked(OTHER, (Unanswered("*", "no"),))], before)
    assert unanswered == before
    partly = accepted([Asked(OTHER, (answer(of="a", kernels=3), Unanswered("b", "no")))], before)
    assert [(e.name, e.of, e.kernels) for e in partly.contracts] == [("other", "a", 3), ("other", "b", 1)]


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


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(LockUnwritableError, match="none"):
        write_lock(tmp_path / "none" / "lock.json", Lock())
