"""What is wrong with a file: it cannot be read as a trace at all, or what was unpacked from it may not be right."""

from __future__ import annotations

from enum import Flag, auto


class TraceError(Exception):
    """A file that is not a trace, or is too large to be read as one.

    code: stable, kebab-case: `trace-empty`, `trace-bad-gzip`, `trace-bad-zstd`, `trace-bad-sqlite`, `trace-not-json`,
    `trace-not-a-trace`, `trace-too-large`, `trace-zstd-missing`.
    message: one sentence about this file. remedy: what to do next.
    A trace that is damaged or incomplete is not an error: it is read as far as it goes, with a Note.
    """

    def __init__(self, code: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[TraceError], tuple[str, str, str]]:
        """Pickles whole: the reader runs in a child process."""
        return (TraceError, (self.code, self.message, self.remedy))


class Damage(Flag):
    """What is wrong with a packed file of which every member could be unpacked to its end."""

    NONE = 0
    CHECKSUM = auto()
    """A member's checksum or length is not that of what was unpacked, or its header's is wrong."""
    NO_CHECKSUM = auto()
    """The file ends inside the checksum of its last member."""
    TRAILING_BYTES = auto()
    """Something that is no gzip follows the last member."""
