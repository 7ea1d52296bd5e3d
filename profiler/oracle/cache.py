"""Cache: answers of the oracle on disk, by the content of the question and the versions that it was asked of."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

Json = dict[str, Any]

RECIPE = 1
"""Raise it when the way of asking changes what is answered."""
MAX_ANSWERS = 4000


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of answers, readable by its owner only. Safe for several processes: files appear whole."""

    folder: Path

    def get(self, question: Mapping[str, Any]) -> Json | None:
        """The answer, or None. A damaged file is no answer."""
        try:
            found: Json = json.loads(self._path(question).read_text())
        except (OSError, ValueError):
            return None
        return found

    def put(self, question: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Keep an answer. A disk that does not take it costs the next asking, nothing else."""
        path = self._path(question)
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "w") as file:
                json.dump(answer, file)
            os.replace(name, path)
            self._prune()

    def _prune(self) -> None:
        """Drop the oldest tenth when there are too many."""
        files = list(self.folder.glob("*.json"))
        if len(files) > MAX_ANSWERS:
            for old in sorted(files, key=lambda p: p.stat().st_mtime)[: MAX_ANSWERS // 10]:
                old.unlink(missing_ok=True)

    def _path(self, question: Mapping[str, Any]) -> Path:
        asked = json.dumps([question, RECIPE, versions()], sort_keys=True)
        return self.folder / f"{hashlib.sha256(asked.encode()).hexdigest()[:40]}.json"


def versions() -> dict[str, str]:
    """Versions of torch and triton, without importing them."""
    return {name: metadata.version(name) for name in ("torch", "triton")}
