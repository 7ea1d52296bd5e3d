"""/api/v1/history: what checks measured run after run, what changed and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import TypeAdapter

from app.errors import Problem
from app.objects.history import HistoryAppended, HistoryDetail, HistoryEntry, HistoryList
from app.requests import check_history
from app.requests.state import state_of
from app.requests.uploads import UNCOUNTED, chunks
from app.storage.check_history import Narrowed
from app.web.api.responses import After, answer, answer_page, errors, is_json
from app.web.server.access import Access, declare

BODY_BYTES = 16 * 1024 * 1024
"""Of runs that are sent at once: some ten thousand of a few measures."""

LINES = ("application/jsonl", "application/x-ndjson", "application/x-jsonlines")
"""What a file of one run a line is sent as."""


def _inline(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema with its definitions in their places: the description has them nowhere else."""
    if isinstance(schema, dict):
        if name := schema.get("$ref"):
            return _inline(definitions[name.rpartition("/")[2]], definitions)
        return {key: _inline(value, definitions) for key, value in schema.items() if key != "$defs"}
    return [_inline(value, definitions) for value in schema] if isinstance(schema, list) else schema


_SCHEMA = TypeAdapter(HistoryEntry).json_schema()
ENTRY = _inline(_SCHEMA, _SCHEMA["$defs"])
"""Of one run."""

BODY = {
    "requestBody": {
        "description": "Runs as `tritonworthy check --history` writes them: the file itself, or its lines in JSON.",
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["entries"],
                    "additionalProperties": False,
                    "properties": {"entries": {"type": "array", "items": ENTRY}},
                }
            },
            **{kind: {"schema": {"type": "string", "description": "One run a line."}} for kind in LINES[:2]},
        },
    }
}

NAME_CHARS = 500
SeriesLimit = Annotated[int, Query(ge=1, le=50, description="Most series of one page.")]
Filter = Annotated[str, Query(max_length=NAME_CHARS)]

router = APIRouter(prefix="/api/v1/history", tags=["checks"])


@router.post(
    "",
    responses={200: {"model": HistoryAppended}, **errors(400, 408, 413, 415, 422, 429, 503)},
    openapi_extra=BODY,
    max_body_size=UNCOUNTED,
)
@declare(
    Access.UPLOAD,
    codes=({400: ("upload-aborted",), 408: ("upload-stalled",), 422: ("history-invalid",)},),
    most_bytes=BODY_BYTES,
)
async def append(request: Request) -> Response:
    """Keep runs that were measured elsewhere.

    One whose `id` is here already changes nothing: a file is sent again as it grows. Where its values are others,
    `other_values` names it. Of a file, lines that are no run
    are named and left out; of JSON nothing is kept where one is none.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        detail = f"Content-Encoding {encoding[:40]!r} is not read here: send the runs as they are."
        raise Problem(415, "unsupported-media-type", "", detail)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    lines = kind in LINES
    if not lines and not is_json(kind):
        detail = f"Send a history's file with Content-Type: {LINES[0]}, or JSON with application/json."
        raise Problem(415, "unsupported-media-type", "", detail)
    state = state_of(request)
    data = bytearray()
    async for chunk in chunks(request, state.settings):
        data += chunk
        if len(data) > BODY_BYTES:
            raise Problem(413, "body-too-large", "", f"This may have at most {BODY_BYTES} bytes.")

    def keep() -> HistoryAppended:
        if lines:
            return check_history.append(state, *check_history.read_lines(bytes(data)))
        return check_history.append(state, check_history.read_object(bytes(data)))

    return answer(await run_in_threadpool(keep))


@router.get("", responses={200: {"model": HistoryList}, **errors(422)})
@declare(Access.COMPUTE)
def series_list(
    request: Request, limit: SeriesLimit = 20, after: After = None, check: Filter = "", branch: Filter = "",
    device: Filter = "",
) -> Response:  # fmt: skip
    """Series, the one whose run came last first, each with its newest values and the last change among them."""
    wanted = Narrowed(check, branch, device)
    return answer_page(request, check_history.list_series(state_of(request), limit, after, wanted))


@router.get("/{series_id}", responses={200: {"model": HistoryDetail}, **errors(404, 422)})
@declare(Access.COMPUTE)
def series(
    request: Request,
    series_id: str,
    device: Filter = "",
    runs: Annotated[
        int, Query(ge=1, le=check_history.MOST_RUNS, description="The newest so many runs.")
    ] = check_history.MOST_RUNS,
) -> Response:
    """A series: its newest runs, what they were expected to measure, and each change with its cause."""
    return answer(check_history.find_series(state_of(request), series_id, device=device, runs=runs))


@router.delete("/{series_id}", status_code=204, responses=errors(404))
@declare(Access.CHANGE)
def delete(request: Request, series_id: str) -> Response:
    """Forget a series, and the runs that have a value in no other."""
    check_history.delete_series(state_of(request), series_id)
    return Response(status_code=204)
