"""The command line's standard streams, whatever they are: closed, on a full disk, without a reader, in ASCII.

What cannot be written to stdout is an error that ends the command; what cannot be written to stderr is lost, for nobody
is left to be told. Characters that a stream's encoding lacks are written as `?`; JSON escapes them instead.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, TypeVar, cast

from app.agents.brief.tokens import json_text as brief_text
from app.objects.brief import Brief

Body = TypeVar("Body")

_CLOSED_MODES = ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY))
"""How a closed stream is opened again: so that reading stdin and writing stdout fail as if it still were closed."""


class OutputError(Exception):
    """Standard output cannot be written; the message says why."""


class NoReaderError(Exception):
    """Nobody reads standard output any more, as after `| head`."""


class _Stream:
    """A text stream that loses what cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            self._fail(error)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        """What is still held for the stream goes nowhere: at its end Python would complain of it once more."""
        with suppress(OSError, ValueError):
            number = self._stream.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)


class _Output(_Stream):
    """A text stream that raises OutputError or NoReaderError."""

    def _fail(self, error: OSError) -> None:
        super()._fail(error)
        if isinstance(error, BrokenPipeError):
            raise NoReaderError from None
        why = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
        raise OutputError(f"cannot write to standard output: {why}") from None


@contextmanager
def standard_streams() -> Iterator[None]:
    """Streams that can be used, while it lasts; writing to stdout may raise OutputError and NoReaderError."""
    before = sys.stdin, sys.stdout, sys.stderr
    _open_closed()
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")  # as files are read
    errors = [_replacing(stream) for stream in (sys.stdout, sys.stderr)]
    own = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast("TextIO", _Output(sys.stdout)), cast("TextIO", _Stream(sys.stderr))
    try:
        yield
    finally:
        sys.stderr.flush()
        for stream, was in zip(own, errors, strict=True):
            if was is not None and isinstance(stream, io.TextIOWrapper):
                with suppress(OSError):
                    stream.reconfigure(errors=was)
        # Those that were opened here stay: at its end Python flushes them.
        sys.stdin, sys.stdout, sys.stderr = (was or now for was, now in zip(before, (sys.stdin, *own), strict=True))


def _replacing(stream: TextIO) -> str | None:
    """Let a stream replace characters that it cannot encode; what it did before, None where it encodes nothing."""
    if not isinstance(stream, io.TextIOWrapper):
        return None
    was = stream.errors
    stream.reconfigure(errors="replace")
    return was


def _open_closed() -> None:
    """Open the descriptors 0 to 2 that are closed, lest a file that is opened later becomes one of them."""
    for number, mode in _CLOSED_MODES:
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
    sys.stdin = sys.stdin or _stand_in(0, "r")
    sys.stdout = sys.stdout or _stand_in(1, "w")
    sys.stderr = sys.stderr or _stand_in(2, "w")


def _stand_in(number: int, mode: str) -> TextIO:
    """A stream for one that Python has not, as its descriptor was closed."""
    return cast("TextIO", open(number, mode, encoding="utf-8", closefd=False))


def _ascii_only() -> bool:
    """Whether stdout's encoding lacks characters."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("_", "-")
    return encoding not in ("utf-8", "utf8")


def json_text(body: object) -> str:
    """An object as JSON for stdout: in characters where its encoding has them all, else with escapes."""
    return json.dumps(body, indent=2, allow_nan=False, ensure_ascii=_ascii_only())


def print_answer(body: Body, text: Callable[[Body], str], *, as_json: bool) -> None:
    """An answer on stdout: as the API has it, or as text for people."""
    print(json_text(body) if as_json else text(body))
    sys.stdout.flush()


def print_brief(brief: Brief) -> None:
    """An answer for an agent on stdout: one line of JSON."""
    print(brief_text(brief, ascii_only=_ascii_only()))
    sys.stdout.flush()
