"""Uploads: the body of a request streamed to disk within limits. The client's file name never reaches the disk."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from app.errors import Problem
from app.requests.multipart import Multipart, Part
from app.requests.programs import HEAD_BYTES, refuse_by_head, refuse_program
from app.settings import Settings
from app.storage.damage import removal_error
from app.storage.database import new_id
from profiler.trace.errors import TraceError
from profiler.trace.read.formats.unzstd import is_zstd
from profiler.trace.read.gunzip import GZIP
from profiler.trace.read.limits import RATIO_FLOOR_BYTES, Limits
from profiler.trace.read.members import is_archive, is_zip, traces_in
from profiler.trace.read.source import Source

TRACE_FIELD = "file"
COMPANIONS = ("beside", "execution_trace")
"""Fields of files that are no traces of their own here: they tell more about the first trace."""

TEXT_FIELDS = ("group", "beside")
NAMES = {"companion": "beside"}
"""What a field is called outside -> here and in what is stored; `beside`, its old name, is taken as well."""

TEXT_FILES = ("config",)
"""Fields of files that are neither traces nor tell more about one."""

FIELD_BYTES = 400


@dataclass(frozen=True, slots=True)
class Form:
    """What a form may have in addition to its traces: fields of files, of texts, and the longest text in bytes.

    names: of fields that are called otherwise where they are sent.
    """

    companions: tuple[str, ...] = COMPANIONS
    texts: tuple[str, ...] = TEXT_FIELDS
    text_bytes: int = FIELD_BYTES
    names: Mapping[str, str] = field(default_factory=lambda: NAMES)


TRACE_FORM = Form()
MAX_FILES = 64
MAX_PARTS = 256
NAME_CHARS = 200
MULTIPART_OVERHEAD = 64 * 1024
"""What boundaries and part headers may add to a file."""

UNCOUNTED = 2**62
"""`max_body_size=` of routes that call receive(): it counts itself, by a setting, and answers with a code."""

DISK_CHECK_BYTES = 16 * 1024 * 1024

SLOWEST_BYTES_PER_S = 1024
"""Of an upload, on average over the idle timeout: less is a client that only holds a place."""

LOOK_BYTES = 8 * 1024 * 1024
"""Packed files up to this size are looked into before they are kept: a bomb is small. The reader's child has the same
limits for all of them."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file on disk. name is display text only; size in bytes."""

    path: Path
    name: str
    sha256: str
    size: int


def display_name(name: str | None) -> str:
    """A client's file name as text for people: the last part of a path, without control characters."""
    last = (name or "").replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    clean = "".join(c for c in last if c.isprintable()).strip()[:NAME_CHARS]
    return clean if clean.strip(".") else "trace"


class _File:
    """The file that grows: counts, hashes, and stops at the limits. may_be_program: it is refused as it comes if so."""

    def __init__(self, path: Path, settings: Settings, may_be_program: bool = False) -> None:
        self.path = path
        self.may_be_program = may_be_program
        self.settings = settings
        self.digest = hashlib.sha256()
        self.size = 0
        self.next_check = 0
        self.head = b""
        try:
            self.file: BinaryIO = path.open("xb")
        except OSError as error:
            raise _disk_full(error) from error

    def write(self, data: bytes) -> None:
        self.size += len(data)
        if len(self.head) < HEAD_BYTES:
            self.head += data[: HEAD_BYTES - len(self.head)]
            if self.may_be_program and len(self.head) == HEAD_BYTES:
                refuse_by_head(self.head)
        if self.size > self.settings.max_upload_bytes:
            raise _too_large(self.settings)
        if self.size >= self.next_check:
            self.next_check = self.size + DISK_CHECK_BYTES
            check_disk(self.settings)
        self.digest.update(data)
        try:
            self.file.write(data)
        except OSError as error:
            raise _disk_full(error) from error

    def close(self) -> None:
        try:
            self.file.close()
        except OSError as error:
            raise _disk_full(error) from error

    def drop(self) -> None:
        with suppress(OSError):
            self.file.close()
        self.path.unlink(missing_ok=True)


def _refuse_bomb(file: _File) -> None:
    """Problem 413 for a small packed file that unpacks to what no trace does; nothing else is judged here."""
    if file.size > LOOK_BYTES or not (file.head.startswith(GZIP) or is_zstd(file.head)):
        return
    given = 0
    try:
        with Source(file.path, Limits(max_bytes=file.settings.max_uncompressed_bytes)) as source:
            while given <= RATIO_FLOOR_BYTES and (data := source.read()):
                given += len(data)
    except TraceError as error:
        if error.code == "trace-too-large":
            raise Problem(413, error.code, "", error.message, remedy=error.remedy) from None


def _too_large(settings: Settings) -> Problem:
    return Problem(413, "upload-too-large", "", f"An upload may have at most {settings.max_upload_bytes} bytes.")


def _too_many() -> Problem:
    return Problem(422, "too-many-files", "", f"At most {MAX_FILES} traces in one upload, please.")


def _disk_full(error: OSError) -> Problem:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return Problem(507, "disk-full", "", "There is no room left for uploads on this server.")
    if error.errno == errno.ENOENT:
        lost = removal_error("The folder of uploads")
        return Problem(503, lost.problem_code, "", lost.words, remedy=lost.remedy)
    return Problem(503, "storage-failed", "", "The server cannot write to its data folder.")


def is_too_large(settings: Settings, announced: int) -> bool:
    """Whether a body of so many bytes is refused before it is read."""
    return announced > settings.max_upload_bytes + MULTIPART_OVERHEAD


def check_disk(settings: Settings, more: int = 0) -> None:
    """Problem 507 when `more` bytes would leave less than must stay free on disk, or be more than may be kept."""
    try:
        free = shutil.disk_usage(settings.uploads_dir).free
        kept = _stored_bytes(settings.uploads_dir) if settings.max_stored_bytes else 0
    except OSError as error:
        raise _disk_full(error) from error
    if free - more < settings.min_free_disk_bytes:
        raise Problem(507, "disk-full", "", "There is no room left for uploads on this server.")
    if settings.max_stored_bytes and kept + more > settings.max_stored_bytes:
        detail = (
            f"This server keeps at most {settings.max_stored_bytes} bytes of uploads. Delete traces, or ask for more."
        )
        raise Problem(507, "quota-full", "", detail)


def _stored_bytes(folder: Path) -> int:
    """Bytes of all files there; one with several names counts once."""
    sizes: dict[int, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


@dataclass(frozen=True, slots=True)
class Received:
    """Everything that one request brought. traces: the first is the one asked about, the others are of its ranks.

    companions: files that go with the first trace, by their field; fields: text, by field.
    """

    traces: tuple[Upload, ...]
    companions: dict[str, Upload]
    fields: dict[str, str]

    def drop(self) -> None:
        """Remove every file of it."""
        for upload in (*self.traces, *self.companions.values()):
            upload.path.unlink(missing_ok=True)


async def receive(
    request: Request, path: Path, settings: Settings, name: str | None = None, first: Upload | None = None,
    form: Form = TRACE_FORM,
) -> Received:  # fmt: skip
    """Stream a raw body, or the parts of a multipart one, to disk; nothing of it stays there after an error.

    The first trace goes to `path`, companions to names that begin with it (`companion_path`), others into its folder.
    name: what to show for the first trace instead of its file's name. first: the first trace, where it lies at `path`
    already. Raises Problem.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        detail = f"Content-Encoding {encoding[:40]!r} is not read here: send the file as it is, packed or not."
        raise Problem(415, "unsupported-media-type", "", detail)
    kind, options = parse_options_header(request.headers.get("content-type"))
    _check_announced(request, settings)
    taken = _Taken(path, settings, first, form)
    try:
        if kind == b"multipart/form-data":
            parts, size = Multipart(options.get(b"boundary", b"")), 0
            async for data in chunks(request, settings):
                size += len(data)
                if size > settings.max_upload_bytes + MULTIPART_OVERHEAD:
                    raise _too_large(settings)
                if pieces := parts.feed(data):
                    await run_in_threadpool(taken.take, pieces)
            parts.finish()
        else:
            await run_in_threadpool(taken.take, [Part(TRACE_FIELD, "trace")])
            async for data in chunks(request, settings):
                await run_in_threadpool(taken.take, [data])
        return await run_in_threadpool(taken.finish, name)
    except BaseException:
        taken.drop()
        raise


class _Taken:
    """The parts of one request as they come: files of known fields to disk, short texts kept, the rest skipped."""

    def __init__(self, path: Path, settings: Settings, first: Upload | None, form: Form) -> None:
        self.path = path
        self.settings = settings
        self.first = first
        self.form = form
        self.files: list[tuple[Part, _File]] = []
        self.fields: dict[str, bytearray] = {}
        self.into: _File | bytearray | None = None
        self.parts = 0

    def take(self, pieces: Sequence[Part | bytes]) -> None:
        for item in pieces:
            if isinstance(item, Part):
                self.parts += 1
                if self.parts > MAX_PARTS:
                    raise Problem(400, "too-many-parts", "", f"A form may have at most {MAX_PARTS} parts.")
                if isinstance(self.into, _File):
                    self.into.close()  # 64 of a form open at once: 18 forms had all descriptors
                self.into = self._begin(item)
            elif isinstance(self.into, _File):
                self.into.write(item)
            elif self.into is not None:
                self.into += item
                if len(self.into) > (most := self.form.text_bytes):
                    raise Problem(422, "invalid-request", "", f"A field of the form has more than {most} bytes.")

    def _begin(self, sent: Part) -> _File | bytearray | None:
        part = replace(sent, field=self.form.names.get(sent.field, sent.field))
        if part.filename is None and part.field in self.form.texts:
            return self.fields.setdefault(part.field, bytearray())
        if part.field not in (TRACE_FIELD, *self.form.companions):
            return None
        seen = any(p.field == part.field for p, _ in self.files)
        if part.field != TRACE_FIELD:
            place = companion_path(self.path, part.field)
            if seen:
                raise Problem(422, "invalid-request", "", f"The form has more than one file called `{sent.field}`.")
        else:
            place = self.path.with_name(new_id()) if seen or self.first else self.path
        if len(self.files) == MAX_FILES:
            raise Problem(422, "too-many-files", "", f"At most {MAX_FILES} files in one upload, please.")
        file = _File(place, self.settings, may_be_program=part.field not in TEXT_FILES)
        self.files.append((part, file))
        return file

    def finish(self, name: str | None) -> Received:
        """The files that there are; a field of a form that was left empty is none."""
        traces = [self.first] if self.first else []
        companions: dict[str, Upload] = {}
        for part, file in tuple(self.files):
            file.close()
            _refuse_bomb(file)
            if file.may_be_program:
                refuse_program(file.path)
            if file.size == 0 and not part.filename:
                file.drop()
                continue
            given = name if name and part.field == TRACE_FIELD and not traces else part.filename
            upload = Upload(file.path, display_name(given), file.digest.hexdigest(), file.size)
            if part.field != TRACE_FIELD:
                companions[part.field] = upload
            elif file.size:
                sent = len(traces) - (self.first is not None)
                traces += self._members(upload, MAX_FILES - sent) or [upload]
                if len(traces) - (self.first is not None) > MAX_FILES:
                    raise _too_many()
            else:
                raise Problem(422, "trace-empty", "The trace cannot be read", "The upload is empty.")
        if not traces:
            raise Problem(422, "upload-not-a-file", "", "The form has no part called `file`.")
        if traces[0].path != self.path:  # the first of several fields was left empty
            traces[0] = replace(traces[0], path=traces[0].path.rename(self.path))
        fields = {key: value.decode("utf-8", "replace").strip() for key, value in self.fields.items()}
        return Received(tuple(traces), companions, {key: value for key, value in fields.items() if value})

    def _members(self, upload: Upload, room: int) -> list[Upload]:
        """The traces of an archive, at most `room`, as files of their own in its place; [] for what is none.

        A tar of one trace and no other .json stays as it was sent, and one that breaks off before its second trace: the
        reader reads both, and says what it found.
        """
        if not is_archive(upload.path):
            return []
        limits = Limits(max_bytes=self.settings.max_uncompressed_bytes)
        begun, strays = len(self.files), list[str]()
        made: list[Upload] = []
        try:
            for name, content in traces_in(upload.path, limits, strays):
                if len(made) == room:
                    raise _too_many()
                file = _File(self.path.with_name(new_id()), self.settings)
                self.files.append((Part(TRACE_FIELD, name), file))
                for data in content:
                    file.write(data)
                file.close()
                _refuse_bomb(file)
                made.append(Upload(file.path, display_name(name), file.digest.hexdigest(), file.size))
            whole = True
        except TraceError as error:
            if len(made) > 1 or error.code == "trace-too-large" or is_zip(upload.path):
                status = 413 if error.code == "trace-too-large" else 422
                raise Problem(status, error.code, "", error.message, remedy=error.remedy) from None
            whole = False
        if len(made) > 1 or (made and whole and (strays or is_zip(upload.path))):
            upload.path.unlink()
            return [replace(made[0], name=upload.name)] if len(made) == 1 else made
        for _, file in self.files[begun:]:
            file.drop()
        del self.files[begun:]
        return []

    def drop(self) -> None:
        for _, file in self.files:
            file.drop()


def companion_path(trace: Path, field: str) -> Path:
    """Where the companion of a trace lies: next to the trace's file, under its name."""
    return trace.with_name(f"{trace.name}.{field}")


def _check_announced(request: Request, settings: Settings) -> None:
    """Refuse by Content-Length what would be refused after hours of sending."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit():
        if is_too_large(settings, int(announced)):
            raise _too_large(settings)
        check_disk(settings, int(announced))


async def chunks(request: Request, settings: Settings) -> AsyncIterator[bytes]:
    """The body as it comes. Problem 408 when it stops coming, or trickles."""
    stream, idle_s = request.stream(), settings.upload_idle_timeout_s
    began, came = time.monotonic(), 0
    while True:
        try:
            data = await asyncio.wait_for(anext(stream), idle_s)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise _stalled_problem() from None
        except ClientDisconnect:
            # Nobody reads this answer; it only must not count as a fault of ours.
            raise Problem(400, "upload-aborted", "", "The upload was aborted.") from None
        if not data:
            continue
        yield data
        came += len(data)
        if time.monotonic() - began > idle_s:
            if came < SLOWEST_BYTES_PER_S * idle_s:
                raise _stalled_problem()
            began, came = time.monotonic(), 0


def _stalled_problem() -> Problem:
    return Problem(408, "upload-stalled", "The upload stalled", "Too little was received for too long.")


def copy_in(source: Path, path: Path, settings: Settings) -> Upload:
    """A file that lies on the server already (an example), as if it had been uploaded."""
    check_disk(settings, os.stat(source).st_size)
    target = _File(path, settings)
    try:
        with source.open("rb") as file:
            while data := file.read(1 << 20):
                target.write(data)
        target.close()
    except BaseException:
        target.drop()
        raise
    return Upload(path, display_name(source.name), target.digest.hexdigest(), target.size)
