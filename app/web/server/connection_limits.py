"""Admission: which connections may be open at once, and which one has to go for a new one.

A connection without a request (it waits for its next one, or has not sent a whole head yet) gives its place to a new
one, the one that has been so for longest first: whoever holds connections open and asks nothing keeps nobody out. One
with a request, such as the event stream of a job, keeps its place. When all places have requests there are a few more,
for requests that must get through: `app.web.server.security` says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

Connection = TypeVar("Connection", bound=Hashable)

RESERVED = 32
"""Places beyond the ordinary ones."""


class Entry(Enum):
    """What became of a new connection."""

    ORDINARY = "ordinary"
    RESERVED = "reserved"  # one request, and only of the kind that these places are kept for
    ALL_TAKEN = "all taken"
    CLIENT_TAKEN = "client taken"  # all places of this client


@dataclass(slots=True)
class _Place:
    client: str | None
    reserved: bool


class Admission(Generic[Connection]):
    """Not thread-safe: of one event loop. most: ordinary places; most_of_client: of one address (app.rate_limit).

    close: closes a connection that has to go. may_close: whether it can be closed now without losing what is sent.
    """

    def __init__(
        self,
        most: int,
        most_of_client: int,
        *,
        close: Callable[[Connection], None],
        may_close: Callable[[Connection], bool] = lambda _: True,
        reserved: int = RESERVED,
    ) -> None:
        self.most = most
        self.most_of_client = most_of_client
        self.reserved = reserved
        self.close = close
        self.may_close = may_close
        self.places: dict[Connection, _Place] = {}
        self.idle: dict[Connection, None] = {}  # the one that has been idle for longest first
        self.of_client: Counter[str] = Counter()

    def enter(self, connection: Connection, client: str | None) -> Entry:
        """Give a new connection a place, which may cost another one its own. client: None is not counted."""
        if client is not None and self.of_client[client] >= self.most_of_client:
            if not self._make_room(lambda place: place.client == client):
                return Entry.CLIENT_TAKEN
        beyond = self._count(reserved=False) >= self.most and not self._make_room(lambda place: not place.reserved)
        if beyond and self._count(reserved=True) >= self.reserved and not self._make_room(lambda p: p.reserved):
            return Entry.ALL_TAKEN
        self.places[connection] = _Place(client, beyond)
        self.idle[connection] = None
        if client is not None:
            self.of_client[client] += 1
        return Entry.RESERVED if beyond else Entry.ORDINARY

    def note(self, connection: Connection, *, busy: bool) -> None:
        """A request begins or has ended."""
        if busy:
            self.idle.pop(connection, None)
        elif connection in self.places:
            self.idle.setdefault(connection)

    def leave(self, connection: Connection) -> None:
        """It is closed, or about to be. One that has no place is ignored."""
        place = self.places.pop(connection, None)
        self.idle.pop(connection, None)
        if place is not None and place.client is not None:
            self.of_client[place.client] -= 1
            if not self.of_client[place.client]:
                del self.of_client[place.client]

    def _count(self, *, reserved: bool) -> int:
        return sum(place.reserved is reserved for place in self.places.values())

    def _make_room(self, wanted: Callable[[_Place], bool]) -> bool:
        """Close the idle connection that has waited for longest of those that are wanted; False without one."""
        oldest = next((c for c in self.idle if wanted(self.places[c]) and self.may_close(c)), None)
        if oldest is None:
            return False
        self.leave(oldest)
        self.close(oldest)
        return True
