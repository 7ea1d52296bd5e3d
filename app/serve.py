"""`tritonworthy serve`: uvicorn around app.main, with streams that end when the server does."""

from __future__ import annotations

import logging
import socket
import sys
from typing import Any

import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from app.database import SchemaError
from app.main import create_app
from app.settings import Settings, explain

BAD_SETTINGS = 2


class Server(uvicorn.Server):
    """Tells the application that it stops before it waits for connections: an open event stream ends by itself then.

    Without that uvicorn waits for the streams, and the streams for their jobs.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        application = self.config.app
        assert isinstance(application, FastAPI)
        application.state.closing.set()
        await super().shutdown(sockets)


def make_server(application: FastAPI, settings: Settings, log_level: str = "info") -> Server:
    """The server, not started."""
    return Server(
        uvicorn.Config(
            application,
            host=settings.host,
            port=settings.port,
            timeout_graceful_shutdown=settings.shutdown_s,
            server_header=False,
            proxy_headers=False,
            log_level=log_level,
        )
    )


def serve(given: dict[str, Any]) -> int:
    """Serve until stopped; 2 for settings that do not work. `given` overrides the environment."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = Settings(**given)
    except ValidationError as error:
        print(explain(error), file=sys.stderr)
        return BAD_SETTINGS
    try:
        application = create_app(settings)
    except (OSError, SchemaError, sa.exc.SQLAlchemyError) as error:
        print(f"the data folder {settings.data_dir} cannot be used: {error}", file=sys.stderr)
        return BAD_SETTINGS
    try:
        make_server(application, settings).run()
    except SystemExit:
        # uvicorn's way to say that it could not listen; it has said why.
        return BAD_SETTINGS
    return 0
