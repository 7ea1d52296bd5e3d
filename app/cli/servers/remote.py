"""A server of Tritonworthy as the command line sees it: JSON over HTTP by the standard library, with a token."""

from __future__ import annotations

import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, TypeAlias
from urllib.parse import quote, urlsplit

Answer: TypeAlias = dict[str, Any]
"""What a server answered, decoded and not checked: of its version of the API's objects, which may be another."""

MOST_BYTES = 64 * 1024 * 1024
"""Of one answer."""
CHUNK_BYTES = 1 << 20
"""Of a file that is sent."""
TIMEOUT_S = 90.0
WAIT_S = 20.0
"""How long one call waits for a job's end."""
PAUSE_S = 1.0
"""Least time between two calls for one job: a server may be set not to wait."""
TRIES = 4
"""Of a question that changes nothing, a connection that breaks included."""
FINAL = frozenset({"done", "failed", "cancelled"})


class RemoteError(Exception):
    """The server cannot be asked, or refuses: in words. status: of its answer, None without one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _Stay(urllib.request.HTTPRedirectHandler):
    """An API does not redirect; the token is for this host alone."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


class Remote:
    """A server by its URL. Every method raises RemoteError."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RemoteError("that is no address of a server: http://HOST:PORT")
        if parts.username or parts.password:
            raise RemoteError("an address has no password in it: put the token into a file, --token-file")
        if token is not None and not (token.isascii() and token.isprintable() and token):
            raise RemoteError("the token is not one line of printable ASCII")
        self.url = url.rstrip("/")
        self.headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self.opener = urllib.request.build_opener(_Stay)

    def get(self, path: str) -> Answer:
        """The API's object at a path that begins with /api/v1/; asked again where nothing answered, or a gateway."""
        for attempt in range(TRIES):
            try:
                return self._ask(urllib.request.Request(self.url + path, headers=self.headers))
            except RemoteError as error:
                if attempt == TRIES - 1 or error.status not in (None, 429, 502, 503, 504):
                    raise
            time.sleep(PAUSE_S * 2**attempt)
        raise AssertionError("unreachable")

    def post(self, path: str, body: Mapping[str, object]) -> Answer:
        """The answer to a JSON body."""
        headers = {**self.headers, "Content-Type": "application/json"}
        data = json.dumps(body).encode()
        return self._ask(urllib.request.Request(self.url + path, data=data, headers=headers, method="POST"))

    def upload(self, path: str, parts: Sequence[tuple[str, Path]]) -> Answer:
        """The answer to a form of files, (field, file) each, which are sent as they are read."""
        boundary = secrets.token_hex(16)
        heads = [_part_head(boundary, field, file.name) for field, file in parts]
        end = f"--{boundary}--\r\n".encode()
        length = sum(len(head) + file.stat().st_size + 2 for head, (_, file) in zip(heads, parts, strict=True))
        headers = {
            **self.headers,
            "Content-Type": f"multipart/form-data; boundary={boundary}",
            "Content-Length": str(length + len(end)),
        }
        body = _form(heads, [file for _, file in parts], end)
        return self._ask(urllib.request.Request(self.url + path, data=body, headers=headers, method="POST"))

    def wait_for(self, job_id: str) -> Answer:
        """A job once it has ended; waits for as long as the server keeps it."""
        while True:
            began = time.monotonic()
            job = self.get(f"/api/v1/jobs/{job_id}?wait={WAIT_S:g}")
            if job.get("state") in FINAL:
                return job
            time.sleep(max(0.0, PAUSE_S - (time.monotonic() - began)))

    def _ask(self, request: urllib.request.Request) -> Answer:
        try:
            with self.opener.open(request, timeout=TIMEOUT_S) as response:
                answer: Answer = json.loads(response.read(MOST_BYTES))
                if not isinstance(answer, dict):
                    raise ValueError("no object")
        except urllib.error.HTTPError as error:
            with error:
                raise RemoteError(_refusal(error), error.code) from None
        except urllib.error.URLError as error:
            raise RemoteError(f"{self.url} does not answer: {error.reason}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise RemoteError(f"{self.url} does not answer as Tritonworthy does: {error}") from None
        return answer


def _part_head(boundary: str, field: str, filename: str) -> bytes:
    name = quote(filename, safe=" ()[]{},;'!@#$^&+=~`")  # neither a quote nor a line's end can leave its place
    return (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode()


def _form(heads: Sequence[bytes], files: Sequence[Path], end: bytes) -> Iterator[bytes]:
    for head, path in zip(heads, files, strict=True):
        yield head
        with path.open("rb") as file:
            while data := file.read(CHUNK_BYTES):
                yield data
        yield b"\r\n"
    yield end


def _refusal(error: urllib.error.HTTPError) -> str:
    """What the server says is wrong, by its problem+json where it is one."""
    try:
        problem = json.loads(error.read(MOST_BYTES))
        reason = problem.get("detail") or problem.get("title")
    except (ValueError, AttributeError, OSError, HTTPException):
        reason = None
    return f"the server says {error.code}: {reason or error.reason}"
