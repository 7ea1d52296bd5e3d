"""A starter kit as data, and as a zip. No torch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every file in the archive, so that equal kits are equal bytes."""


@dataclass(frozen=True, slots=True)
class Kit:
    """files: name -> text, the kernel's first. candidate: "" where the region has no kernel; why: the reason then."""

    name: str
    candidate: str
    files: Mapping[str, str]
    why: str = ""

    @property
    def kernel(self) -> tuple[str, str] | None:
        """Name and text of the kernel's file; None where there is none."""
        return next(iter(self.files.items())) if self.candidate else None

    def archive(self) -> bytes:
        """All files as a zip."""
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
            for name, text in self.files.items():
                entry = zipfile.ZipInfo(f"{self.name}/{name}", EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                made.writestr(entry, text.encode())
        return held.getvalue()
