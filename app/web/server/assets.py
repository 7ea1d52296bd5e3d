"""Static files: addressed by a hash of their content, so that a browser may keep them for ever, and compressed once."""

from __future__ import annotations

import gzip
import hashlib
import os
from functools import cache
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from app.web.server.compression import LEAST_BYTES, takes_gzip

WEB = Path(__file__).resolve().parent.parent
YEAR_S = 365 * 24 * 3600
KEPT_FOR_EVER = f"public, max-age={YEAR_S}, immutable"
"""Cache-Control of what its address names by content."""

TEXT_ENDINGS = (".js", ".css", ".svg", ".json", ".LICENSE")
BEST = 9
"""zlib's slowest: 0.05 s for the largest file, once in a server's life."""


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


@cache
def compressed(path: str, changed_ns: int) -> bytes:
    """A static file as gzip. changed_ns: when it was, so that one that is edited meanwhile is compressed again."""
    return gzip.compress(Path(path).read_bytes(), BEST, mtime=0)


def compress_all() -> None:
    """Every static file, before anybody asks for it."""
    for path in FOLDER.rglob("*"):
        if path.name.endswith(TEXT_ENDINGS) and (stat := path.stat()).st_size >= LEAST_BYTES:
            compressed(str(path), stat.st_mtime_ns)


class Assets(StaticFiles):
    """StaticFiles with cache headers: for ever by hash, asked again (ETag) without. Text is sent as gzip to whoever
    takes it, but for parts of a file: those are of the file as it is."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER)

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        asked = Headers(scope=scope)
        text = str(full_path).endswith(TEXT_ENDINGS) and stat_result.st_size >= LEAST_BYTES
        if text and takes_gzip(asked.get("accept-encoding", "")) and "range" not in asked:
            response = _as_gzip(str(full_path), stat_result, response, asked)
        by_hash = scope["query_string"].startswith(b"v=")
        response.headers["Cache-Control"] = KEPT_FOR_EVER if by_hash else "no-cache"
        if text:
            response.headers.add_vary_header("Accept-Encoding")
        return response


def _as_gzip(path: str, stat: os.stat_result, plain: Response, asked: Headers) -> Response:
    """The same answer, compressed: with a tag of its own, for its bytes are others."""
    tag = f'"{plain.headers["etag"].strip(chr(34))}-gzip"'
    known = [part.strip().removeprefix("W/") for part in asked.get("if-none-match", "").split(",")]
    if tag in known:
        return NotModifiedResponse(Headers({"etag": tag}))
    if plain.status_code != 200:  # it has not changed since the day that was asked about
        return plain
    body = compressed(path, stat.st_mtime_ns)
    headers = {"ETag": tag, "Last-Modified": plain.headers["last-modified"], "Content-Encoding": "gzip"}
    return Response(body, 200, headers, plain.media_type)
