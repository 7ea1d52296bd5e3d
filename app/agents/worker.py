"""The worker of the MCP server: `python -m app.agents.worker FD FOLDER`. It imports torch, so that the server need not.

server -> worker   a question (app.agents.questions), one line of JSON
worker -> server   {"progress": 0.3, "message": ...} any number of times, then {"answer": {...}} or {"error": "..."}

One question at a time, in the only thread that does anything: work on regions is done in forks of it. When its stdin
ends the server is gone, and it ends with all that it started.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from typing import cast

from app.agents.answers import answer
from app.agents.errors import AgentError
from app.agents.folder import Folder
from app.agents.questions import Question
from app.check.safe import visible
from profiler.child.limits import is_of_memory
from profiler.child.process import kill_all_of


def main(argv: list[str]) -> int:
    """Answer until the server is gone."""
    fd, folder = int(argv[0]), Folder(Path(argv[1]))
    os.set_inheritable(fd, False)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    with os.fdopen(fd, "w", encoding="utf-8") as output:

        def say(message: dict[str, object]) -> None:
            output.write(json.dumps(message) + "\n")
            output.flush()

        def tell(fraction: float, message: str) -> None:
            say({"progress": fraction, "message": visible(message)})

        while True:
            question = cast("Question", json.loads(lines.get()))
            try:
                said: dict[str, object] = {"answer": answer(question, folder, tell)}
            except AgentError as error:
                said = {"error": str(error)}
            except Exception as fault:
                traceback.print_exc()
                said = {"error": _in_words(fault)}
            say(said)


def _listen(lines: queue.SimpleQueue[str]) -> None:
    """Hand on what the server asks; at its end, end."""
    for line in sys.stdin:
        lines.put(line)
    kill_all_of(os.getpid())


def _in_words(fault: Exception) -> str:
    """A fault of ours."""
    if is_of_memory(fault):
        return "out of memory: the file needs more than this machine has free"
    frame = traceback.extract_tb(fault.__traceback__)[-1]
    return f"internal error: {visible(f'{type(fault).__name__}: {fault}')} ({Path(frame.filename).name}:{frame.lineno})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
