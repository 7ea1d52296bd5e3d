"""Inductor for one command, without a server."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profiler.oracle.environment import Environment
    from profiler.oracle.process import Oracle


@contextmanager
def start_oracle(environment: Environment | None = None) -> Iterator[Oracle]:
    """An oracle for one command; its process ends with it, and begins with the first question that is not in the cache:
    the server's, where there is a data folder, else one of this command.

    environment: whose torch is asked, and then nothing is kept; None for this process's own.
    """
    from profiler.oracle.cache import Cache
    from profiler.oracle.environment import package_folder
    from profiler.oracle.process import START_S, Oracle

    if environment is not None:
        with package_folder() as packages:
            other = Oracle(
                timeout_s=START_S, retries=1, interpreter=environment.interpreter, packages=str(packages)
            )  # fmt: skip
            try:
                yield other
            finally:
                other.stop()
        return
    data = Path(os.environ.get("TRITONWORTHY_DATA_DIR") or ".data")
    with tempfile.TemporaryDirectory(prefix="tritonworthy-") as own:
        oracle = Oracle(Cache((data if data.is_dir() else Path(own)) / "oracle"), timeout_s=START_S, retries=1)
        try:
            yield oracle
        finally:
            oracle.stop()
