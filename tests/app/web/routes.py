"""The routes of the application and what they declare, for tests that go through all of them."""

from __future__ import annotations

from fastapi import FastAPI

from app.web.routes import add_routes

CONTRACT = add_routes(FastAPI(docs_url=None, redoc_url=None))
ACCESS = CONTRACT.access
"""(method, path template) -> access."""
