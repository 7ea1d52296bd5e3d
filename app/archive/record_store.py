"""The Archive's records: one JSON file each, the API's validation with `name` and `schema`, found by region text.

The shipped folder is read only; a user's own is another (`TRITONWORTHY_ARCHIVE_DIR`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from app.archive import nearness, schema
from app.archive.schema import RecordError
from app.objects.record import ArchiveRecord, Elsewhere, NearestRecord, RecordBody, ValidationBody

FOLDER = Path(__file__).resolve().parent / "records"
MATCHES: Mapping[str, str] = {
    "same": "the same region",
    "other-layout": "the same program, its inputs laid out otherwise",
    "other-sizes": "the same program at other sizes",
}


@dataclass(frozen=True, slots=True)
class RecordFile:
    """One file of a folder: the record as the API gives it, or why it cannot be read."""

    path: Path
    record: ArchiveRecord | None
    problem: RecordError | None = None

    @property
    def shipped(self) -> bool:
        return self.path.parent == FOLDER


def user_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's archive by the settings `archive_dir` and `data_dir`, without reading the others."""
    own = environment.get("TRITONWORTHY_ARCHIVE_DIR")
    return Path(own) if own else Path(environment.get("TRITONWORTHY_DATA_DIR") or ".data") / "archive"


def list_record_files(*folders: Path) -> tuple[RecordFile, ...]:
    """Every file of the folders (the shipped one where none is given), by name; a folder that is not there is empty."""
    paths = [path for folder in folders or (FOLDER,) for path in sorted(folder.glob("*.json")) if path.is_file()]
    return tuple(_file(path) for path in paths)


def _file(path: Path) -> RecordFile:
    try:
        state = path.stat()
        return _read(path, state.st_mtime_ns, state.st_size)
    except OSError as fault:
        return RecordFile(path, None, RecordError(f"cannot be read: {fault.strerror}"))


@lru_cache(maxsize=4096)
def _read(path: Path, _mtime_ns: int, _size: int) -> RecordFile:
    try:
        body = schema.read(schema.loads(path.read_bytes()))
    except RecordError as problem:
        return RecordFile(path, None, problem)
    return RecordFile(path, as_answered(body, path.name))


def as_answered(body: RecordBody, file: str) -> ArchiveRecord:
    """A record as the API gives it. file: its name in the archive."""
    own = {"id": Path(file).stem, "state": "done"}
    return cast("ArchiveRecord", {**own, **body, "archived": {"file": file}})


def records(*folders: Path) -> tuple[ArchiveRecord, ...]:
    """Every record that can be read, newest first. id is the file's name; archived tells it from a measurement here."""
    by_stem = {s.record["id"]: s.record for s in reversed(list_record_files(*folders)) if s.record is not None}
    by_name = sorted(by_stem.values(), key=lambda item: str(item["id"]))
    return tuple(sorted(by_name, key=lambda item: str(item["date"]), reverse=True))


def by_id(record_id: str, *folders: Path) -> ArchiveRecord | None:
    """The record of that id."""
    return next((item for item in records(*folders) if item["id"] == record_id), None)


def nearest(
    text: str,
    *folders: Path,
    device: str | None = None,
    torch: str | None = None,
    more: Iterable[ArchiveRecord] = (),
) -> NearestRecord | None:
    """The record that is evidence for a region on a device under a version of torch; None where there is none.

    more: records that are no files, such as what this server measured (app.storage.measurements).

    archived.match says how alike they are, by `program_fingerprint.LEVELS`; elsewhere says it in words and figures.
    """
    chosen = nearness.choose(text, (*more, *records(*folders)), device, torch)
    if chosen is None:
        return None
    record, near, others = chosen
    versions = dict.fromkeys(nearness.software(o, "torch") or "unknown" for o in others)
    elsewhere: Elsewhere = {
        "distance": near.distance,
        "bytes_ratio": near.bytes_ratio,
        "device": str(record["device"]),
        "same_device": near.same_device,
        "torch": nearness.software(record, "torch") or None,
        "others": list(versions),
        "because": _because(record, near, list(versions), torch),
    }
    return {**record, "archived": {**record["archived"], "match": near.match}, "elsewhere": elsewhere}


def _because(record: ArchiveRecord, near: nearness.Near, others: list[str], torch: str | None) -> str:
    """One sentence or two: what was measured, where, with which torch, and why this record of several."""
    version = nearness.software(record, "torch")
    software = f" with torch {version}" if version else ""
    size = f" ({near.bytes_ratio:.3g} × the bytes)" if near.match == "other-sizes" else ""
    where = "Measured by this server" if record["archived"].get("here") else "From elsewhere"
    text = f"{where}: {MATCHES[near.match]}{size}, on {record['device']}{software}, {record['date']}."
    others = [o for o in others if o != version]
    if others:
        why = ("the host's version", "the host's release", "the newest")[near.torch_rank]
        text += f" Of the versions of torch on record ({', '.join([version or 'unknown', *others])}) this is {why}."
    return text


def record(validation: ValidationBody, name: str, folder: Path = FOLDER) -> Path:
    """Write a validation as a record, named after region, device, day and contents: no other record is overwritten.

    RecordError, a ValueError, where nothing was measured or it is no validation.
    """
    return write(schema.read({**validation, "name": name}), folder)


def file_name(body: RecordBody) -> str:
    """`rmsnorm-by-hand-nvidia-h200-2026-11-21-606ec39a.json`: of a record's name, device, day and fingerprint."""
    stem = "-".join(slug(str(part)) for part in (body["name"], body["device"], body["date"]))
    return f"{stem}-{schema.fingerprint(body)[:8]}.json"


def write(body: RecordBody, folder: Path) -> Path:
    """Write what `schema.read` gave; whole or not at all. OSError where the folder cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(body)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(json.dumps(body, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def slug(text: str) -> str:
    """A text as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "region"
