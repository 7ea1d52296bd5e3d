"""`tritonworthy serve`: uvicorn around app.main, with streams that end when the server does."""

from __future__ import annotations

import gc
import resource
import socket
import sys
from pathlib import Path
from typing import TypedDict

import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from app import logs
from app.jobs.ray.model import FleetError
from app.main import create_app
from app.settings import Settings, explain
from app.storage.database import SchemaError
from app.web.server.http_protocol import connection_class

BAD_SETTINGS = 2
MOST_DESCRIPTORS = 65536
KEEP_ALIVE_S = 75
"""A connection without a request stays open so long: longer than clients and proxies keep theirs (httpx 5 s, nginx 60),
so that it is they who close. At uvicorn's 5 s one of 29,000 requests of the soak met a connection that was closing."""


def raise_descriptors() -> None:
    """As many descriptors as the operator allows: the soft limit is 1,024 on most systems, connections, uploads and
    children share it, and nothing in this process waits with select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Server(uvicorn.Server):
    """Tells the application that it stops before it waits for connections: streams, `?wait=` and bodies that are still
    on their way end by themselves then.

    Without that uvicorn waits for them, they wait for their jobs, and are answered with 500 in the end.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        application = self.config.app
        assert isinstance(application, FastAPI)
        application.state.closing.set()
        application.state.queue.begin_stop()
        application.state.host.stop()
        await super().shutdown(sockets)


def make_server(application: FastAPI, settings: Settings, log_level: str = "info") -> Server:
    """The server, not started."""
    return Server(
        uvicorn.Config(
            application,
            host=settings.host,
            port=settings.port,
            http=connection_class(
                head_s=settings.request_timeout_s,
                most=settings.max_connections,
                most_of_client=settings.max_client_connections,
            ),
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=settings.shutdown_s,
            server_header=False,
            proxy_headers=False,
            log_level=log_level,
            log_config=None,  # app.logs
        )
    )


class Options(TypedDict, total=False):
    """Settings that the command line may say."""

    host: str
    port: int
    data_dir: Path


def serve(options: Options) -> int:
    """Serve until stopped; 2 for settings that do not work. options: settings by name, before the environment's."""
    try:
        settings = Settings(**options)
    except ValidationError as error:
        print(explain(error), file=sys.stderr)
        return BAD_SETTINGS
    logs.configure(settings.log_format)
    try:
        application = create_app(settings)
    except FleetError as error:
        print(f"the fleet cannot be used: {error}", file=sys.stderr)
        return BAD_SETTINGS
    except OSError as error:
        print(f"the data folder {settings.data_dir} cannot be used: {error}", file=sys.stderr)
        return BAD_SETTINGS
    except (SchemaError, sa.exc.SQLAlchemyError) as error:
        reason = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        place = sa.make_url(settings.url).set(query={}).render_as_string(hide_password=True)
        print(f"the database {place} cannot be used: {reason}", file=sys.stderr)
        return BAD_SETTINGS
    # What was imported stays: a full collection that walks through all its objects stops every request meanwhile.
    gc.collect()
    gc.freeze()
    raise_descriptors()
    try:
        make_server(application, settings).run()
    except SystemExit:
        # uvicorn's way to say that it could not listen; it has said why.
        return BAD_SETTINGS
    return 0
