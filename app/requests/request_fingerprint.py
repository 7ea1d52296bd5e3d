"""What a request brought, as one hash: two requests of the same hash are answered with the same thing."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from app import __version__
from app.objects.task import CheckTask, ValidateTask
from app.requests.uploads import Upload
from app.thresholds import Thresholds
from kernels.packages import DISTRIBUTIONS


def of_trace(
    upload: Upload, group: str | None, companions: Mapping[str, str], unknown: str | None, rule: Thresholds
) -> str | None:
    """Of a trace and its companions: bytes, group and the rule's numbers, not names. companions: SHA-256 by field.

    None where the bytes of a companion are not known: then nothing is the same.
    """
    if not all(companions.values()):
        return None
    return _digest([upload.sha256, group, sorted(companions.items()), unknown, _program(rule)])


def of_group(uploads: Iterable[Upload]) -> str:
    """A name for the ranks that came in one form without one: the same for the same files."""
    return _digest(sorted(upload.sha256 for upload in uploads))[:26]


def of_check(request: CheckTask, files: Mapping[str, str], rule: Thresholds) -> str:
    """Of a check's request: configuration, traces, regions with their advice, the archive's records, the rule, and the
    commit where it is part of a history: the same trace of two commits is two runs.

    files: SHA-256 by the name that a file has on disk.
    """
    baseline = request.get("baseline")
    subjects = [
        {"name": source["name"], "sha256": files[source["path"]]} if "path" in source else source
        for source in (*request["sources"], *([baseline] if baseline else []))
    ]
    records = [_folder(Path(folder)) for folder in request["archives"]]
    most = request["max_uncompressed_bytes"]
    of_commit = [request["history"]] if "history" in request else []
    return _digest([request["config"], subjects, bool(baseline), most, records, _program(rule), *of_commit])


def of_validation(
    request: ValidateTask, region_id: str | None, versions: Mapping[str, str | None], rule: Thresholds
) -> str:
    """Of a validation's request: region, sizes, candidates, device, share of the step; its stored region; versions of
    the kind that measures; the rule. Not of the advice before, which the first measurement changes."""
    wanted = {key: value for key, value in request.items() if key not in ("name", "advice_before")}
    return _digest([wanted, region_id, versions, __version__, dataclasses.asdict(rule)])


def _folder(folder: Path) -> list[Any]:
    """What tells that a folder of records is as it was: how many there are, and when the newest was written."""
    times = [path.stat().st_mtime_ns for path in folder.glob("*.json")]
    return [len(times), max(times, default=0)]


def _program(rule: Thresholds) -> list[Any]:
    return [__version__, _installed_versions(), dataclasses.asdict(rule)]


@cache
def _installed_versions() -> tuple[tuple[str, str], ...]:
    """Versions of torch and of the libraries: after an upgrade of one the same bytes may get other advice."""
    versions = []
    for name in DISTRIBUTIONS.values():
        try:
            versions.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(versions)


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("ascii")).hexdigest()
