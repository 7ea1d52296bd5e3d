"""The first request finds everything built: while FastAPI builds routes the event loop answers nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import fastapi.routing
import httpx
import pytest

from app.main import create_app
from app.settings import Settings


def test_no_route_is_built_by_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build: Any = fastapi.routing.get_dependant

    def counted(**arguments: Any) -> Any:
        built.append(arguments["path"])
        return build(**arguments)

    monkeypatch.setattr(fastapi.routing, "get_dependant", counted)
    app = create_app(Settings(data_dir=tmp_path, spare=False))

    async def ask() -> None:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            assert "/healthz" in {path.removeprefix("/api/v1") for path in built}
            before = len(built)
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/api/v1/traces")).status_code == 200
            assert len(built) == before

    asyncio.run(ask())
