"""Traces handed in, once for API and forms: with the other ranks of the job, and what was recorded with them.

Raises Problem. `state` is the server's: app.requests.state.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from app.errors import Problem, not_found, queue_full
from app.objects.task import ReadTask
from app.objects.trace import Trace
from app.requests import request_fingerprint, uploads
from app.requests.state import ServerState
from app.requests.uploads import COMPANIONS, Received, Upload, companion_path
from app.settings import Settings
from app.storage import job_table, trash
from app.storage.database import is_id, new_id

GROUP_CHARS = 100


async def submit_upload(
    request: Request,
    state: ServerState,
    *,
    name: str | None = None,
    group: str | None = None,
    companion: str | None = None,
    fresh: bool = False,
) -> tuple[Trace, bool]:
    """Take a trace from a request's body and queue its reading: the trace with status "reading", True.

    Where the same bytes, with the same companions, are here already: the trace that they are, False. fresh: never.

    A form may have several files called `file`, the ranks of one job: the first is answered, the others are of its
    group. group: a name that the ranks of one job share. companion: id of a trace of the same model, whose operations
    and shapes the kernels of CUDA graphs are given; 404 where there is none, before anything is taken. A form may have
    both as fields as well, the latter as `companion`, also as a file, and a file `execution_trace`. What is wrong with
    one of those is told by the trace's notes: it is read without.
    """
    settings: Settings = state.settings
    if companion and await run_in_threadpool(state.store.trace_file, companion) is None:
        raise Problem(
            404, "not-found", "There is no such trace",
            "No trace has the id that `companion` names. Nothing was taken.",
            remedy="Upload it first, or send the file itself as the part `companion` of a form.",
        )  # fmt: skip
    path = settings.uploads_dir / new_id()
    await run_in_threadpool(_make_room, state, _announced(request))
    received = await uploads.receive(request, path, settings, name)
    return await run_in_threadpool(_submit, state, received, group, companion, not fresh)


async def submit_again(request: Request, state: ServerState, trace_id: str) -> Trace:
    """Read a trace that is here already once more, with the companions that the form has: a new trace, "reading".

    The old one's companions are kept unless the form replaces it. The old trace, its regions and their validations
    stay as they are.
    """
    settings: Settings = state.settings
    known = await run_in_threadpool(state.store.trace, trace_id)
    file = await run_in_threadpool(state.store.trace_file, trace_id)
    if known is None or file is None:
        raise not_found("trace")
    old, path = settings.uploads_dir / file, settings.uploads_dir / new_id()
    if not await run_in_threadpool(_share, old, path):
        raise not_found("trace")
    first = Upload(path, known["name"], known["sha256"], known["bytes"])
    try:
        received = await uploads.receive(request, path, settings, first=first)
        if len(received.traces) == 1 and not received.companions and not received.fields:
            detail = "The form has no file: choose at least one."
            raise Problem(422, "upload-not-a-file", "", detail)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    before = cast("ReadTask | None", await run_in_threadpool(state.store.job_request, trace_id))
    for field, companion in ((before.get("companions") if before else None) or {}).items():
        kept = companion_path(path, field)
        replaced = field in received.companions or field in received.fields
        if not replaced and await run_in_threadpool(_share, companion_path(old, field), kept):
            received.companions[field] = Upload(kept, companion["name"], "", kept.stat().st_size)
    trace, _ = await run_in_threadpool(_submit, state, received, before.get("group") if before else None, None, False)
    return trace


def submit_file(state: ServerState, path: Path, name: str) -> Trace:
    """The same for a file that lies on the server, such as an example."""
    settings: Settings = state.settings
    _make_room(state, os.stat(path).st_size)
    upload = uploads.copy_in(path, settings.uploads_dir / new_id(), settings)
    received = Received((Upload(upload.path, name, upload.sha256, upload.size),), {}, {})
    return _submit(state, received, None, None, True)[0]


def delete_trace(state: ServerState, trace_id: str) -> None:
    """Forget a trace: its reading is stopped, its files, regions and job are removed."""
    if is_id(trace_id):
        state.queue.cancel(trace_id)
    file = state.store.delete_trace(trace_id)
    if file is None:
        raise not_found("trace")
    _remove(state.settings.uploads_dir / file)


def delete_for_now(state: ServerState, trace_id: str) -> None:
    """Delete a trace so that `undelete` brings it back: its reading is stopped, its files stay until the sweep."""
    if is_id(trace_id):
        state.queue.cancel(trace_id)
    if not trash.put(state.store.database, trace_id):
        raise not_found("trace")


def undelete(state: ServerState, trace_id: str) -> None:
    """Bring a deleted trace back; 404 once it is gone for good."""
    if not trash.restore(state.store.database, trace_id):
        raise Problem(404, "not-found", "That trace is gone", "It was deleted too long ago to be brought back.")


def forget_deleted(state: ServerState, before: str) -> int:
    """How many deleted traces were removed for good: those deleted before then."""
    ids = trash.deleted_before(state.store.database, before)
    for trace_id in ids:
        _forget(state, trace_id)
    return len(ids)


def _make_room(state: ServerState, announced: int = 0) -> None:
    """Where an upload would not fit, what was deleted goes before somebody is refused: the oldest, until it fits.

    Nothing goes for an upload that is refused for its size, or that would not fit without any of them either.
    """
    if uploads.is_too_large(state.settings, announced) or _fits(state, announced):
        return
    kept = trash.deleted_before(state.store.database)
    files = [file for name in kept.values() for file in _files(state.settings.uploads_dir / name)]
    if not _fits(state, announced - _bytes_freed(files)):
        return
    for trace_id in kept:
        _forget(state, trace_id)
        if _fits(state, announced):
            return


def _fits(state: ServerState, more: int) -> bool:
    try:
        uploads.check_disk(state.settings, more)
    except Problem:
        return False
    return True


def _bytes_freed(files: Iterable[Path]) -> int:
    """Bytes that removing all of these files frees: a file with a name that stays stays."""
    status: dict[int, os.stat_result] = {}
    names = Counter[int]()
    for file in files:
        with suppress(FileNotFoundError):
            stat = file.stat(follow_symlinks=False)
            status[stat.st_ino] = stat
            names[stat.st_ino] += 1
    return sum(stat.st_size for inode, stat in status.items() if names[inode] >= stat.st_nlink)


def _forget(state: ServerState, trace_id: str) -> None:
    """Remove a deleted trace for good, unless it was brought back or somebody else was faster."""
    file = trash.remove(state.store.database, trace_id)
    if file is not None:
        _remove(state.settings.uploads_dir / file)


def _announced(request: Request) -> int:
    """The bytes of a body as its head says; 0 where it says nothing that can be read."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 16 else 0


def _submit(
    state: ServerState, received: Received, group: str | None, companion: str | None, share: bool
) -> tuple[Trace, bool]:
    """Queue every trace that came; the first of them, and whether it is new. What finds no place is removed again.

    share: a trace whose very content is here already is that one.
    """
    first, *others = received.traces
    wanted = received.fields.get("beside") or companion
    group = received.fields.get("group") or group or (request_fingerprint.of_group(received.traces) if others else None)
    companions = dict(received.companions)
    unknown = None
    if wanted and "beside" not in companions:
        lender, file = state.store.trace(wanted), state.store.trace_file(wanted)
        path = companion_path(first.path, "beside")
        if lender and file and _share(state.settings.uploads_dir / file, path):
            companions["beside"] = Upload(path, lender["name"], lender["sha256"], lender["bytes"])
        else:
            unknown = wanted[:40]
    waiting, taken, known = list(received.traces), [], []
    trace: Trace | None = None

    def queue(upload: Upload) -> str:
        """The id of the trace that this upload is: its own, or that of the same which is here."""
        own = dict(companions)
        if upload is not first:
            own.pop("execution_trace", None)
            if "beside" in own:
                _share(companion_path(first.path, "beside"), companion_path(upload.path, "beside"))
        return _queue_reading(state, upload, group[:GROUP_CHARS] if group else None, own, unknown, share)

    try:
        while waiting:
            taken.append(queue(waiting[0]))
            if taken[-1] != waiting[0].path.name:
                known.append(waiting[0])
            waiting.pop(0)
        # Whoever deletes the trace that was here already does not delete this upload, whose file is still here.
        for place, upload in enumerate(received.traces):
            while (stored := state.store.trace(taken[place])) is None and upload in known:
                taken[place] = queue(upload)
                if taken[place] == upload.path.name:
                    known.remove(upload)
            trace = stored if upload is first else trace
    except job_table.QueueFullError:
        # Those that had room stay: the first of them is named, so that nothing has to be sent twice.
        extra = {"detail": f"{len(taken)} of {len(received.traces)} traces were taken."}
        raise queue_full(**(extra | {"trace": taken[0]} if taken else {})) from None
    finally:
        for upload in (*waiting, *known):
            _remove(upload.path)
        state.queue.wake("read")
    if trace is None:
        raise not_found("trace")  # somebody deleted it already
    return trace, first not in known


def _queue_reading(
    state: ServerState,
    upload: Upload,
    group: str | None,
    companions: Mapping[str, Upload],
    unknown: str | None,
    share: bool,
) -> str:
    """A trace and the job that reads it; its id, or that of the same which is here. companions: by field; their files
    lie next to the trace's."""
    content = {field: companion.sha256 for field, companion in companions.items()}
    queued: str = state.store.add_trace(
        trace_id=upload.path.name,
        name=upload.name,
        sha256=upload.sha256,
        size=upload.size,
        file=upload.path.name,
        request={
            "path": upload.path.name,
            "name": upload.name,
            "max_uncompressed_bytes": state.settings.max_uncompressed_bytes,
            "group": group,
            "companions": {
                field: {"path": companion_path(upload.path, field).name, "name": companion.name}
                for field, companion in companions.items()
            },
            "beside_unknown": unknown,
        },
        cap=state.settings.queue_cap,
        digest=request_fingerprint.of_trace(upload, group, content, unknown, state.settings.rule),
        share=share,
    )
    return queued


def _share(source: Path, target: Path) -> bool:
    """The same bytes under a second name, so that deleting one trace takes nothing from another; False without them."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        return False
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)
    return True


def _files(path: Path) -> list[Path]:
    """A trace's file and those of its companions, which need not be there."""
    return [path, *(companion_path(path, field) for field in COMPANIONS)]


def _remove(path: Path) -> None:
    for file in _files(path):
        file.unlink(missing_ok=True)
