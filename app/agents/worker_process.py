"""The worker as the server sees it: asked one question at a time, started with the first, replaced when it ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

from app.agents.errors import AgentError
from app.agents.folder import Folder
from app.agents.questions import Question
from app.objects.brief import AnyBrief
from profiler.child.lines import BrokenChildError, LineChild
from profiler.child.process import FD

ROOT = Path(__file__).resolve().parent.parent.parent
ASKS_PER_WORKER = 32
"""Questions after which it is replaced: torch keeps something of every graph."""
TICK_S = 0.1
STOPPED = "cancelled"


class Worker:
    """`ask` from any thread; `close` once."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._turn = threading.Lock()
        self._child: LineChild | None = None
        self._asks = 0

    def ask(self, question: Question, tell: Callable[[float, str], object], stopped: threading.Event) -> AnyBrief:
        """The answer, waiting for earlier questions. tell: told how far it is; stopped: set, it is given up.

        Raises AgentError where there is none.
        """
        while not self._turn.acquire(timeout=TICK_S):
            if stopped.is_set():
                raise AgentError(STOPPED)
        try:
            return self._ask(question, tell, stopped)
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the worker, whatever it does."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _ask(self, question: Question, tell: Callable[[float, str], object], stopped: threading.Event) -> AnyBrief:
        child = self._ready()
        done = False
        try:
            child.send(question)
            while not stopped.is_set():
                status = child.poll()
                messages = child.exchange(TICK_S)
                for message in [*messages, *(child.rest() if status is not None else ())]:
                    said = cast("dict[str, object]", message)
                    if "progress" in said:
                        tell(cast("float", said["progress"]), str(said["message"]))
                        continue
                    done = True
                    if "error" in said:
                        raise AgentError(str(said["error"]))
                    return cast("AnyBrief", said["answer"])
                if status is not None:
                    raise AgentError(_ended(status))
            raise AgentError(STOPPED)
        except BrokenChildError as fault:
            raise AgentError(f"the process that does the work answered nonsense: {fault}") from None
        finally:
            self._asks += 1
            if not done or self._asks >= ASKS_PER_WORKER:
                self.close()

    def _ready(self) -> LineChild:
        if self._child is None or self._child.poll() is not None:
            self.close()
            paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
            try:
                self._child = LineChild(
                    # nothing of the folder is imported by its name, here or by what this starts: it is the user's
                    [sys.executable, "-m", "app.agents.worker", FD, str(self.folder.root)],
                    log=None,
                    cwd=self.folder.root,
                    environment={"PYTHONPATH": os.pathsep.join(p for p in paths if p), "PYTHONSAFEPATH": "1"},
                )
            except OSError as fault:
                raise AgentError(f"the process that does the work could not be started: {fault.strerror}") from None
            self._asks = 0
        return self._child


def _ended(status: int) -> str:
    """Why there is no answer of a worker that ended, in words."""
    if status >= 0:
        return f"the process that does the work ended with status {status}"
    name = str(-status)
    with suppress(ValueError):
        name = signal.Signals(-status).name
    why = ": most likely the machine ran out of memory" if status == -signal.SIGKILL else ""
    return f"the process that does the work was ended by {name}{why}"
