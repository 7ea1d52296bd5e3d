"""Has a running vLLM or SGLang server record itself, and waits for what it wrote."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from app.capture.engines import START, STOP, Engine, start_body
from app.capture.written_traces import new_traces, traces_in, wait_for_traces

START_S = 60.0
"""The most that a server may take to start its profilers."""
MOST_SAID = 300
"""Characters of an answer that are repeated."""


class ServingError(Exception):
    """The server does not record, or wrote nothing that can be read: in words."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a server.

    output_dir: where it writes, as this process sees it. seconds: how long it records, where no steps are given. ranks:
    traces that are waited for. timeout_s: until they are there, from the end of the recording on.
    """

    engine: Engine
    url: str
    output_dir: Path
    seconds: float
    steps: int | None = None
    ranks: int = 1
    timeout_s: float = 600.0
    token: str | None = None


def record(request: Request, say: Callable[[str], None]) -> list[Path]:
    """The traces that the server wrote. Raises ServingError."""
    _check(request)
    before = traces_in(request.output_dir)
    _post(request, START, start_body(request.engine, request.output_dir, request.steps), START_S)
    running = True
    try:
        if request.steps is None:
            say(f"{request.engine.title} records for {request.seconds:g} s: send it requests meanwhile")
            time.sleep(request.seconds)
            running = False
            _post(request, STOP, None, request.timeout_s)
        else:
            say(f"{request.engine.title} records {request.steps} steps: send it requests meanwhile")
        deadline = time.monotonic() + request.timeout_s
        traces = wait_for_traces(request.output_dir, before, request.ranks, deadline)
    finally:
        if running:  # after steps it has stopped by itself, and says so
            with suppress(ServingError):
                _post(request, STOP, None, START_S)
    if len(traces) >= request.ranks:
        return traces
    raise ServingError(_missing(request, len(traces), len(new_traces(request.output_dir, before))))


def _missing(request: Request, traces: int, files: int) -> str:
    """Why there are fewer traces than ranks."""
    place, within = request.output_dir, f"within {request.timeout_s:g} s"
    if traces:
        return (
            f"{traces} of {request.ranks} traces with kernels are in {place} {within}: --ranks, or a longer --timeout"
        )
    if files:
        return f"the traces in {place} have no kernel of a GPU: the server was idle; send it requests while it records"
    return (
        f"no new trace in {place} {within}: is it the folder that {request.engine.title} writes to, on this machine,"
        " and did requests run while it recorded?"
    )


def _check(request: Request) -> None:
    parts = urlsplit(request.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ServingError(f"{request.url}: that is no address of a server: http://HOST:PORT")
    if not request.output_dir.is_dir():
        raise ServingError(f"{request.output_dir}: no such folder; give the one that the server writes traces to")


def _post(request: Request, path: str, body: dict[str, object] | None, timeout_s: float) -> None:
    """Raises ServingError for all but success."""
    title = request.engine.title
    headers = {"Content-Type": "application/json"} if body is not None else {}
    headers |= {"Authorization": f"Bearer {request.token}"} if request.token else {}
    data = json.dumps(body).encode() if body is not None else b""
    call = urllib.request.Request(request.url.rstrip("/") + path, data=data, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(call, timeout=timeout_s) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        with error:
            raise ServingError(_refusal(request.engine, path, error)) from None
    except TimeoutError:
        raise ServingError(f"{title} has not answered {path} within {timeout_s:g} s") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise ServingError(f"{title} has not answered {path} within {timeout_s:g} s") from None
        raise ServingError(f"{request.url} does not answer: {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise ServingError(f"{request.url} does not answer {path}: {error}") from None


def _refusal(engine: Engine, path: str, error: urllib.error.HTTPError) -> str:
    if error.code in (404, 405):
        return f"{engine.title} answers {error.code} to {path}: {engine.turn_on}"
    if error.code in (401, 403):
        return f"{engine.title} answers {error.code} to {path}: it wants its API key, --engine-key-file"
    said = ""
    with suppress(OSError, HTTPException):
        said = " ".join(error.read(MOST_SAID * 4).decode("utf-8", "replace").split())[:MOST_SAID]
    return f"{engine.title} answers {error.code} to {path}{': ' + said if said else ''}"
