"""The stream of a job's events, from the database: any server process can serve any job, and a client can resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from app.requests.state import ServerState

POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class JobEvent:
    """kind: "progress" (data is the progress), "done" (data is the job; the last one), "bye" (the server stops)."""

    kind: str
    seq: int
    data: Mapping[str, object]


async def job_events(
    state: ServerState, job_id: str, last_event_id: str | int | None = None
) -> AsyncIterator[JobEvent]:
    """Events after number `last_event_id`, as they come; ends after "done" or "bye", at once for an unknown job."""
    after = _number(last_event_id)
    while True:
        for event in await run_in_threadpool(state.store.events, job_id, after):
            after = event["seq"]
            job = await run_in_threadpool(state.store.job, job_id) if event["event"] == "done" else None
            yield JobEvent(event["event"], after, job or event["data"])
            if event["event"] == "done":
                return
        # A client that has seen "done" asks again when its connection is cut: there is nothing more to come.
        if await run_in_threadpool(state.store.job_state, job_id) in ("done", "failed", "cancelled", None):
            if not await run_in_threadpool(state.store.events, job_id, after):
                return
            continue
        if state.queue.stopping.is_set() or state.closing.is_set():
            yield JobEvent("bye", after, {})
            return
        await asyncio.sleep(POLL_S)


def _number(last_event_id: str | int | None) -> int:
    try:
        return max(0, min(int(last_event_id or 0), 2**31))
    except ValueError:
        return 0
