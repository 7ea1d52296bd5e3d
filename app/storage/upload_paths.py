"""Where uploaded files lie: the store keeps names, each server knows its own path of the folder that all share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Json = dict[str, Any]


def place_files(request: Json, folder: Path) -> Json:
    """A job's request with the names of its files replaced by their paths in the folder of uploads.

    Absolute paths, as older programs stored them, stay.
    """
    found = dict(request)
    if "path" in found:
        found = _place(found, folder)
    if found.get("companions"):
        found["companions"] = {field: _place(file, folder) for field, file in found["companions"].items()}
    if found.get("sources"):
        found["sources"] = [_place(source, folder) for source in found["sources"]]
    if found.get("baseline"):
        found["baseline"] = _place(found["baseline"], folder)
    return found


def files(request: Json, folder: Path) -> list[Path]:
    """The files that a check was sent with."""
    sources = place_files({k: request[k] for k in ("sources", "baseline") if request.get(k)}, folder)
    return [Path(s["path"]) for s in (*sources.get("sources", ()), sources.get("baseline") or {}) if "path" in s]


def _place(file: Json, folder: Path) -> Json:
    return {**file, "path": str((folder / file["path"]).resolve())} if "path" in file else file
