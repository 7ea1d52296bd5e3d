"""Uploads: the body of a request streamed to disk within limits. The client's file name never reaches the disk."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from app.settings import Settings
from app.web.problems import Problem

NAME_CHARS = 200
MULTIPART_OVERHEAD = 64 * 1024
"""What boundaries and part headers may add to a file."""

UNCOUNTED = 2**62
"""`max_body_size=` of routes that call receive(): it counts itself, by a setting, and answers with a code."""

DISK_CHECK_BYTES = 16 * 1024 * 1024


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
    """The file that grows: counts, hashes, and stops at the limits."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings
        self.digest = hashlib.sha256()
        self.size = 0
        self.next_check = 0
        self.file: BinaryIO = path.open("xb")

    def write(self, data: bytes) -> None:
        self.size += len(data)
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


def _too_large(settings: Settings) -> Problem:
    return Problem(413, "upload-too-large", "", f"An upload may have at most {settings.max_upload_bytes} bytes.")


def _disk_full(error: OSError) -> Problem:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return Problem(507, "disk-full", "", "There is no room left for uploads on this server.")
    return Problem(503, "storage-failed", "", "The server cannot write to its data folder.")


def check_disk(settings: Settings, more: int = 0) -> None:
    """Problem 507 when writing `more` bytes would leave less than the least that must stay free."""
    try:
        free = shutil.disk_usage(settings.uploads_dir).free
    except OSError as error:
        raise _disk_full(error) from error
    if free - more < settings.min_free_disk_bytes:
        raise Problem(507, "disk-full", "", "There is no room left for uploads on this server.")


async def receive(request: Request, path: Path, settings: Settings, name: str | None = None) -> Upload:
    """Stream a raw body, or the part `file` of a multipart one, to `path`; nothing stays there after an error."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        detail = f"Content-Encoding {encoding[:40]!r} is not read here: send .json or .json.gz as it is."
        raise Problem(415, "unsupported-media-type", "", detail)
    kind, options = parse_options_header(request.headers.get("content-type"))
    _check_announced(request, settings)
    target = await run_in_threadpool(_File, path, settings)
    try:
        if kind == b"multipart/form-data":
            given = await _receive_multipart(request, options.get(b"boundary", b""), target)
        else:
            given = None
            async for data in _chunks(request, settings):
                await run_in_threadpool(target.write, data)
        await run_in_threadpool(target.close)
        if target.size == 0:
            raise Problem(422, "trace-empty", "The trace cannot be read", "The upload is empty.")
    except BaseException:
        target.drop()
        raise
    return Upload(path, display_name(name or given), target.digest.hexdigest(), target.size)


def _check_announced(request: Request, settings: Settings) -> None:
    """Refuse by Content-Length what would be refused after hours of sending."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit():
        if int(announced) > settings.max_upload_bytes + MULTIPART_OVERHEAD:
            raise _too_large(settings)
        check_disk(settings, int(announced))


async def _chunks(request: Request, settings: Settings) -> AsyncIterator[bytes]:
    stream = request.stream()
    while True:
        try:
            data = await asyncio.wait_for(anext(stream), settings.upload_idle_timeout_s)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Problem(408, "upload-stalled", "The upload stalled", "Nothing was received for too long.") from None
        except ClientDisconnect:
            # Nobody reads this answer; it only must not count as a fault of ours.
            raise Problem(400, "upload-aborted", "", "The upload was aborted.") from None
        if data:
            yield data


class _Multipart:
    """Callbacks of the parser: the bytes of the part called `file`, and the name that it came with."""

    def __init__(self, boundary: bytes) -> None:
        self.header = bytearray()
        self.value = bytearray()
        self.headers: dict[bytes, bytes] = {}
        self.inside = False
        self.found = False
        self.filename: str | None = None
        self.ready = bytearray()
        self.ended = False
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self.headers.clear,
                "on_header_field": lambda data, start, end: self.header.extend(data[start:end]),
                "on_header_value": lambda data, start, end: self.value.extend(data[start:end]),
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_part_data": self._part_data,
                "on_part_end": self._part_end,
                "on_end": self._end,
            },
        )

    def _header_end(self) -> None:
        self.headers[bytes(self.header).lower()] = bytes(self.value)
        self.header.clear()
        self.value.clear()

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self.headers.get(b"content-disposition", b""))
        self.inside = options.get(b"name") == b"file" and not self.found
        if self.inside:
            self.found = True
            given = options.get(b"filename")
            self.filename = unquote(given.decode("utf-8", "replace")) if given else None

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self.inside:
            self.ready += data[start:end]

    def _part_end(self) -> None:
        self.inside = False

    def _end(self) -> None:
        self.ended = True


async def _receive_multipart(request: Request, boundary: bytes, target: _File) -> str | None:
    form: _Multipart | None = None
    received = 0
    limit = target.settings.max_upload_bytes + MULTIPART_OVERHEAD
    try:
        form = _Multipart(boundary)
        async for data in _chunks(request, target.settings):
            received += len(data)
            if received > limit:
                raise _too_large(target.settings)
            form.parser.write(data)
            ready, form.ready = bytes(form.ready), bytearray()
            if ready:
                await run_in_threadpool(target.write, ready)
        form.parser.finalize()
    except FormParserError:
        raise Problem(400, "bad-multipart", "", "The multipart body cannot be read.") from None
    if not form.ended:
        raise Problem(400, "bad-multipart", "", "The multipart body ends early.")
    if not form.found:
        raise Problem(422, "upload-not-a-file", "", "The form has no part called `file`.")
    return form.filename


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
