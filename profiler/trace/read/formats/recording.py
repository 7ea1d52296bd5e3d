"""What another tool's file is turned into: the events that torch.profiler would have written of the same run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from profiler.trace.model import Note
from profiler.trace.read.events import AnyEvent, Event, Header

Tool: TypeAlias = Literal["nsys", "rocprofv3"]

BATCH = 8192
"""Events handed on at once."""

RECORD_NSYS = (
    "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node --pytorch=autograd-shapes-nvtx python program.py; "
    "nsys export --type sqlite REPORT.nsys-rep"
)

RECORD_ROCPROFV3 = (
    "rocprofv3 --hip-trace --kernel-trace --memory-copy-trace --marker-trace --output-format json -- python program.py"
)


@dataclass(slots=True)
class Recording:
    """A tool's file: its events in batches; `header`, `dropped` and `notes` are complete after the last one.

    dropped: rows without a usable type or time. notes: what only the reader of this kind of file can say.
    """

    tool: Tool
    batches: Iterator[list[AnyEvent]]
    header: Header = field(default_factory=Header)
    dropped: int = 0
    notes: list[Note] = field(default_factory=list)


def in_batches(events: Iterator[Event]) -> Iterator[list[AnyEvent]]:
    """Lists of at most BATCH events."""
    batch: list[AnyEvent] = []
    for event in events:
        batch.append(event)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def of_several(tool: str, processes: int, kept: int, remedy: str) -> Note:
    """That a file holds several processes with work on a GPU, of which one is read."""
    return Note(
        "several-processes",
        "warning",
        f"The {tool} file has kernels of {processes} processes: process {kept}, which runs kernels for longest, is "
        "read, and the others are left out.",
        remedy,
    )
