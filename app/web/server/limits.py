"""Limits in the headers of an answer: how many more jobs may wait, and how large an upload may be.

`RateLimit-Policy` and `RateLimit` are those of draft-ietf-httpapi-ratelimit-headers-10, with places in the queue as
the quota; `Upload-Limit` is that of draft-ietf-httpbis-resumable-upload. What a client may ask in a minute is the
guard's.
"""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.objects.job import JobKind
from app.requests.state import ServerState
from app.storage import job_table
from app.web.server.contract import Contract


class LimitHeaders:
    """Pure ASGI around the routes. state: the server's; contract: what the routes declare."""

    def __init__(self, app: ASGIApp, state: ServerState, contract: Contract) -> None:
        self.app = app
        self.state = state
        self.contract = contract

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_api = scope["type"] == "http" and scope["path"].startswith("/api/")
        kind = self.contract.queued_kind(scope["path"]) if is_api and scope["method"] == "POST" else None
        upload = is_api and self.contract.takes_files(scope["path"])

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if upload:
                    most = self.contract.most_bytes(scope["path"]) or self.state.settings.max_upload_bytes
                    headers["Upload-Limit"] = f"max-size={most}"
                if kind is not None and message["status"] < 500:
                    for name, value in (await run_in_threadpool(room, self.state, kind)).items():
                        headers.append(name, value)
            await send(message)

        await self.app(scope, receive, send_with_limits if kind or upload else send)


def room(state: ServerState, kind: JobKind) -> dict[str, str]:
    """The places in the queue of one kind of job, for whoever asks: how many there are, how many are free."""
    with state.store.database.read() as connection:
        quota, left = job_table.room(connection, kind, state.settings.queue_cap)
    return {
        "RateLimit-Policy": f'"{kind}";q={quota};qu="concurrent-requests"',
        "RateLimit": f'"{kind}";r={max(0, left)}',
    }
