"""The bytes of a trace file: plain, gzip, zstd or an archive by its first bytes, in chunks, within limits."""

from __future__ import annotations

from collections.abc import Callable
from io import SEEK_END, BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Protocol

from profiler.trace.errors import Damage, TraceError
from profiler.trace.read.archive import Member, is_tar
from profiler.trace.read.formats.kinds import SQLITE, is_binary
from profiler.trace.read.formats.unzip import Unzip
from profiler.trace.read.formats.unzstd import ZSTD, Unzstd, is_zstd
from profiler.trace.read.gunzip import GZIP, Gunzip
from profiler.trace.read.limits import CHUNK_BYTES, RATIO_FLOOR_BYTES, Limits
from profiler.trace.read.members import ZIP, ZIPS

__all__ = ["Limits", "OnRead", "Reader", "Source", "foreign"]

OnRead = Callable[[float], None]
"""Is told, again and again, which share of a file's bytes has been read."""

_FOREIGN = (
    (ZIP, "a zip archive inside of another", "Unpack it and give the .json or .json.gz inside."),
    (ZSTD, "zstd-compressed twice", "Unpack it (zstd -d) and give the .json, or compress it with gzip."),
    (b"BZh", "bzip2-compressed", "Unpack it (bunzip2) and give the .json, or compress it with gzip."),
    (b"\xfd7zXZ", "xz-compressed", "Unpack it (unxz) and give the .json, or compress it with gzip."),
    (SQLITE, "an SQLite database", "Give an execution trace or a trace of torch.profiler here."),
    (b"\x80\x02", "a Python pickle", "Pickles are never opened. Record with torch.profiler and export_chrome_trace."),
    (b"\x80\x04", "a Python pickle", "Pickles are never opened. Record with torch.profiler and export_chrome_trace."),
)

BINARY_REMEDY = (
    "If it is a report of nsys (.nsys-rep, .qdrep), export it: nsys export --type sqlite FILE. Of torch.profiler give "
    "what export_chrome_trace() wrote, of rocprofv3 what --output-format json did."
)


class Reader(Protocol):
    """What events are read from: chunks of text, b"" at the end.

    truncated: it ends too early. continues: it ends after an event, and the list goes on elsewhere.
    """

    @property
    def truncated(self) -> bool: ...

    @property
    def continues(self) -> bool: ...

    def read(self) -> bytes: ...


class _File:
    """A file's bytes as they are."""

    truncated = False

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self.head = file.read(CHUNK_BYTES)
        self.read_bytes = len(self.head)
        self._first = True

    def read(self) -> bytes:
        if self._first:
            self._first = False
            return self.head
        data = self._file.read(CHUNK_BYTES)
        self.read_bytes += len(data)
        return data

    def whole(self) -> BufferedReader:
        """The file, for what reads it in an order of its own; then all of it counts as read."""
        self.read_bytes = max(self.read_bytes, self._file.seek(0, SEEK_END))
        self._file.seek(0)
        return self._file


class Source:
    """Uncompressed chunks of one file. `truncated` is set when a packed stream or an archive ends early or breaks off.

    `damage`: what else is wrong with the packed stream, known at the end.
    """

    continues = False

    def __init__(self, path: Path, limits: Limits) -> None:
        self._limits = limits
        self._file = path.open("rb")
        self._size = max(1, path.stat().st_size)
        self._read_bytes = 0
        try:
            file = _File(self._file)
            if not file.head:
                raise TraceError(
                    "trace-empty", "The file is empty.", "Was the profiler stopped before the file was copied?"
                )
            self._on_disk = file
            self._layers: list[_File | Gunzip | Unzstd | Member | Unzip] = [file]
            if file.head.startswith(ZIPS):
                self._layers.append(Unzip(file.whole()))
            # trace.json.gz, trace.tar.gz, and a .json.gz in a .tar or .zip: at most packed, tar, packed.
            for _ in range(3):
                top = self._layers[-1]
                is_gzip = top.head.startswith(GZIP)
                if (is_gzip or is_zstd(top.head)) and not isinstance(top, Gunzip | Unzstd):
                    # packed in packed is no trace: only an archive between them makes it one
                    self._layers.append(Gunzip(top) if is_gzip else Unzstd(top))
                elif is_tar(top.head) and not any(isinstance(layer, Member | Unzip) for layer in self._layers):
                    self._layers.append(Member(top))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    @property
    def share_read(self) -> float:
        """Of the file's bytes, how many have been read, from 0 to 1."""
        return min(1.0, self._on_disk.read_bytes / self._size)

    @property
    def is_plain(self) -> bool:
        """Whether the bytes are those of the file itself, neither unpacked nor out of an archive."""
        return len(self._layers) == 1

    @property
    def truncated(self) -> bool:
        return any(layer.truncated for layer in self._layers)

    @property
    def damage(self) -> Damage:
        damage = Damage.NONE
        for layer in self._layers:
            if isinstance(layer, Gunzip | Unzstd):
                damage |= layer.damage
        return damage

    def read(self) -> bytes:
        """The next chunk, at most CHUNK_BYTES long; b"" at the end."""
        data = self._layers[-1].read()
        self._read_bytes += len(data)
        self._check_size()
        if not data:
            self._read_rest()
        return data

    def _read_rest(self) -> None:
        """What follows the trace in a compressed archive: blanks as a rule, and the checksum of all."""
        for layer in reversed(self._layers[:-1]):
            while isinstance(layer, Gunzip | Unzstd) and (data := layer.read()):
                self._read_bytes += len(data)
                self._check_size()

    def _check_size(self) -> None:
        limits = self._limits
        if self._read_bytes > limits.max_bytes:
            raise TraceError(
                "trace-too-large",
                f"The trace is larger than {limits.max_bytes / 1024**3:.3g} GiB uncompressed.",
                "Record fewer steps: torch.profiler.schedule(wait=1, warmup=2, active=3) is enough.",
            )
        if self._read_bytes > RATIO_FLOOR_BYTES and self._read_bytes > limits.max_ratio * self._on_disk.read_bytes:
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
    return ("neither JSON nor a database, but another binary file", BINARY_REMEDY) if is_binary(head) else None
