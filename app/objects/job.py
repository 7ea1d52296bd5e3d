"""Jobs: pieces of work that wait, run and end, what they are asked, and what they say on their way."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.objects.check import Check
from app.objects.common import Error, Progress, Range, State
from app.objects.landscape import Landscape
from app.objects.record import Validation
from app.objects.task import Task
from app.objects.trace import Trace

JobKind = Literal["read", "validate", "landscape", "check"]


class JobValidation(TypedDict):
    """One of the validations that were asked for at once, each on a kind of GPU of the fleet."""

    id: str
    device: str | None
    state: State | None


class Job(TypedDict):
    """A piece of work; its id is that of the trace, validation, landscape or check that it makes.

    ahead: how many jobs of its kind, for the same kind of GPU, are to be done before it; null unless it waits.
    validations: all that were asked for with it.
    """

    id: str
    kind: JobKind
    state: State
    progress: Progress | None
    error: Error | None
    attempt: int
    created_at: str
    started_at: str | None
    finished_at: str | None
    ahead: int | None
    result: Trace | Validation | Landscape | Check | None
    validations: NotRequired[list[JobValidation]]


class ClaimedJob(TypedDict):
    """A job's row as whoever runs it has it. lease_until: Unix time."""

    id: str
    kind: JobKind
    state: State
    request: Task
    progress: Progress | None
    error: Error | None
    attempt: int
    cancel_requested: bool
    accelerator: str | None
    client: str | None
    owner: str | None
    lease_until: float | None
    created_at: str
    started_at: str | None
    finished_at: str | None


class JobEnd(TypedDict):
    """How a job ended."""

    state: State
    error: Error | None


class JobEvent(TypedDict):
    """One event of a job's stream. seq: from 1."""

    seq: int
    event: Literal["progress", "done"]
    data: Progress | JobEnd


class Finding(TypedDict):
    """What a trace says in a line. critical, share: the resource that is the bottleneck, and its share of the step.
    action: the title of the first thing to do, "" for nothing; saves_us: of it alone, null where no time is predicted.
    step_time_us: as it is."""

    critical: str | None
    share: float | None
    action: str
    saves_us: Range | None
    step_time_us: float | None


class HistoryEntry(TypedDict):
    """A trace, a written region or a validation among what is kept. finding: of a trace that was read."""

    kind: Literal["trace", "region", "validation"]
    id: str
    name: str
    status: str
    created_at: str
    summary: str
    device: str | None
    finding: Finding | None


class DeletedTrace(TypedDict):
    """A trace that was deleted and can be brought back."""

    id: str
    name: str
    deleted_at: str
