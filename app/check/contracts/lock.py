"""tritonworthy.lock.json: what was answered to each contract when it was last accepted, kept in the repository.

Figures stand in it as numbers, so that a change shows in a review; the generated kernels are compressed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from app import __version__
from app.check.config_error import ConfigError
from app.check.contracts.model import Answer, Asked, Contract
from app.check.contracts.read import MAX_CONTRACTS

FILE = "tritonworthy.lock.json"
SCHEMA = 1
MAX_BYTES = 32 * 1024 * 1024
MAX_CODE_BYTES = 16 * 1024 * 1024
"""Of one answer's kernels."""
MAX_ALL_CODE_BYTES = 64 * 1024 * 1024
MAX_ENTRIES = 40 * MAX_CONTRACTS
"""A pattern has an answer for each region, and several configurations of a folder share the file."""


class LockUnwritableError(Exception):
    """The lock could not be written, with the reason."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An accepted answer. about: as the contract has it; text_sha256: of the canonical text; code: see `code_of`."""

    name: str
    about: str
    of: str
    device: str
    mode: str
    training: bool
    torch: str
    triton: str
    tritonworthy: str
    kernels: int
    bytes_over_minimum: float | None
    externs: int
    graph_breaks: int | None
    recompiles: int | None
    text_sha256: str
    code: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from all others of a lock."""
        return self.name, self.about, self.of

    @property
    def kernel_code(self) -> str:
        """The generated kernels. Raises ValueError for what is none."""
        return self._code_bytes().decode("utf-8")

    def code_size(self) -> int:
        """Of the generated kernels, in bytes. Raises ValueError for what is none."""
        data = self._code_bytes()
        data.decode("utf-8")
        return len(data)

    def _code_bytes(self) -> bytes:
        opened = zlib.decompressobj()
        try:
            data = opened.decompress(base64.b64decode(self.code, validate=True), MAX_CODE_BYTES)
        except zlib.error as fault:
            raise ValueError(str(fault)) from None
        if not opened.eof:
            raise ValueError("the code of a kernel is cut off, or longer than any answer")
        return data


class Lock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    schema: int = SCHEMA
    contracts: tuple[Entry, ...] = ()

    def entry(self, contract: Contract, of: str) -> Entry | None:
        """The accepted answer to a contract about the same thing."""
        return next((e for e in self.contracts if e.key == (contract.name, contract.about, of)), None)

    def check_bounds(self) -> None:
        """Raises ValueError for one with more than locks may have, or with code that is none."""
        if len(self.contracts) > MAX_ENTRIES:
            raise ValueError(f"more than {MAX_ENTRIES} answers")
        total = 0
        for entry in self.contracts:
            total += entry.code_size()
            if total > MAX_ALL_CODE_BYTES:
                raise ValueError(f"more than {MAX_ALL_CODE_BYTES >> 20} MiB of generated kernels")


def read_lock(path: Path) -> Lock:
    """The file, empty where there is none. Raises ConfigError for one that cannot be read, OSError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return Lock()
    try:
        lock = msgspec.json.decode(data, type=Lock)
        lock.check_bounds()  # a damaged one is told before anything is asked
    except (msgspec.MsgspecError, ValueError) as fault:
        raise ConfigError("", f"damaged, remove it and accept anew: {fault}", str(path)) from None
    if lock.schema != SCHEMA:
        raise ConfigError("", f"of schema {lock.schema}, and this version knows {SCHEMA}", str(path))
    return lock


def accepted(asked: Iterable[Asked], before: Lock) -> Lock:
    """The lock with these answers, each where it stood, new ones last.

    What was not asked (another configuration's, or a contract that is off) or not answered keeps what it had. Of a
    contract that was answered, what it is no longer about goes.
    """
    entries: dict[tuple[str, str, str], Entry] = {}
    for entry in before.contracts:
        entries.setdefault(entry.key, entry)
    for each in asked:
        answers = [entry_of(each.contract, a) for a in each.answers if isinstance(a, Answer)]
        if not answers:
            continue
        about = (each.contract.name, each.contract.about)
        named = {answer.of for answer in each.answers}
        entries = {key: e for key, e in entries.items() if key[:2] != about or e.of in named}
        entries |= {answer.key: answer for answer in answers}
    return Lock(contracts=tuple(entries.values()))


def entry_of(contract: Contract, answer: Answer) -> Entry:
    """An answer as it is kept."""
    ratio = answer.bytes_over_minimum
    return Entry(
        name=contract.name,
        about=contract.about,
        of=answer.of,
        device=answer.device,
        mode=answer.mode,
        training=answer.training,
        torch=answer.torch,
        triton=answer.triton,
        tritonworthy=__version__,
        kernels=answer.kernels,
        bytes_over_minimum=None if ratio is None else round(ratio, 4),
        externs=len(answer.externs),
        graph_breaks=answer.graph_breaks,
        recompiles=answer.recompiles,
        text_sha256=hash_of(answer.text),
        code=base64.b64encode(zlib.compress(answer.code.encode(), 9)).decode("ascii"),
    )


def hash_of(text: str) -> str:
    """SHA-256 of a region's canonical text."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_lock(path: Path, lock: Lock) -> None:
    """The file, in an order and form in which what did not change makes no difference, as a whole or not at all.

    Raises LockUnwritableError, also for a lock that could not be read again.
    """
    data = msgspec.json.format(msgspec.json.encode(lock), indent=2) + b"\n"
    try:
        lock.check_bounds()
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES >> 20} MiB")
        _replace(path.resolve(), data)
    except ValueError as error:
        raise LockUnwritableError(f"{path}: {error}") from None
    except OSError as error:
        raise LockUnwritableError(f"{path}: {error.strerror}") from None


def _replace(path: Path, data: bytes) -> None:
    """Writes beside it, then takes its place: a crash or a full disk leaves the file as it was."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
