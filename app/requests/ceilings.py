"""The ceilings of this host's GPU, or of a kind of the fleet: measured on request by a child process, and kept.

On a fleet the child runs on a host of the kind, in that host's slot: nothing else is measured there meanwhile.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import threading
from pathlib import Path
from typing import Any

import app as package
from app.archive.record_store import slug
from app.errors import Problem
from app.jobs.exit_reason import ExitReason, failure
from app.jobs.local_runner import Limits, LocalRunner
from app.jobs.protocol import Runner
from app.jobs.ray import model
from app.objects.device import CeilingsStatus, MeasuredCeilings
from app.requests.state import ServerState

TIMEOUT_S = 180.0
"""Waiting for a validation that has the GPU counts; in a fleet waiting for the host does not."""
ROOT = Path(package.__file__).resolve().parent.parent.parent

_lock = threading.Lock()
_running: set[Path] = set()
_failed: dict[Path, str] = {}


def path_of(state: ServerState, kind: str | None = None) -> Path:
    """Where they are kept: a fleet's next to the uploads, where all servers see them."""
    folder: Path = state.settings.data_dir
    if kind is None:
        return folder / "ceilings.json"
    shared: Path = state.settings.shared_dir or folder
    return shared / f"ceilings-{slug(kind)}.json"


def last_measured(state: ServerState, kind: str | None = None) -> MeasuredCeilings | None:
    """What was measured last; None where nothing was. A damaged file is nothing."""
    try:
        measured: MeasuredCeilings = json.loads(path_of(state, kind).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return measured


def status(state: ServerState, kind: str | None = None) -> CeilingsStatus:
    """running, error ("" for none) and what was measured last."""
    path = path_of(state, kind)
    return {"running": path in _running, "error": _failed.get(path, ""), "measured": last_measured(state, kind)}


def begin(state: ServerState, kind: str | None = None) -> None:
    """Begin to measure, in a thread that waits for the child; a second asking joins in.

    kind: of the fleet. Problem 409 without a GPU, 422 for a kind that no host has.
    """
    runner = _runner(state, kind)
    path = path_of(state, kind)
    with _lock:
        if path in _running:
            return
        _running.add(path)
    threading.Thread(target=_run, args=(state, kind, runner, path), name="ceilings", daemon=True).start()


def _runner(state: ServerState, kind: str | None) -> Runner:
    if kind is not None:
        fleet = state.fleet
        wrong = "This server has no fleet." if fleet is None else model.refusal(kind, fleet.nodes())
        if fleet is None or wrong:
            raise Problem(422, "device-not-here", "", wrong)
        return fleet
    if not state.host().get("gpu"):
        raise Problem(409, "needs-gpu", "", "This host has no GPU whose ceilings could be measured.")
    if state.queue.gpu.suspicion is not None:
        raise Problem(409, "needs-gpu", "", f"The GPU is suspect: {state.queue.gpu.suspicion.reason}")
    return LocalRunner()


def _run(state: ServerState, kind: str | None, runner: Runner, path: Path) -> None:
    try:
        log = state.settings.logs_dir / f"ceilings-{secrets.token_hex(8)}.log"
        try:
            ended = runner.run(
                [*state.queue.command("ceilings")],
                {"on": kind} if kind else {},
                limits=Limits(TIMEOUT_S, 2.0),
                log=log,
                tick=lambda: "drop" if state.closing.is_set() else "go",
                cwd=ROOT,
            )
        except Exception as error:  # no process to be had, or the cluster gone: said on the page
            ended = failure(ExitReason.LOST, f"({type(error).__name__}: {error})"[:500])
        if ended.error is None and not _sound(ended.value):
            ended = failure(ExitReason.BAD_OUTPUT, "(it is no list of rates)")
        if ended.error is not None:
            _failed[path] = str(ended.error["message"])
            return
        _failed.pop(path, None)
        _keep(path, ended.value)
        log.unlink(missing_ok=True)
    finally:
        with _lock:
            _running.discard(path)


def _sound(measured: Any) -> bool:
    rates = measured.get("ceilings") if isinstance(measured, dict) else None
    return isinstance(rates, list) and all({"name", "value", "unit"} <= set(c) for c in rates)


def _keep(path: Path, measured: MeasuredCeilings) -> None:
    """Whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(measured, file)
    os.replace(name, path)
