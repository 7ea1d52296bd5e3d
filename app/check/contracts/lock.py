"""tritonworthy.lock.json: what was answered to each contract when it was last accepted, kept in the repository.

Figures stand in it as numbers, so that a change shows in a review; the generated kernels are compressed.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from app import __version__
from app.check.config_error import ConfigError
from app.check.contracts.model import Answer, Asked, Contract

FILE = "tritonworthy.lock.json"
SCHEMA = 1
MAX_BYTES = 32 * 1024 * 1024
MAX_CODE_BYTES = 16 * 1024 * 1024


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
    def kernel_code(self) -> str:
        """The generated kernels. Raises ValueError for what is none."""
        opened = zlib.decompressobj()
        text = opened.decompress(base64.b64decode(self.code, validate=True), MAX_CODE_BYTES)
        if not opened.eof:
            raise ValueError("the code of a kernel is cut off, or longer than any answer")
        return text.decode("utf-8")


class Lock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    schema: int = SCHEMA
    contracts: tuple[Entry, ...] = ()

    def entry(self, contract: Contract, of: str) -> Entry | None:
        """The accepted answer to a contract about the same thing."""
        return next((e for e in self.contracts if (e.name, e.about, e.of) == (contract.name, contract.about, of)), None)


def read_lock(path: Path) -> Lock:
    """The file, empty where there is none. Raises ConfigError for one that cannot be read, OSError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return Lock()
    try:
        lock = msgspec.json.decode(data, type=Lock)
        _ = [entry.kernel_code for entry in lock.contracts]  # a damaged one is told before anything is asked
    except (msgspec.MsgspecError, ValueError, zlib.error) as fault:
        raise ConfigError("", f"damaged, remove it and accept anew: {fault}", str(path)) from None
    if lock.schema != SCHEMA:
        raise ConfigError("", f"of schema {lock.schema}, and this version knows {SCHEMA}", str(path))
    return lock


def accepted(asked: Iterable[Asked], before: Lock) -> Lock:
    """A lock of these answers. What was not answered keeps what it had; what is no contract any more goes."""
    entries: list[Entry] = []
    for each in asked:
        kept = {e.of: e for e in before.contracts if (e.name, e.about) == (each.contract.name, each.contract.about)}
        answered = {a.of: entry_of(each.contract, a) for a in each.answers if isinstance(a, Answer)}
        if not answered:
            entries += kept.values()
            continue
        entries += [entry for a in each.answers if (entry := answered.get(a.of) or kept.get(a.of))]
    return Lock(contracts=tuple(entries))


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
    """The file, in an order and form in which what did not change makes no difference. Raises LockUnwritableError."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(lock), indent=2) + b"\n")
    except OSError as error:
        raise LockUnwritableError(f"{path}: {error.strerror}") from None
