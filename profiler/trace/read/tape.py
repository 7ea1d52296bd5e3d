"""The files inside a tar archive that is read once, from its beginning to its end, in little memory.

`tarfile` decodes each header here, and reads no archive by itself: it would collect long names and pax headers whole,
keep every member that it has seen, and compare what a pax header says with patterns whose time grows with its square.
"""

from __future__ import annotations

from collections.abc import Iterator
from tarfile import (
    BLOCKSIZE,
    GNUTYPE_LONGLINK,
    GNUTYPE_LONGNAME,
    GNUTYPE_SPARSE,
    SOLARIS_XHDTYPE,
    SUPPORTED_TYPES,
    XGLTYPE,
    XHDTYPE,
    ReadError,
    TarInfo,
)
from typing import Protocol

from profiler.trace.errors import TraceError
from profiler.trace.read.limits import CHUNK_BYTES

MAX_HEADER_BYTES = 1024 * 1024
"""Of a long name or a pax header: real ones have a name or two."""

_PAX = (XHDTYPE, SOLARIS_XHDTYPE)
_HEADERS = (GNUTYPE_LONGNAME, GNUTYPE_LONGLINK, XGLTYPE, *_PAX)
_LENGTH_CHARS = 20
_SPARSE_MORE, _SPARSE_MORE_OF_MORE = 482, 504
"""Where a header of a sparse file, and each block that continues it, says whether another block follows."""


class Readable(Protocol):
    """What is read from: fewer bytes than asked for only at its end."""

    def read(self, count: int, /) -> bytes: ...


class Content:
    """The bytes of one file on a tape. Raises ReadError where the tape ends within them."""

    def __init__(self, tape: Readable, size: int) -> None:
        self._tape, self._left = tape, size

    def read(self, count: int, /) -> bytes:
        """The next bytes; b"" at the end."""
        wanted = min(count, self._left)
        data = self._tape.read(wanted) if wanted else b""
        if wanted and not data:
            raise ReadError("unexpected end of data")
        self._left -= len(data)
        return data


def files_on(tape: Readable) -> Iterator[tuple[str, Content]]:
    """(name, content) of every regular file, in the order of the tape. Take each before the next.

    Sparse files are passed over. Raises TraceError for a header of more than MAX_HEADER_BYTES, tarfile.TarError where
    the tape is damaged or ends too early.
    """
    named: str | None = None  # by the headers before the file's own
    sized: int | None = None
    while block := _block(tape):
        header = TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if header.type in _HEADERS:
            text = _header_text(tape, header.size)
            if header.type == GNUTYPE_LONGNAME:
                named = _name(text.split(b"\0")[0])
            elif header.type in _PAX:
                records = _pax_records(text)
                named = _name(records[b"path"]) if b"path" in records else named
                sized = _size(records[b"size"]) if b"size" in records else sized
            continue
        size = header.size if sized is None else sized
        if header.type == GNUTYPE_SPARSE:
            more = block[_SPARSE_MORE]
            while more:
                more = _exactly(tape, BLOCKSIZE)[_SPARSE_MORE_OF_MORE]
        elif not header.isreg() and header.type in SUPPORTED_TYPES:
            size = 0  # a folder or a link, whatever it says
        if size < 0:
            raise ReadError("a file of negative size")
        content = Content(tape, size)
        if header.isreg() and header.type != GNUTYPE_SPARSE:
            yield named or header.name, content
        _skip(content)
        _skip(Content(tape, -size % BLOCKSIZE))
        named = sized = None


def _block(tape: Readable) -> bytes:
    """The next header; b"" at the end, which is a block of zeros or where nothing follows."""
    first = tape.read(1)
    block = first and first + _exactly(tape, BLOCKSIZE - 1)
    return block if block.strip(b"\0") else b""


def _header_text(tape: Readable, size: int) -> bytes:
    if size > MAX_HEADER_BYTES:
        raise TraceError(
            "trace-too-large",
            f"The archive has a header of {size} bytes, which is no file's name.",
            "Give the .json or .json.gz files themselves.",
        )
    if size < 0:
        raise ReadError("a header of negative size")
    return _exactly(tape, size + -size % BLOCKSIZE)[:size]


def _pax_records(text: bytes) -> dict[bytes, bytes]:
    """Of `length key=value` lines, each as long as it says."""
    records: dict[bytes, bytes] = {}
    place = 0
    while place < len(text) and text[place : place + 1] != b"\0":
        digits, blank, _ = text[place : place + _LENGTH_CHARS].partition(b" ")
        length = _size(digits) if blank else 0
        line = text[place + len(digits) + 1 : place + length]
        key, equals, value = line.partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise ReadError("a pax header that cannot be read")
        records[key] = value[:-1]
        place += length
    return records


def _size(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > _LENGTH_CHARS:
        raise ReadError("a pax header that cannot be read")
    return int(digits)


def _name(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _exactly(tape: Readable, count: int) -> bytes:
    content, parts = Content(tape, count), []
    while data := content.read(CHUNK_BYTES):
        parts.append(data)
    return b"".join(parts)


def _skip(content: Content) -> None:
    while content.read(CHUNK_BYTES):
        pass
