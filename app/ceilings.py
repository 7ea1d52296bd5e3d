"""The ceilings of this host's GPU, measured on request by a child process and kept in the data folder."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import app as package
from app.jobs.runner import Limits, LocalRunner
from app.web.problems import Problem

Json = dict[str, Any]

TIMEOUT_S = 180.0
"""Waiting for a validation that has the GPU counts."""
ROOT = Path(package.__file__).resolve().parent.parent

_one = threading.Lock()
_failed: dict[str, str] = {}


def path_of(state: Any) -> Path:
    """Where they are kept."""
    folder: Path = state.settings.data_dir
    return folder / "ceilings.json"


def known(state: Any) -> Json | None:
    """What was measured last; None where nothing was. A damaged file is nothing."""
    try:
        found: Json = json.loads(path_of(state).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def status(state: Any) -> Json:
    """running, error ("" for none) and what was measured last."""
    return {"running": _one.locked(), "error": _failed.get(str(path_of(state)), ""), "measured": known(state)}


def begin(state: Any) -> None:
    """Begin to measure, in a thread that waits for the child. Problem 409 without a GPU; a second asking joins in."""
    if not state.host().get("gpu"):
        raise Problem(409, "needs-gpu", "", "This host has no GPU whose ceilings could be measured.")
    if state.queue.gpu.suspicion is not None:
        raise Problem(409, "needs-gpu", "", f"The GPU is suspect: {state.queue.gpu.suspicion.reason}")
    if not _one.acquire(blocking=False):
        return
    threading.Thread(target=_run, args=(state,), name="ceilings", daemon=True).start()


def _run(state: Any) -> None:
    try:
        log = state.settings.logs_dir / f"ceilings-{secrets.token_hex(8)}.log"
        ended = LocalRunner().run(
            [sys.executable, "-m", "app.jobs.tasks", "ceilings", "{fd}"],
            {},
            limits=Limits(TIMEOUT_S, 2.0),
            log=log,
            tick=lambda: "drop" if state.closing.is_set() else "go",
            cwd=ROOT,
        )
        if ended.error is not None:
            _failed[str(path_of(state))] = str(ended.error["message"])
            return
        _failed.pop(str(path_of(state)), None)
        _keep(path_of(state), ended.value)
        log.unlink(missing_ok=True)
    finally:
        _one.release()


def _keep(path: Path, found: Json) -> None:
    """Whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(name, path)
