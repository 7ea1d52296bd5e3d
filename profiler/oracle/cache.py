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

from profiler.oracle.serialization import Json

RECIPE = 2
"""Raise it when the way of asking changes what is answered."""
MAX_BYTES = 512 * 1024 * 1024
"""Of all answers together: a kernel's listings can be megabytes."""
LOOK_EVERY = 64
"""Answers between two looks at the folder's size."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of answers, readable by its owner only. Safe for several processes: files appear whole."""

    folder: Path

    def get(self, question: Mapping[str, object]) -> Json | None:
        """The answer, or None. A damaged file is no answer."""
        try:
            answer: Json = json.loads(self._path(question).read_text())
        except (OSError, ValueError):
            return None
        return answer

    def put(self, question: Mapping[str, object], answer: Mapping[str, object]) -> None:
        """Keep an answer. A disk that does not take it costs the next asking, nothing else."""
        path = self._path(question)
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, exist_ok=True)  # but not the folder around it: that vanished, if it is gone
            handle, name = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "w") as file:
                json.dump(answer, file)
            os.replace(name, path)
            if int(path.stem, 16) % LOOK_EVERY == 0:
                self.prune()

    def prune(self) -> None:
        """Drop the oldest answers until a tenth of MAX_BYTES is free."""
        answers = sorted((p.stat().st_mtime, p.stat().st_size, p) for p in self.folder.glob("*.json"))
        total = sum(size for _, size, _ in answers)
        if total <= MAX_BYTES:
            return
        for _, size, path in answers:
            path.unlink(missing_ok=True)
            total -= size
            if total <= 0.9 * MAX_BYTES:
                return

    def _path(self, question: Mapping[str, object]) -> Path:
        key = json.dumps([question, RECIPE, versions()], sort_keys=True)
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"


def versions() -> dict[str, str]:
    """Versions of torch and triton, without importing them."""
    return {name: metadata.version(name) for name in ("torch", "triton")}
