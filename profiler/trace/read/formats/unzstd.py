"""Unpacking a zstd stream, as far as it is whole.

By the standard library's `compression.zstd`, which Python has from 3.14 on, and before by `backports.zstd`, the same
code for older ones. Unlike `zstandard` it gives no more bytes at once than it is asked for, which a bomb needs; and it
goes with the last Python that lacks it. Where neither is installed only zstd files cannot be read.
"""

from __future__ import annotations

from typing import Protocol

from profiler.trace.errors import Damage, TraceError
from profiler.trace.read.gunzip import Compressed
from profiler.trace.read.limits import CHUNK_BYTES

ZSTD = b"\x28\xb5\x2f\xfd"

_WINDOW_LOG = 27
"""Largest window that is unpacked, 128 MiB: what `zstd` itself takes unless it is told otherwise (--long)."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Library:
    """The library, as far as it is needed. Raises TraceError where it is not installed."""

    def __init__(self) -> None:
        try:
            try:
                from compression import zstd  # type: ignore[import-not-found,unused-ignore]
            except ImportError:
                from backports import zstd
        except ImportError:
            raise TraceError(
                "trace-zstd-missing",
                "The file is zstd-compressed, and this Python cannot unpack that.",
                "Install it (pip install backports.zstd), or unpack the file (zstd -d) and give the result.",
            ) from None
        self.error: type[Exception] = zstd.ZstdError
        self._make = zstd.ZstdDecompressor
        self._options = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}

    def decompressor(self) -> _Decompressor:
        """For one frame."""
        made: _Decompressor = self._make(options=self._options)
        return made


class Unzstd:
    """A zstd stream of any number of frames; a broken one gives what came before the break.

    truncated: the compressed data breaks off, or cannot be unpacked from some place on. damage: whether something else
    follows the last frame. A frame whose checksum is wrong counts as broken at its end.
    """

    def __init__(self, packed: Compressed) -> None:
        self.truncated = False
        self.damage = Damage.NONE
        self._packed = packed
        self._library = _Library()
        self._frame: _Decompressor | None = None
        self._waiting = b""
        self._frames = 0
        self._ended = False
        self._unpacked_bytes = 0
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
        while not self._ended and size < CHUNK_BYTES:
            if self._frame is None and not self._begin():
                break
            piece = self._piece(CHUNK_BYTES - size)
            pieces.append(piece)
            size += len(piece)
        self._unpacked_bytes += size
        if self.truncated and not self._unpacked_bytes:
            raise TraceError(
                "trace-bad-zstd",
                "The file starts like zstd, but nothing in it can be unpacked.",
                "Copy the file again; `zstd -t FILE` tells whether a copy is whole.",
            )
        return b"".join(pieces)

    def _begin(self) -> bool:
        """Whether another frame begins here."""
        while len(self._waiting) < len(ZSTD) and (data := self._packed.read()):
            self._waiting += data
        if self._waiting and (self._waiting.startswith(ZSTD) or not self._frames or _is_skippable(self._waiting)):
            self._frame = self._library.decompressor()
            return True
        self._ended = True
        if self._waiting.strip(b"\0"):
            self.damage |= Damage.TRAILING_BYTES
        return False

    def _piece(self, most: int) -> bytes:
        frame = self._frame
        assert frame is not None
        data = b""
        if frame.needs_input:
            data = self._waiting or self._packed.read()
            self._waiting = b""
            if not data:
                self._break_off()
                return b""
        try:
            piece = frame.decompress(data, most)
        except (self._library.error, EOFError):
            self._break_off()
            return b""
        if frame.eof:
            self._waiting = frame.unused_data
            self._frame = None
            self._frames += 1
        return piece

    def _break_off(self) -> None:
        self.truncated = True
        self._ended = True
        self._frame = None


def is_zstd(head: bytes) -> bool:
    """Whether a file begins as zstd: with a frame, or with one that holds no content, as pzstd writes first."""
    return head.startswith(ZSTD) or _is_skippable(head)


def _is_skippable(data: bytes) -> bool:
    """A frame that holds no content (RFC 8878, 3.1.2): magic numbers 0x184D2A50 to 0x184D2A5F."""
    return len(data) >= 4 and 0x50 <= data[0] <= 0x5F and data[1:4] == b"\x2a\x4d\x18"
