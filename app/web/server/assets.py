"""Static files: addressed by a hash of their content, so that a browser may keep them for ever."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

WEB = Path(__file__).resolve().parent.parent
YEAR_S = 365 * 24 * 3600
KEPT_FOR_EVER = f"public, max-age={YEAR_S}, immutable"
"""Cache-Control of what its address names by content."""


def folder(name: str) -> Path:
    """templates or static: in this package where it was built (setup.py), at the top of the tree in a checkout."""
    built = WEB / name
    return built if built.is_dir() else WEB.parent.parent / name


FOLDER = folder("static")


@cache
def asset(path: str) -> str:
    """The address of a static file, such as /static/app.css?v=1a2b3c4d. FileNotFoundError for a file that is none."""
    digest = hashlib.sha256((FOLDER / path).read_bytes()).hexdigest()
    return f"/static/{path}?v={digest[:8]}"


class Assets(StaticFiles):
    """StaticFiles with cache headers: for ever by hash, asked again (ETag) without."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER)

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        by_hash = scope["query_string"].startswith(b"v=")
        response.headers["Cache-Control"] = KEPT_FOR_EVER if by_hash else "no-cache"
        return response
