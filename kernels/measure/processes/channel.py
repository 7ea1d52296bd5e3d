"""JSON lines over a socket of their own: what a child prints can never be taken for an answer."""

from __future__ import annotations

import json
import select
import socket
import threading

import msgspec

MAX_MESSAGE = 16_000_000


class ProtocolError(Exception):
    """The other side sent something that is no JSON object on one line, or too long a line."""


class Channel:
    """One end. Blocking `receive`; `feed` for a side that waits on many. Both give JSON that nobody has checked yet."""

    def __init__(self, end: socket.socket, limit: int = MAX_MESSAGE) -> None:
        self.end = end
        self.limit = limit
        self._buffer = b""
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self.end.fileno()

    def send(self, message: msgspec.Struct) -> None:
        """Raises OSError when the other side is gone."""
        line = encode(message)
        with self._sending:
            self.end.sendall(line)

    def receive(self) -> dict[str, object] | None:
        """The next message, or None when the other side closed."""
        while b"\n" not in self._buffer:
            part = self.end.recv(65536)
            if not part:
                return None
            self._buffer += part
            if len(self._buffer) > self.limit:
                raise ProtocolError(f"a message of more than {self.limit} bytes")
        line, self._buffer = self._buffer.split(b"\n", 1)
        return decode(line)

    def waits(self, seconds: float) -> bool:
        """Whether `receive` has something to read within that time.

        Not for the socket alone to say: one read of it may have brought several messages, all but the first of which
        are kept here.
        """
        return b"\n" in self._buffer or bool(select.select([self.end], [], [], seconds)[0])

    def feed(self) -> tuple[list[dict[str, object]], bool]:
        """Read once what is there: the complete messages, and whether the other side is still open."""
        try:
            part = self.end.recv(1 << 20)
        except ConnectionResetError:
            part = b""
        self._buffer += part
        *lines, self._buffer = self._buffer.split(b"\n")
        if max(map(len, [*lines, self._buffer])) > self.limit:
            raise ProtocolError(f"a message of more than {self.limit} bytes")
        return [decode(line) for line in lines], bool(part)

    def close(self) -> None:
        self.end.close()


def encode(message: msgspec.Struct) -> bytes:
    """The message's line. NaN and infinities travel as Python's json writes them; msgspec's would make them null."""
    return json.dumps(msgspec.to_builtins(message)).encode() + b"\n"


def decode(line: bytes) -> dict[str, object]:
    """One line as a JSON object; anything else raises ProtocolError."""
    try:
        message = json.loads(line)
    except ValueError:
        raise ProtocolError(f"not JSON: {line[:80]!r}") from None
    if not isinstance(message, dict):
        raise ProtocolError(f"not a JSON object: {line[:80]!r}")
    return message
