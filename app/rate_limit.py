"""Who asks: one network address is one client, with a share of the queue and of the server's time.

Loopback is nobody in particular: it is the operator, or a proxy that all clients come through, and is not limited.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from starlette.types import Scope

MOST_CLIENTS = 10_000
"""Clients whose requests are counted; beyond that those seen longest ago are forgotten, which only favours them."""

WINDOW_S = 60.0

_KEY = secrets.token_bytes(16)


@dataclass(frozen=True, slots=True)
class Client:
    """name: a keyed hash of the address, new with each start, so that no address is stored. most_waiting: its places
    in the queue of each kind of job."""

    name: str
    most_waiting: int


CLIENT: ContextVar[Client | None] = ContextVar("client", default=None)
"""The client of the request that is being answered; None for loopback and outside of requests."""


def client_name(scope: Scope) -> str | None:
    """The client of an ASGI request, None for loopback. IPv6 counts by /64, which one subscriber has whole."""
    peer = scope.get("client")
    try:
        address = ipaddress.ip_address(peer[0]) if peer else None
    except ValueError:  # a Unix socket, or a test's own name
        return None
    if address is None or address.is_loopback:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        if mapped is not None and mapped.is_loopback:
            return None
        packed = mapped.packed if mapped is not None else address.packed[:8]
    else:
        packed = address.packed
    return hashlib.blake2b(packed, key=_KEY, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a client may still ask: `left` of `quota` requests; wait_s until the next one where none is left."""

    allowed: bool
    quota: int
    left: int
    wait_s: int

    def headers(self) -> dict[str, str]:
        """The fields of draft-ietf-httpapi-ratelimit-headers, and Retry-After where the request is refused."""
        told = {
            "RateLimit-Policy": f'"client";q={self.quota};w={WINDOW_S:.0f}',
            "RateLimit": f'"client";r={self.left};t={self.wait_s}',
        }
        return told if self.allowed else told | {"Retry-After": str(self.wait_s)}


class Rates:
    """Token buckets: `per_minute` requests at once, refilled evenly. Thread-safe; memory is bounded."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self.clock = clock
        self.buckets: dict[str, tuple[float, float]] = {}
        self.lock = threading.Lock()

    def take(self, client: str) -> Allowance:
        """Count one request of a client."""
        now, speed = self.clock(), self.per_minute / WINDOW_S
        with self.lock:
            tokens, seen = self.buckets.pop(client, (float(self.per_minute), now))
            tokens = min(float(self.per_minute), tokens + (now - seen) * speed)
            allowed = tokens >= 1
            tokens -= allowed
            self.buckets[client] = (tokens, now)
            if len(self.buckets) > MOST_CLIENTS:
                del self.buckets[next(iter(self.buckets))]
        wait_s = 0 if tokens >= 1 else max(1, round((1 - tokens) / speed + 0.5))
        return Allowance(allowed, self.per_minute, int(tokens), wait_s)
