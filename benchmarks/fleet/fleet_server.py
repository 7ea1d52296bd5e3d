"""`tritonworthy serve` as it is, settings from the environment, whose jobs are done by fleet_child.py."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from app import main
from app.cli import serve
from app.jobs.queue import Queue

CHILD = Path(__file__).with_name("fleet_child.py")
make_queue = main.make_queue


def with_cheap_jobs(*args: Any) -> Queue:
    """The server's own queue, with another command line of its children."""
    queue = make_queue(*args)
    queue.command = lambda _: [sys.executable, "-S", str(CHILD), "{fd}"]
    return queue


main.make_queue = with_cheap_jobs  # type: ignore[assignment]
if __name__ == "__main__":
    sys.exit(serve.serve({}))
