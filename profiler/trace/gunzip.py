"""Unpacking a gzip stream, as far as it is whole."""

from __future__ import annotations

from typing import Protocol, cast

from isal import igzip_lib

from profiler.trace.errors import TraceError
from profiler.trace.limits import CHUNK_BYTES

GZIP = b"\x1f\x8b"
_IsalError = cast("type[Exception]", igzip_lib.IsalError)  # the stub has an instance


class Packed(Protocol):
    """Where compressed bytes come from."""

    @property
    def truncated(self) -> bool: ...

    def read(self) -> bytes: ...


class _Decompressor(Protocol):
    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class Gunzip:
    """A gzip stream of any number of members; a broken one gives what came before the break."""

    def __init__(self, packed: Packed) -> None:
        self.truncated = False
        self._packed = packed
        self._raw = b""
        self._given = 0
        self._broken = False
        self._member: _Decompressor | None = None
        self._first = True
        self.head = self._next()

    def read(self) -> bytes:
        """The next chunk, at most CHUNK_BYTES long; b"" at the end."""
        if self._first:
            self._first = False
            return self.head
        return self._next()

    def _next(self) -> bytes:
        data = b"" if self._broken else self._inflate()
        self._given += len(data)
        return data

    def _more(self) -> bytes:
        data, self._raw = self._raw, b""
        return data or self._packed.read()

    def _inflate(self) -> bytes:
        while True:
            if self._member is None:
                data = self._more()
                if len(data) == 1:  # the first two bytes of a member may come in two reads
                    data += self._packed.read()
                # Some writers pad the end of a stream with zero bytes; anything else that is no member ends it too.
                if not data.startswith(GZIP):
                    self.truncated |= bool(data.strip(b"\0")) and self._given == 0
                    return b""
                self._member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
            elif self._member.needs_input:
                data = self._more()
                if not data:
                    return self._break_off()
            else:
                data = b""
            try:
                out: bytes = self._member.decompress(data, CHUNK_BYTES)
            except _IsalError:
                return self._break_off()
            if self._member.eof:
                self._raw = self._member.unused_data + self._raw
                self._member = None
            if out:
                return out

    def _break_off(self) -> bytes:
        self.truncated = True
        self._broken = True
        self._raw = b""
        if self._given == 0:
            raise TraceError(
                "trace-bad-gzip",
                "The file starts like gzip, but nothing in it can be unpacked.",
                "Copy the file again; `gzip -t FILE` tells whether a copy is whole.",
            )
        return b""
