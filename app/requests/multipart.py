"""A multipart body as a stream: which part begins, its bytes. Nothing is written or limited here."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from app.errors import Problem


@dataclass(frozen=True, slots=True)
class Part:
    """The head of a part. filename: None for a text field, "" for a file field that was left empty."""

    field: str
    filename: str | None


class Multipart:
    """feed() the body's bytes as they come, finish() at its end; what cannot be read is Problem `bad-multipart`."""

    def __init__(self, boundary: bytes) -> None:
        self._name = bytearray()
        self._value = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[Part | bytes] = []
        self._ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._headers.clear,
                    "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._headers_finished,
                    "on_part_data": lambda data, start, end: self._pieces.append(data[start:end]),
                    "on_end": self._end,
                },
            )
        except FormParserError:
            raise _unreadable() from None

    def feed(self, data: bytes) -> list[Part | bytes]:
        """What these bytes hold, in order: heads of parts, and bytes of the part whose head came last."""
        try:
            self._parser.write(data)
        except FormParserError:
            raise _unreadable() from None
        pieces, self._pieces = self._pieces, []
        return pieces

    def finish(self) -> None:
        """The body is over."""
        try:
            self._parser.finalize()
        except FormParserError:
            raise _unreadable() from None
        if not self._ended:
            raise Problem(400, "bad-multipart", "", "The multipart body ends early.")

    def _header_end(self) -> None:
        self._headers[bytes(self._name).lower()] = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        given = options.get(b"filename")
        filename = None if given is None else unquote(given.decode("utf-8", "replace"))
        self._pieces.append(Part(options.get(b"name", b"").decode("utf-8", "replace"), filename))

    def _end(self) -> None:
        self._ended = True


def _unreadable() -> Problem:
    return Problem(400, "bad-multipart", "", "The multipart body cannot be read.")
