"""The end of what a process writes, through a pipe: however much it is, nothing else of it is kept."""

from __future__ import annotations

import os
import select
import threading

PART_BYTES = 1 << 20
"""Read at once: more than a pipe holds."""
LOOK_S = 0.1


class Tail:
    """write: the end of the pipe that the process is given."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept = b""
        self._over = threading.Event()
        self._read, self.write = os.pipe()
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        while True:
            is_last = self._over.is_set()  # before the look: what was written until then is read
            if select.select([self._read], [], [], 0 if is_last else LOOK_S)[0]:
                part = os.read(self._read, PART_BYTES)
                self._kept = (self._kept + part)[-self._most_bytes :]
                if not part:
                    return
            if is_last:
                return

    def close(self) -> None:
        """The process has ended; others may still hold the pipe."""
        os.close(self.write)
        self._over.set()
        self._reader.join()
        os.close(self._read)

    @property
    def text(self) -> str:
        """What it wrote last; whole once it is closed."""
        return self._kept.decode(errors="replace").strip()
