"""WebState: ServerState with what the web server has of its own. app.main sets it."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import Request

from app.background import Background
from app.requests.state import ServerState
from app.requests.trace_oracle import TraceOracle
from app.web.server.contract import Contract
from app.web.server.health import Health
from app.web.server.memory import Trimmer
from app.web.server.request_counts import Requests
from app.web.server.retention import Retention


class WebState(ServerState, Protocol):
    """The parts around the routes. contract: what the routes declare.

    owns_templates: whether the templates end with this server; several of one process may share them.
    """

    requests: Requests
    health: Health
    contract: Contract
    retention: Retention
    trace_oracle: TraceOracle
    memory: Trimmer
    warm_pages: Background
    owns_templates: bool


def web_state_of(request: Request) -> WebState:
    """The state of the server that the request came to, with what the web server has of its own."""
    state: WebState = request.app.state
    return state
