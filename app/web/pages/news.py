"""An answer that waits until there is something to tell: what a page asks for comes when it is there, not at the next
look."""

from __future__ import annotations

import asyncio
import time

from starlette.concurrency import run_in_threadpool

from app.requests.state import ServerState
from app.web.views.reading import ADVISING, describe_progress

HOLD_S = 5.0
"""Longest that a page may ask to wait."""

LOOK_S = (0.02, 0.25)
"""Between two looks at the database: at first, and at most."""

GATHER_S = 0.15
"""For so long the parts of a trace wait for the advice on them: a small trace is then shown whole, once, and nothing on
its page moves again."""


async def until_parts(state: ServerState, trace_id: str, shown: str, hold_s: float) -> None:
    """Return when there is more of a trace than a page shows that shows none of its parts yet, after `hold_s`, or where
    the server stops. A page that has the parts is answered at once: what it lists may change while an answer waits."""
    began = time.monotonic()
    parts_at: float | None = None
    pause, longest = LOOK_S
    while not state.closing.is_set() and not shown.startswith(ADVISING):
        progress = await run_in_threadpool(state.store.reading, trace_id)
        if progress is None or progress["status"] != "reading":
            return
        now, so_far = time.monotonic(), describe_progress(progress)["state"]
        if so_far.startswith(ADVISING):
            parts_at = parts_at or now
            pause = LOOK_S[0]
            if now - parts_at >= GATHER_S:
                return
        elif so_far != shown:
            return
        if now - began >= hold_s:
            return
        await asyncio.sleep(pause)
        pause = min(longest, pause * 1.2)
