"""The launches of a graph's capture: runtime calls that carry the name of the kernel they put into the graph.

While a graph is captured nothing runs, so the trace has operations and launches but no kernels. ROCm writes each
kernel's name with its launch.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from profiler.trace.model import Trace
from profiler.trace.read.source import Limits, Source

MOST_BYTES = 1 << 30
"""A larger file is not searched for a capture: this pass holds it in memory."""


class _Args(msgspec.Struct, gc=False):
    kernel: str = ""


class _Event(msgspec.Struct, gc=False):
    cat: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: float = 0.0
    args: _Args = msgspec.field(default_factory=_Args)


class _File(msgspec.Struct, gc=False):
    events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)


def captured_launches(
    path: Path | str, trace: Trace, limits: Limits = Limits()  # noqa: B008 (frozen)
) -> list[tuple[tuple[str, str], float, str]]:  # fmt: skip
    """(thread, microseconds from the trace's origin, kernel name) of each launch that names its kernel.

    [] for a file that is not whole, is larger than MOST_BYTES, or names no kernel. Raises OSError where it cannot be
    opened, TraceError where it cannot be unpacked.
    """
    parts, size = [], 0
    with Source(Path(path), limits) as source:
        while chunk := source.read():
            size += len(chunk)
            if size > MOST_BYTES:
                return []
            parts.append(chunk)
    try:
        events = msgspec.json.decode(b"".join(parts), type=_File, strict=False).events
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    return [
        ((str(event.pid), str(event.tid)), event.ts - trace.origin_us, event.args.kernel)
        for event in events
        if event.args.kernel and event.cat.lower() != "kernel"
    ]
