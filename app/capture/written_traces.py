"""The traces that another process writes into a folder: which are new, and when they are whole."""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

SUFFIXES = (".json", ".json.gz")
POLL_S = 0.5
SETTLED_S = 2.0
"""A file that has not grown for so long is whole: writers compress in one go."""
CHUNK_BYTES = 1 << 20
KERNEL = (b'"cat": "kernel"', b'"cat":"kernel"')

Sizes = Mapping[Path, tuple[int, int]]
"""File -> its size and when it was changed last."""


def traces_in(folder: Path) -> Sizes:
    """Traces below the folder, by their names."""
    sizes: dict[Path, tuple[int, int]] = {}
    for path in sorted(folder.rglob("*.json*")):
        if path.name.endswith(SUFFIXES) and path.is_file():
            status = path.stat()
            sizes[path] = (status.st_size, status.st_mtime_ns)
    return sizes


def new_traces(folder: Path, before: Sizes) -> Sizes:
    """Those that were not there, or were another's."""
    return {path: size for path, size in traces_in(folder).items() if before.get(path) != size}


def wait_for_traces(
    folder: Path, before: Sizes, ranks: int, deadline: float, clock: Callable[[], float] = time.monotonic
) -> list[Path]:
    """The new traces with a GPU's kernels once there are as many as ranks and none grows; those there are, at the
    deadline. A server's own process writes one too, which has no kernel."""
    seen: Sizes = {}
    changed_at_s = clock()
    while True:
        now = new_traces(folder, before)
        if now != seen:
            seen, changed_at_s = now, clock()
        late = clock() >= deadline
        if late or (len(seen) >= ranks and clock() - changed_at_s >= SETTLED_S):
            whole = [path for path in seen if has_kernels(path)]
            if late or len(whole) >= ranks:
                return whole
        time.sleep(POLL_S)


def has_kernels(path: Path) -> bool:
    """Whether a kernel of a GPU is in a trace; False for one that cannot be read."""
    end = b""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while data := file.read(CHUNK_BYTES):
                if any(word in end + data for word in KERNEL):
                    return True
                end = (end + data)[-len(KERNEL[0]) :]
    except (OSError, EOFError, zlib.error):
        return False
    return False
