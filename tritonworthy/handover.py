"""A recording on a server: uploaded with its execution trace, and read there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import cast

from app.cli.servers.remote import Remote, RemoteError
from app.objects.trace import TraceBody
from tritonworthy.recording import Recording
from tritonworthy.reports import TraceReport

READ_S = 600.0
"""The most that the server may take to read and advise."""
WAIT_S = 20.0
PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class HandOver:
    """A trace on a server, or in words why it is not there."""

    server: Remote | None
    trace_id: str
    problem: str = ""

    @property
    def link(self) -> str:
        return f"{self.server.url}/traces/{self.trace_id}" if self.server else ""

    def report(self) -> TraceReport:
        """The trace once the server has read it. Raises RemoteError."""
        if self.server is None:
            raise RemoteError(self.problem)
        deadline = time.monotonic() + READ_S
        while True:
            trace = self.server.get(f"/api/v1/traces/{self.trace_id}?wait={WAIT_S:g}")
            if trace.get("status") == "ready":
                return TraceReport(cast("TraceBody", trace), self.link)
            if trace.get("status") == "failed":
                raise RemoteError(f"the server cannot read the trace: {(trace.get('error') or {}).get('message')}")
            if time.monotonic() > deadline:
                raise RemoteError(f"the server has not read the trace within {READ_S:.0f} s: {self.link}")
            time.sleep(PAUSE_S)


def upload(url: str, recording: Recording, token: str | None) -> HandOver:
    """Sends the trace. What fails is in `problem`: a program that was recorded goes on."""
    parts = [("file", recording.path)]
    parts += [("execution_trace", recording.observed)] if recording.observed is not None else []
    try:
        server = Remote(url, token)
        trace_id = server.upload("/api/v1/traces", parts)["id"]
    except (RemoteError, OSError) as error:
        return HandOver(None, "", f"not handed over: {error}")
    except KeyError:
        return HandOver(None, "", f"not handed over: {url} answered without a trace's id")
    return HandOver(server, str(trace_id))
