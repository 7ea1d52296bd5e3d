"""Work shared by several runs, also on several GPUs: each item is done by the run that claims it first."""

from __future__ import annotations

import os
from pathlib import Path


def claimed(folder: Path | None, name: str) -> bool:
    """Whether this run is the first to ask for an item. folder: one for all runs, made if it is missing; None: no
    other run shares the work. OSError where it cannot be written.
    """
    if folder is None:
        return True
    folder.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(folder / name.replace("/", "-"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
