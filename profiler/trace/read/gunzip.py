"""Unpacking a gzip stream, as far as it is whole.

Members are unpacked as raw deflate; header, checksum and length (RFC 1952) are read here. A decompressor that checks
them itself raises where they are wrong, and the text that it had unpacked is lost.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import Protocol, cast

from isal import igzip_lib, isal_zlib

from profiler.trace.errors import Damage, TraceError
from profiler.trace.read.limits import CHUNK_BYTES

GZIP = b"\x1f\x8b"
_IsalError = cast("type[Exception]", igzip_lib.IsalError)  # the stub has an instance

_DEFLATE = 8
_HEADER_BYTES = 10
_TRAILER_BYTES = 8
_HEADER_CHECKSUM, _EXTRA, _NAME, _COMMENT, _RESERVED = 0x02, 0x04, 0x08, 0x10, 0xE0
_TEXT_BYTES = 64 * 1024
"""Longest name and longest comment in a header: with more it counts as no gzip."""

PIECE_BYTES = 32 * 1024
"""Unpacked at once: where the compressed data is broken, what the decompressor has unpacked in that call, and up to
64 KiB that it works ahead, are lost."""

_FEED_BYTES = 64 * 1024
"""Compressed bytes given to the decompressor at once: it copies those that it does not need, for each member."""

_RESCUED_BYTES = 128 * 1024
"""Of a member that breaks so early that all of it would be lost: more than the decompressor works ahead."""
_STEP_BYTES = 512


class Compressed(Protocol):
    """Where compressed bytes come from."""

    @property
    def truncated(self) -> bool: ...

    def read(self) -> bytes: ...


class _Decompressor(Protocol):
    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _rescue(data: bytes) -> bytes:
    """The text before the break in a deflate stream that begins here: zlib loses less of it, but is slower."""
    member = zlib.decompressobj(-zlib.MAX_WBITS)
    text = b""
    with suppress(zlib.error):
        while data and len(text) < _RESCUED_BYTES:
            text += member.decompress(data, _STEP_BYTES)
            data = member.unconsumed_tail
    return text


class Gunzip:
    """A gzip stream of any number of members; a broken one gives what came before the break.

    truncated: the compressed data breaks off, or cannot be unpacked from some place on. damage: what else is wrong,
    as far as it was read.
    """

    def __init__(self, packed: Compressed) -> None:
        self.truncated = False
        self.damage = Damage.NONE
        self._packed = packed
        self._raw = b""
        self._at = 0  # in _raw: what lies before it is taken
        self._unpacked_bytes = 0
        self._members = 0  # that were unpacked to their end
        self._ended = False
        self._member: _Decompressor | None = None
        self._checksum = 0
        self._size = 0
        self._first = True
        self.head = self._next()

    def read(self) -> bytes:
        """The next chunk, at most CHUNK_BYTES long; b"" at the end."""
        if self._first:
            self._first = False
            return self.head
        return self._next()

    def _next(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while not self._ended and size <= CHUNK_BYTES - PIECE_BYTES:
            if self._member is None and not self._begin():
                break
            piece = self._piece()
            pieces.append(piece)
            size += len(piece)
        self._unpacked_bytes += size
        if self.truncated and self._unpacked_bytes == 0:
            raise TraceError(
                "trace-bad-gzip",
                "The file starts like gzip, but nothing in it can be unpacked.",
                "Copy the file again; `gzip -t FILE` tells whether a copy is whole.",
            )
        return b"".join(pieces)

    def _piece(self) -> bytes:
        """Some text of the member, after which it may have ended."""
        member = self._member
        assert member is not None
        data = b""
        if member.needs_input:
            if not self._has(1):
                self._break_off()
                return b""
            data = self._take(_FEED_BYTES)
        try:
            piece = member.decompress(data, PIECE_BYTES)
        except _IsalError:
            self._break_off()
            return b"" if self._size else _rescue(data)
        self._checksum = isal_zlib.crc32(piece, self._checksum)
        self._size += len(piece)
        if member.eof:
            self._at -= len(member.unused_data)
            self._member = None
            self._members += 1
            self._check()
        return piece

    def _break_off(self) -> None:
        self.truncated = True
        self._ended = True
        self._raw, self._at = b"", 0

    def _has(self, count: int) -> bool:
        """Whether so many bytes come; then they lie in `_raw`, from `_at` on."""
        while len(self._raw) - self._at < count:
            data = self._packed.read()
            if not data:
                return False
            self._raw, self._at = self._raw[self._at :] + data, 0
        return True

    def _take(self, count: int) -> bytes:
        """At most so many bytes of those that lie here."""
        data = self._raw[self._at : self._at + count]
        self._at += len(data)
        return data

    def _check(self) -> None:
        """Compare the eight bytes after a member with what was unpacked."""
        if not self._has(_TRAILER_BYTES):
            self.damage |= Damage.NO_CHECKSUM
            self._ended = True
            return
        stated = self._checksum.to_bytes(4, "little") + (self._size % 2**32).to_bytes(4, "little")
        if self._take(_TRAILER_BYTES) != stated:
            self.damage |= Damage.CHECKSUM

    # -- between members

    def _begin(self) -> bool:
        """Whether another member begins here: its header is taken."""
        if not self._has(len(GZIP)) or not self._raw.startswith(GZIP, self._at):
            return self._no_member()
        if self._has(4) and (self._byte(2) != _DEFLATE or self._byte(3) & _RESERVED):
            return self._no_member()
        size = self._header_bytes()
        if size is None:
            self._break_off()
            return False
        header = self._take(size)
        if header[3] & _HEADER_CHECKSUM and header[-2:] != (isal_zlib.crc32(header[:-2]) & 0xFFFF).to_bytes(
            2, "little"
        ):
            self.damage |= Damage.CHECKSUM
        self._member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE)
        self._checksum = self._size = 0
        return True

    def _no_member(self) -> bool:
        """The stream ends: at its end, or before zero bytes, with which some writers pad, or before something else."""
        self._ended = True
        if not self._members:
            self.truncated = True
            return False
        rest = self._raw[self._at :]
        self._raw, self._at = b"", 0
        while not rest.strip(b"\0"):
            rest = self._packed.read()
            if not rest:
                return False
        self.damage |= Damage.TRAILING_BYTES
        return False

    def _byte(self, place: int) -> int:
        return self._raw[self._at + place]

    def _header_bytes(self) -> int | None:
        """Length of the header that begins here; None where the file ends inside it, or no header is so long."""
        if not self._has(_HEADER_BYTES):
            return None
        flags, size = self._byte(3), _HEADER_BYTES
        if flags & _EXTRA:
            if not self._has(size + 2):
                return None
            size += 2 + self._byte(size) + 256 * self._byte(size + 1)
        for flag in (_NAME, _COMMENT):
            if flags & flag:
                zero = self._zero(size)
                if zero is None:
                    return None
                size = zero + 1
        size += 2 if flags & _HEADER_CHECKSUM else 0
        return size if self._has(size) else None

    def _zero(self, start: int) -> int | None:
        """Where the first zero byte at or after `start` lies, counted from here."""
        while (position := self._raw.find(b"\0", self._at + start)) < 0:
            here = len(self._raw) - self._at
            if here > start + _TEXT_BYTES or not self._has(here + 1):
                return None
        return position - self._at
