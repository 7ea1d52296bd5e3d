"""Quick: the widget's answer without the framework around it.

Its answer takes a quarter of a millisecond; routing, dependencies and the hop into a worker thread take several times
that. What is not plainly a widget's answers, or would take longer, goes the way of everything else, with its body, and
is answered or refused there: both ways give the same bytes.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.requests import regions
from app.requests.state import ServerState
from app.web.api.request_schemas import AdviceRequest
from app.web.api.responses import answer, is_json

PATH = "/api/v1/advice"
MOST_BYTES = 1000
"""A widget's answers as JSON, with room to spare."""


class Quick:
    """Pure ASGI around the routes. state: the server's."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self.app = app
        self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST" or not _says_json(scope):
            await self.app(scope, receive, send)
            return
        first: Message | None = await receive()
        assert first is not None
        asked = _widget_answers(first)
        if asked is not None and self.state.service.answers_at_once(**asked):
            await answer(regions.advise_widget(self.state, **asked))(scope, receive, send)
            return

        async def again() -> Message:
            nonlocal first
            message, first = first, None
            return message if message is not None else await receive()

        await self.app(scope, again, send)


def _says_json(scope: Scope) -> bool:
    return is_json(Headers(scope=scope).get("content-type", ""))


def _widget_answers(message: Message) -> dict[str, Any] | None:
    """A widget's answers where the message is all of a body that has them."""
    body: bytes = message.get("body", b"")
    if message["type"] != "http.request" or message.get("more_body", False) or len(body) > MOST_BYTES:
        return None
    if b"widget" not in body:  # a region's text: not to be read twice
        return None
    try:
        asked = AdviceRequest.model_validate(json.loads(body))
    except (ValueError, RecursionError, ValidationError):
        return None
    return None if asked.widget is None else asked.widget.model_dump()
