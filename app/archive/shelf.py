"""The Archive's records: one JSON file each, the API's validation with a `name`, found again by region text."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from app.archive.likeness import LEVELS, likeness

Json = dict[str, Any]

FOLDER = Path(__file__).resolve().parent / "records"


def record(validation: Json, name: str, folder: Path = FOLDER) -> Path:
    """Write a validation as a record, named after region, device and day. ValueError where nothing was measured."""
    if not validation.get("device") or validation.get("outcome") in (None, "unmeasured"):
        raise ValueError("only what was measured on a GPU belongs into the archive")
    folder.mkdir(parents=True, exist_ok=True)
    mark = hashlib.sha256(validation["region"].encode()).hexdigest()[:8]
    stem = "-".join(_slug(part) for part in (name, validation["device"], validation.get("date") or "undated"))
    path = folder / f"{stem}-{mark}.json"
    path.write_text(json.dumps({"name": name, **validation}, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return path


@cache
def records(folder: Path = FOLDER) -> tuple[Json, ...]:
    """Every record, newest first. id is the file's name; archived tells it from this host's own measurements."""
    found = []
    for path in sorted(folder.glob("*.json")):
        body = json.loads(path.read_text(encoding="utf-8"))
        found.append({"id": path.stem, "state": "done", **body, "archived": {"file": path.name}})
    return tuple(sorted(found, key=lambda item: str(item.get("date")), reverse=True))


def by_id(record_id: str, folder: Path = FOLDER) -> Json | None:
    """The record of that id."""
    return next((item for item in records(folder) if item["id"] == record_id), None)


def nearest(text: str, folder: Path = FOLDER) -> Json | None:
    """The record of this region; else of the same program in another layout, else at other sizes; else None.

    archived.match says which, by the names of `likeness.LEVELS`.
    """
    known = records(folder)
    for level in LEVELS:
        wanted = likeness(text, level)
        for item in known:
            if likeness(item["region"], level) == wanted:
                return item | {"archived": {**item["archived"], "match": level}}
    return None


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "region"
