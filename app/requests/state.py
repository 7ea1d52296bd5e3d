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


class ServerState(Protocol):
    """The parts that requests are answered with.

    fleet: None where jobs run on this host. service: questions to the processes that import torch.
    templates: what children are forked from, by the first word of their commands. closing: set once the server stops.
    """

    settings: Settings
    store: Store
    host: HostFacts
    fleet: RayRunner | None
    queue: Queue
    service: Executor
    templates: Mapping[str, Template]
    closing: threading.Event


def state_of(request: Request) -> ServerState:
    """The state of the server that the request came to."""
    state: ServerState = request.app.state
    return state
