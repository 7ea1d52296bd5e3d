"""Responses counted by method and class of status, for /metrics."""

from __future__ import annotations

import threading
import time
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Requests:
    """Counts responses by method and status class. Pure ASGI; one integer per combination, whatever the path.

    Not prometheus_client's own Counter: that adds a `_created` series to each combination.
    """

    def __init__(self) -> None:
        self.started = time.time()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.lock = threading.Lock()

    def around(self, app: ASGIApp) -> ASGIApp:
        """The same application, counted."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            async def count(message: Message) -> None:
                if message["type"] == "http.response.start":
                    method = scope["method"] if scope["method"] in _METHODS else "OTHER"
                    with self.lock:
                        self.counts[(method, f"{message['status'] // 100}xx")] += 1
                await send(message)

            await app(scope, receive, count if scope["type"] == "http" else send)

        return counted


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
