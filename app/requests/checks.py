"""Asking for a check, from a form with files or from JSON with ids and texts. Raises Problem."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from app.archive import record_store
from app.check.config import Config, ConfigError, from_mapping, read_toml
from app.check.run import TRACE_SUFFIXES, is_trace
from app.check.subject import slim, slim_region
from app.errors import Problem, not_found, queue_full
from app.objects.job import Job
from app.objects.task import CheckHistory, CheckSource, CheckTask
from app.requests import regions as submit
from app.requests import request_fingerprint, uploads
from app.requests.check_history import read_history, read_software
from app.requests.state import ServerState
from app.requests.uploads import Form, Received, Upload
from app.settings import Settings
from app.storage import checks, job_table
from app.storage.database import new_id
from profiler.hardware import find_device

CONFIG_BYTES = 64 * 1024
FILE = "tritonworthy.toml"
HISTORY = ("history", "commit", "branch", "software", "method")
FORM = Form(companions=("baseline", "config"), texts=("config", *HISTORY), text_bytes=CONFIG_BYTES)


def read_config(data: Mapping[str, object] | str, file: str = "config") -> Config:
    """A configuration as TOML or JSON; 422 with the key, and the line of TOML, for one that cannot be taken.

    file: what the message calls a TOML text.
    """
    try:
        config = read_toml(data, file) if isinstance(data, str) else from_mapping(data)
    except ConfigError as error:
        more: dict[str, str | int] = {"key": error.key, **({"line": error.line} if error.line else {})}
        raise Problem(422, "config-invalid", "The assertions cannot be taken", error.message, **more) from None
    if config.device is not None and find_device(config.device) is None:
        detail = f"check.device: there is no device called {config.device[:80]!r} in the table."
        raise Problem(422, "config-invalid", "The assertions cannot be taken", detail, key="check.device")
    return config


async def submit_form(request: Request, state: ServerState) -> tuple[Job, bool]:
    """Take files (traces and regions' texts), a baseline and a configuration from a form; the job, and whether it is
    new: the same content once more is the check that is here already, see `checks.add`."""
    settings: Settings = state.settings
    path = settings.uploads_dir / new_id()
    received = await uploads.receive(request, path, settings, form=FORM)
    try:
        return await run_in_threadpool(_submit_files, state, received)
    except BaseException:
        await run_in_threadpool(received.drop)
        raise


def _submit_files(state: ServerState, received: Received) -> tuple[Job, bool]:
    given = _config_text(received)
    config = read_config(given)
    history = read_history(
        wanted=_switch(received.fields.get("history", "")),
        commit=received.fields.get("commit", ""),
        branch=received.fields.get("branch", ""),
        software=read_software(received.fields.get("software", "")),
        method=received.fields.get("method", ""),
    )
    sources = [_source(state, config, upload) for upload in received.traces]
    baseline = received.companions.get("baseline")
    before: CheckSource | None = None
    if baseline and baseline.size:
        before = {"name": baseline.name, "path": baseline.path.name}
    sent = (*received.traces, *received.companions.values())
    hashes = {u.path.name: u.sha256 for u in sent}
    job, new = _queue(state, config, tomllib.loads(given), sources, before, hashes, history)
    if not new:
        received.drop()
    return job, new


def _config_text(received: Received) -> str:
    """The configuration's text, sent as a field or as a file; "" without one."""
    upload = received.companions.get("config")
    if upload is None:
        return received.fields.get("config", "")
    if upload.size > CONFIG_BYTES:
        raise Problem(422, "invalid-request", "", f"A configuration has at most {CONFIG_BYTES} bytes.")
    text = upload.path.read_text(encoding="utf-8", errors="replace")
    upload.path.unlink()
    return text


def _source(state: ServerState, config: Config, upload: Upload) -> CheckSource:
    """A file that was sent: a trace stays where it is until it is read, a region's text is advised on at once."""
    if Path(upload.name).suffix.lower() in TRACE_SUFFIXES or is_trace(upload.path):
        return {"name": upload.name, "path": upload.path.name}
    most = state.settings.max_region_chars
    if upload.size > 4 * most:  # bytes of a character in UTF-8
        raise Problem(413, "region-too-large", "", f"A region may have at most {most} characters.")
    text = upload.path.read_text(encoding="utf-8", errors="replace")
    upload.path.unlink()
    return _advise(state, config, upload.name, text)


def submit_json(
    state: ServerState,
    *,
    traces: list[str],
    region_ids: list[str],
    regions: list[str],
    baseline: str | None,
    config: Mapping[str, object],
    history: CheckHistory | None = None,
) -> tuple[Job, bool]:
    """The same for traces and regions that are here already, by id, and for regions by their text."""
    taken = read_config(config)
    if not (traces or region_ids or regions):
        raise Problem(422, "invalid-request", "", "Give `traces`, `region_ids` or `regions`: something to check.")
    sources = [_trace(state, trace_id) for trace_id in traces]
    for region_id in region_ids:
        region = state.store.region(region_id)
        if region is None:
            raise not_found("region")
        sources.append({"name": region["name"], "region": slim_region(region)})
    sources += [_advise(state, taken, f"region {n}", text) for n, text in enumerate(regions, 1)]
    before = None if baseline is None else _trace(state, baseline)
    return _queue(state, taken, config, sources, before, history=history)


def submit_stored(
    state: ServerState, *, trace: str, baseline: str | None, config: str, history: CheckHistory | None = None
) -> tuple[Job, bool]:
    """The same for one trace that is here, under a configuration as TOML: what the page's form has."""
    taken = read_config(config, FILE)
    if not trace:
        raise Problem(422, "invalid-request", "No trace", "Choose the trace that is to be checked.")
    source = _trace(state, trace)
    before = _trace(state, baseline) if baseline else None
    return _queue(state, taken, tomllib.loads(config), [source], before, history=history)


def _switch(value: str) -> bool:
    if value.lower() not in ("", "true", "false"):
        raise Problem(422, "invalid-request", "", "`history` is true or false.")
    return value.lower() == "true"


def _trace(state: ServerState, trace_id: str) -> CheckSource:
    trace = submit.find_trace(state, trace_id)
    if trace["status"] == "failed":
        detail = (
            f"The trace {trace['name'][:80]!r} could not be read: {trace['error']['message'] if trace['error'] else ''}"
        )
        raise Problem(409, "trace-not-ready", "", detail)
    if trace["status"] != "ready":
        detail = "The trace is still being read. Wait for its job, or upload it with ?wait=."
        raise Problem(409, "trace-not-ready", "", detail, headers={"Retry-After": "1"})
    return {"name": trace["name"], "trace": slim(trace)}


def _advise(state: ServerState, config: Config, name: str, text: str) -> CheckSource:
    """A region's text with its advice: what is wrong with it is told at once."""
    region = submit.preview_region(
        state, text, share_of_step=config.share_of_step, step_time_us=config.step_time_us,
        target_step_time_us=config.target_step_time_us, device=config.device, oracle=False,
    )  # fmt: skip
    return {"name": name, "region": {**slim_region(region), "name": Path(name).stem}}


def _queue(
    state: ServerState,
    config: Config,
    given: Mapping[str, object],
    sources: list[CheckSource],
    baseline: CheckSource | None,
    sent: Mapping[str, str] = MappingProxyType({}),
    history: CheckHistory | None = None,
) -> tuple[Job, bool]:
    """Queue it, unless it is here already. sent: SHA-256 of each file that came, by its name on disk."""
    if baseline is not None and sum("region" not in s for s in sources) != 1:
        raise Problem(422, "invalid-request", "", "A baseline goes with one trace.")
    settings: Settings = state.settings
    request: CheckTask = {
        "config": given,
        "sources": sources,
        "baseline": baseline,
        "archives": [str(folder.resolve()) for folder in (settings.records_dir, record_store.FOLDER)],
        "max_uncompressed_bytes": settings.max_uncompressed_bytes,
    }
    if history is not None:
        request["history"] = history
    new, job = new_id(), None
    digest = request_fingerprint.of_check(request, sent, settings.rule)
    try:
        while job is None:  # the one that was here was removed meanwhile: this one is new after all
            check_id = checks.add(
                state.store.database, check_id=new, name=config.name, request=request, cap=settings.queue_cap,
                digest=digest, keep=not config.validate,
            )  # fmt: skip
            job = state.store.job(check_id)
    except job_table.QueueFullError:
        raise queue_full() from None
    state.queue.wake("check")
    return job, check_id == new
