"""ServerState: what a running server is made of, as those see it who answer its requests. app.main sets it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol

from starlette.requests import Request

from app.jobs.host import HostFacts
from app.jobs.queue import Queue
from app.jobs.ray.runner import RayRunner
from app.requests.executor import Executor
from app.settings import Settings
from app.storage.store import Store
from profiler.child.template import Template


class AsksBehind(Protocol):
    """Who asks Inductor about traces behind everybody else: app.requests.trace_oracle."""

    @property
    def is_on(self) -> bool:
        """Whether this server asks at all."""

    def ask(self, trace_id: str) -> None:
        """Begin to ask about a trace's regions in turn, unless it waits already; returns at once."""

    def stuck(self) -> list[int]:
        """Its processes that were killed and do not end."""


class ServerState(Protocol):
    """The parts that requests are answered with.

    fleet: None where jobs run on this host. service: questions to the processes that import torch. trace_oracle: asks
    about whole traces behind them.
    templates: what children are forked from, by the first word of their commands. closing: set once the server stops.
    """

    settings: Settings
    store: Store
    host: HostFacts
    fleet: RayRunner | None
    queue: Queue
    service: Executor
    trace_oracle: AsksBehind
    templates: Mapping[str, Template]
    closing: threading.Event


def state_of(request: Request) -> ServerState:
    """The state of the server that the request came to."""
    state: ServerState = request.app.state
    return state
