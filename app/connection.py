"""Connection: uvicorn's HTTP/1.1 with patience that ends, so that slow clients hold no place for long.

uvicorn waits for ever for the head of a request, for a body that was refused already, and for a client that does not
read its response.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from app.web.problems import Problem
from app.web.security import HEADERS


class Connection(H11Protocol):
    """head_s: time for a request's head, and for the rest of a body after its response. write_s: longest wait for a
    client that does not read. most: connections at once; further ones are told 503 and closed."""

    head_s: ClassVar[float] = 20.0
    write_s: ClassVar[float] = 60.0
    most: ClassVar[int] = 512

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.head_timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None
        self.drain_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(Problem(503, "too-many-connections", "", "Too many connections are open. Try again later."))
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self.head_timer, self.write_timer, self.drain_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self.drain_timer is None and not self.transport.is_closing():
            # Refused before all of it came: closing at once would lose the answer on its way.
            self.drain_timer = self.loop.call_later(self.head_s, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.write_timer is None:
            self.write_timer = self.loop.call_later(self.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem(400, "bad-request", "", msg))

    def _expect_head(self) -> None:
        """A timer runs while the head of a request is on its way, whatever trickles in; none between requests."""
        begun = self.conn.their_state is h11.IDLE and (self.cycle is None or bool(self.conn.trailing_data[0]))
        if begun and self.head_timer is None and not self.transport.is_closing():
            self.head_timer = self.loop.call_later(self.head_s, self._late)
        elif not begun and self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None
        if self.drain_timer is not None and self.conn.their_state is not h11.SEND_BODY:
            self.drain_timer.cancel()
            self.drain_timer = None

    def _late(self) -> None:
        self._refuse(Problem(408, "request-stalled", "", "The request did not come in time."))

    def _refuse(self, problem: Problem) -> None:
        """Answer below the application, and close. Nothing is said where a response is on its way already."""
        response = problem.response()
        headers = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
        headers += [*response.raw_headers, (b"cache-control", b"no-store"), (b"connection", b"close")]
        try:
            reason = STATUS_PHRASES[problem.status]
            head = self.conn.send(h11.Response(status_code=problem.status, headers=headers, reason=reason))
            body = self.conn.send(h11.Data(data=bytes(response.body)))
            self.transport.write((head or b"") + (body or b"") + (self.conn.send(h11.EndOfMessage()) or b""))
        except h11.LocalProtocolError:
            pass
        self.transport.close()


def connection_class(*, head_s: float, most: int) -> type[Connection]:
    """The class with an operator's limits."""
    return type("LimitedConnection", (Connection,), {"head_s": head_s, "most": most})
