"""Connection: uvicorn's HTTP/1.1 with patience that ends, so that slow clients hold no place for long.

uvicorn waits for ever for the head of a request, for a body that was refused already, and for a client that does not
read its response. Where all connections are taken it lets nobody in: here an idle one goes
(`app.web.server.connection_limits`).
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from app.errors import Problem
from app.rate_limit import client_name
from app.web.server.connection_limits import Admission, Entry
from app.web.server.problems import as_json
from app.web.server.security import HEADERS, RESERVED_PLACE

STOP_DRAIN_S = 0.5
"""When the server stops, a client that is still sending gets so long to read that it was refused."""

REFUSALS = {
    Entry.ALL_TAKEN: "Too many connections are open. Try again later.",
    Entry.CLIENT_TAKEN: "Too many connections of this address are open. Close some, or try again later.",
}


class Connection(H11Protocol):
    """head_s: time for a request's head, and for the rest of a body after its response. write_s: longest wait for a
    client that does not read. admission: who may be connected, for all connections of a server."""

    head_s: ClassVar[float] = 20.0
    write_s: ClassVar[float] = 60.0
    admission: ClassVar[Admission[Connection]]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.head_timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None
        self.drain_timer: asyncio.TimerHandle | None = None
        self.stopping = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        entry = self.admission.enter(self, client_name({"client": self.client}))
        if entry in REFUSALS:
            self._refuse(Problem(503, "too-many-connections", "", REFUSALS[entry]))
            return
        if entry is Entry.RESERVED:
            self.app_state = {**self.app_state, RESERVED_PLACE: True}
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.admission.leave(self)
        for timer in (self.head_timer, self.write_timer, self.drain_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self.admission.note(self, busy=self._is_busy())
        self._expect_head()
        self._leave_when_stopping()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.admission.note(self, busy=self._is_busy())
        if self.transport.get_write_buffer_size():
            self._expect_reading()
        if self.conn.their_state is h11.SEND_BODY and self.drain_timer is None and not self.transport.is_closing():
            # Refused before all of it came: closing at once would lose the answer on its way.
            wait_s = STOP_DRAIN_S if self.stopping else self.head_s
            self.drain_timer = self.loop.call_later(wait_s, self.transport.abort)
        self._leave_when_stopping()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None
        if self.transport.get_write_buffer_size():  # less than the transport tells of again
            self._expect_reading()

    def shutdown(self) -> None:
        """The server stops. A request whose body is still on its way is answered now, and not cut off before it is."""
        if self._is_busy() and self.cycle.more_body:
            self.stopping = True
            self.cycle.message_event.set()  # wakes whoever reads the body: the guard refuses it
        else:
            super().shutdown()

    def close_idle(self) -> None:
        """Another connection gets its place."""
        self.timeout_keep_alive_handler()

    def has_sent_all(self) -> bool:
        """Whether nothing is lost when it is closed now."""
        return self.transport.get_write_buffer_size() == 0

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem(400, "bad-request", "", msg))

    def _leave_when_stopping(self) -> None:
        if self.stopping and not self._is_busy() and self.conn.their_state is not h11.SEND_BODY:
            self.transport.close()

    def _is_busy(self) -> bool:
        """Whether a request is under way, from its whole head to the end of its response."""
        return self.cycle is not None and not self.cycle.response_complete

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

    def _expect_reading(self) -> None:
        """A timer runs while the client has something to read. A closed connection too lives until it is read."""
        if self.write_timer is None:
            self.write_timer = self.loop.call_later(self.write_s, self._unread)

    def _unread(self) -> None:
        self.write_timer = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _late(self) -> None:
        self._refuse(Problem(408, "request-stalled", "", "The request did not come in time."))

    def _refuse(self, problem: Problem) -> None:
        """Answer below the application, and close. Nothing is said where a response is on its way already."""
        response = as_json(problem)
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
        if self.transport.get_write_buffer_size():
            self._expect_reading()


def connection_class(*, head_s: float, most: int, most_of_client: int) -> type[Connection]:
    """The class of one server, with an operator's limits."""
    admission = Admission[Connection](
        most, most_of_client, close=Connection.close_idle, may_close=Connection.has_sent_all
    )
    return type("LimitedConnection", (Connection,), {"head_s": head_s, "admission": admission})
