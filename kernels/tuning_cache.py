"""What tuning chose before, on disk: one small JSON file per operation, device and Triton version."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton

VARIABLE = "TRITONWORTHY_TUNING_DIR"
"""Where the files lie; empty: nowhere, every process tunes for itself."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """One choice: the variant's, its median time, and the seconds that tuning took."""

    choice: str
    time_us: float
    seconds: float


def folder() -> Path | None:
    """$TRITONWORTHY_TUNING_DIR, else below the user's cache; None where it is set to nothing."""
    told = os.environ.get(VARIABLE)
    if told is not None:
        return Path(told) if told else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tritonworthy" / "tuning"


def source_hash(kernels: Iterable[Any]) -> str:
    """The names of these jit functions, "@", and what changes with the text of any of them or of what they call."""
    once = {str(getattr(k, "__name__", "")): k for k in kernels}
    digest = hashlib.sha256()
    for name in sorted(once):
        kernel = once[name]
        digest.update((str(getattr(kernel, "cache_key", "")) or str(getattr(kernel, "src", kernel))).encode())
    return f"{'+'.join(sorted(once))}@{digest.hexdigest()[:16]}"


class TunedFile:
    """The choices of one operation on one device by one text of its kernels. A broken file counts as empty."""

    def __init__(self, name: str, device: torch.device, text: str) -> None:
        where = folder()
        spoken = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        part = re.sub(r"[^A-Za-z0-9.]+", "_", f"{spoken}-triton{triton.__version__}")
        self._path = where / part / f"{name}.json" if where else None
        self._text = text

    def get(self, key: str) -> Tuned | None:
        try:
            return Tuned(**self._all()[f"{self._text} {key}"])
        except (KeyError, TypeError):
            return None

    def put(self, key: str, entry: Tuned) -> None:
        """Keeps it; a folder that cannot be written to is no error, the next process tunes again."""
        if self._path is None:
            return
        # Those of an older text of the same kernels go; others of this operation are tuned by themselves.
        names = self._text.partition("@")[0]
        kept = {k: v for k, v in self._all().items() if k.startswith(f"{self._text} ") or k.partition("@")[0] != names}
        kept[f"{self._text} {key}"] = asdict(entry)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False) as made:
                json.dump(kept, made, indent=1)
            Path(made.name).replace(self._path)
        except OSError:
            return

    def _all(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_text()) if self._path else {}
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}
