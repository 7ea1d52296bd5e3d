"""The bytes of a trace file: plain or gzip by its first bytes, in chunks, within limits."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol, cast

from isal import igzip_lib

from profiler.trace.errors import TraceError
from profiler.trace.limits import Limits

__all__ = ["CHUNK_BYTES", "Limits", "Reader", "Source", "foreign"]

CHUNK_BYTES = 512 * 1024
"""Uncompressed bytes handed on at once. Fits the L2 cache: chunks of 4 MB read 1.4 times slower on a 2-core EPYC."""

RATIO_FLOOR_BYTES = 64 * 1024 * 1024
"""Below this size a compression ratio says nothing: ten thousand equal events compress 200:1 and are harmless."""

_IsalError = cast("type[Exception]", igzip_lib.IsalError)  # the stub has an instance
_GZIP = b"\x1f\x8b"

_FOREIGN = (
    (b"PK\x03\x04", "a zip archive", "Unpack it and give the .json or .json.gz inside."),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "Unpack it (zstd -d) and give the .json, or compress it with gzip."),
    (b"BZh", "bzip2-compressed", "Unpack it (bunzip2) and give the .json, or compress it with gzip."),
    (b"\xfd7zXZ", "xz-compressed", "Unpack it (unxz) and give the .json, or compress it with gzip."),
    (b"SQLite format 3", "an SQLite database (an nsys export?)", "Record with torch.profiler and export_chrome_trace."),
    (b"\x80\x02", "a Python pickle", "Pickles are never opened. Record with torch.profiler and export_chrome_trace."),
    (b"\x80\x04", "a Python pickle", "Pickles are never opened. Record with torch.profiler and export_chrome_trace."),
)


class _Decompressor(Protocol):
    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class Reader(Protocol):
    """What events are read from: chunks of text, b"" at the end.

    truncated: it ends too early. continues: it ends after an event, and the list goes on elsewhere.
    """

    @property
    def truncated(self) -> bool: ...

    @property
    def continues(self) -> bool: ...

    def read(self) -> bytes: ...


class Source:
    """Uncompressed chunks of one file. `truncated` is set when a gzip stream ends early or breaks half-way."""

    continues = False

    def __init__(self, path: Path, limits: Limits) -> None:
        self.truncated = False
        self._limits = limits
        self._file = path.open("rb")
        self._raw = self._file.read(CHUNK_BYTES)
        self._taken = len(self._raw)
        self._given = 0
        self._gzip = self._raw.startswith(_GZIP)
        self._member: _Decompressor | None = None
        if not self._raw:
            self._file.close()
            raise TraceError(
                "trace-empty", "The file is empty.", "Was the profiler stopped before the file was copied?"
            )

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def read(self) -> bytes:
        """The next chunk, at most CHUNK_BYTES long; b"" at the end."""
        data = self._inflate() if self._gzip else self._plain()
        self._given += len(data)
        self._check_size()
        return data

    def _plain(self) -> bytes:
        data, self._raw = self._raw, b""
        return data or self._file.read(CHUNK_BYTES)

    def _more(self) -> bytes:
        data, self._raw = self._raw, b""
        if not data:
            data = self._file.read(CHUNK_BYTES)
            self._taken += len(data)
        return data

    def _inflate(self) -> bytes:
        """One chunk of a gzip stream of any number of members; a broken stream gives what came before the break."""
        while True:
            if self._member is None:
                data = self._more()
                # Some writers pad the end of a stream with zero bytes; anything else that is no member ends it too.
                if not data.startswith(_GZIP):
                    self.truncated |= bool(data.strip(b"\0")) and self._given == 0
                    return b""
                self._member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
            elif self._member.needs_input:
                data = self._more()
                if not data:
                    return self._broken()
            else:
                data = b""
            try:
                out: bytes = self._member.decompress(data, CHUNK_BYTES)
            except _IsalError:
                return self._broken()
            if self._member.eof:
                self._raw = self._member.unused_data + self._raw
                self._member = None
            if out:
                return out

    def _broken(self) -> bytes:
        self.truncated = True
        self._gzip = False
        self._raw = b""
        self._file.seek(0, 2)
        if self._given == 0:
            raise TraceError(
                "trace-bad-gzip",
                "The file starts like gzip, but nothing in it can be unpacked.",
                "Copy the file again; `gzip -t FILE` tells whether a copy is whole.",
            )
        return b""

    def _check_size(self) -> None:
        limits = self._limits
        if self._given > limits.max_bytes:
            raise TraceError(
                "trace-too-large",
                f"The trace is larger than {limits.max_bytes / 1024**3:.3g} GiB uncompressed.",
                "Record fewer steps: torch.profiler.schedule(wait=1, warmup=2, active=3) is enough.",
            )
        if self._gzip and self._given > RATIO_FLOOR_BYTES and self._given > limits.max_ratio * self._taken:
            raise TraceError(
                "trace-too-large",
                f"The file unpacks to more than {limits.max_ratio:.0f} times its size, which no trace does.",
                "Give the trace as plain JSON if it is real.",
            )


def foreign(head: bytes) -> tuple[str, str] | None:
    """(what it is, what to do) for the first bytes of a file that is known to be something else."""
    for magic, what, remedy in _FOREIGN:
        if head.startswith(magic):
            return what, remedy
    if head[257:262] == b"ustar":
        return "a tar archive", "Unpack it (tar -xf) and give the .json or .json.gz inside."
    return None
