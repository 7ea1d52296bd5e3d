"""Head: HEAD wherever there is GET, with the headers that GET has and no body (RFC 9110, 9.3.2)."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Head:
    """Pure ASGI around the routes, which see a GET. Its answer ends with its headers: to a stream its client is gone,
    and nothing of it is waited for."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        answered = asyncio.Event()

        async def headers_only(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                answered.set()

        async def nothing_more() -> Message:
            """What comes from the client until it is answered, then that it is gone."""
            if not answered.is_set():
                asked, done = asyncio.ensure_future(receive()), asyncio.ensure_future(answered.wait())
                try:
                    await asyncio.wait((asked, done), return_when=asyncio.FIRST_COMPLETED)
                    if asked.done():
                        return asked.result()
                finally:
                    asked.cancel()
                    done.cancel()
            return {"type": "http.disconnect"}

        await self.app({**scope, "method": "GET"}, nothing_more, headers_only)
