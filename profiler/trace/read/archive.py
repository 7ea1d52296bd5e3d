"""The one trace inside a tar archive."""

from __future__ import annotations

from profiler.trace.errors import TraceError
from profiler.trace.read.formats.kinds import SQLITE
from profiler.trace.read.formats.unzstd import is_zstd
from profiler.trace.read.gunzip import GZIP, Compressed

_BLOCK = 512
_REGULAR = (b"0", b"\0", b"7")
TRACES = (".json", ".json.gz", ".json.zst", ".sqlite", ".sqlite.gz", ".sqlite.zst")
"""How the names of files end that may be traces inside an archive."""
_BEGINNINGS = (b"{", b"[", GZIP, SQLITE)
BLANKS = b"\xef\xbb\xbf \t\r\n"


def may_be_trace(head: bytes) -> bool:
    """By the first bytes of a file: of JSON, a database, or what is packed."""
    return is_zstd(head) or head.lstrip(BLANKS).startswith(_BEGINNINGS)


def is_tar(head: bytes) -> bool:
    """Whether these are the first bytes of a tar archive (POSIX, GNU, or the old one, which has a checksum only)."""
    if len(head) < _BLOCK:
        return False
    if head[257:262] == b"ustar":
        return True
    stated = _number(head[148:156])
    return stated is not None and stated > 0 and stated == _checksum(head[:_BLOCK])


class Member:
    """The text of the archive's only trace. Raises TraceError where there is none, and at the end where more follow."""

    def __init__(self, archive: Compressed) -> None:
        self.truncated = False
        self._archive = archive
        self._text = b""
        self._remaining = 0  # bytes of the member that are not read yet
        self._padding = 0
        self._name = self._seek()
        if not self._name:
            raise TraceError(
                "trace-not-a-trace",
                "The archive holds no .json, .json.gz or other trace's file.",
                "Give the trace itself, as export_chrome_trace() wrote it.",
            )
        self.head = self._next()
        self._first = True

    def read(self) -> bytes:
        """The next chunk; b"" at the end."""
        if self._first:
            self._first = False
            return self.head
        return self._next()

    def _next(self) -> bytes:
        if not self._remaining:
            self._end()
            return b""
        if not self._text and not self._more():
            self.truncated, self._remaining = True, 0
            return b""
        data = self._text[: self._remaining]
        self._text = self._text[self._remaining :]
        self._remaining -= len(data)
        return data

    def _more(self) -> bool:
        chunk = self._archive.read()
        self._text += chunk
        return bool(chunk)

    def _end(self) -> None:
        if self._name and not self._archive.truncated:
            first, self._name = self._name, ""
            self._skip(self._padding)
            other = self._seek()
            if other:
                raise TraceError(
                    "trace-not-a-trace",
                    f"The archive holds several traces: {first}, {other} and perhaps more.",
                    "Give the trace alone.",
                )

    def _seek(self) -> str:
        """The name of the next trace, whose text comes next; "" where there is none."""
        while True:
            header = self._take(_BLOCK)
            if len(header) < _BLOCK or not header.strip(b"\0"):
                return ""
            size = _number(header[124:136])
            if size is None or size < 0:
                return ""
            self._padding = -size % _BLOCK
            name = header[:100].split(b"\0")[0].decode("utf-8", "replace")
            if header[156:157] in _REGULAR and self._is_trace(name, size):
                self._remaining = size
                return name
            self._skip(size + self._padding)

    def _is_trace(self, name: str, size: int) -> bool:
        """By its name; a long one is cut off at 100 characters, so by its first byte too."""
        base = name.rsplit("/", 1)[-1]
        if base.startswith("._"):  # archives from macOS have one with each file
            return False
        if base.lower().endswith(TRACES):
            return True
        while not self._text and self._more():
            pass
        return len(name) >= 100 and size > 0 and may_be_trace(self._text)

    def _take(self, count: int) -> bytes:
        while len(self._text) < count and self._more():
            pass
        data, self._text = self._text[:count], self._text[count:]
        return data

    def _skip(self, count: int) -> None:
        while count > len(self._text):
            count -= len(self._text)
            self._text = b""
            if not self._more():
                return
        self._text = self._text[count:]


def _number(text: bytes) -> int | None:
    """A number in a header: octal digits, or base 256 where the first bit is set; None for neither."""
    if text[:1] == b"\x80":
        return int.from_bytes(text[1:], "big")
    digits = text.strip(b" \0")
    if not digits:
        return 0
    return int(digits, 8) if digits.isdigit() and not set(digits) & set(b"89") else None


def _checksum(header: bytes) -> int:
    """The sum of all bytes, the checksum's own counted as blanks."""
    return sum(header[:148]) + 8 * 0x20 + sum(header[156:])
