"""Counters in Prometheus' text format."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.jobs import ledger


class Requests:
    """Counts responses by method and status class. Pure ASGI; one integer per combination, whatever the path."""

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


def exposition(state: Any) -> str:
    """All counters of this server as text."""
    with state.store.database.read() as connection:
        jobs = ledger.counts(connection)
    with state.requests.lock:
        requests = sorted(state.requests.counts.items())
    lines = _metric("tritonworthy_jobs", "gauge", "Jobs by kind and state.")
    lines += [f'tritonworthy_jobs{{kind="{k}",state="{s}"}} {n}' for (k, s), n in sorted(jobs.items())]
    lines += _metric("tritonworthy_queue_depth", "gauge", "Jobs that wait.")
    lines += [f'tritonworthy_queue_depth{{kind="{k}"}} {jobs.get((k, "queued"), 0)}' for k in ledger.KINDS]
    lines += _metric("tritonworthy_http_responses_total", "counter", "Responses since the server started.")
    lines += [f'tritonworthy_http_responses_total{{method="{m}",status="{s}"}} {n}' for (m, s), n in requests]
    lines += _metric("tritonworthy_advice_warm", "gauge", "1 once torch is loaded.")
    lines += [f"tritonworthy_advice_warm {int(state.service.warm.is_set())}"]
    lines += _metric("tritonworthy_start_time_seconds", "gauge", "Unix time of the server's start.")
    lines += [f"tritonworthy_start_time_seconds {state.requests.started:.3f}"]
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
