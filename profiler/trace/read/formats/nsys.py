"""An nsys export (`nsys export --type sqlite`) as the events of a torch.profiler trace.

Read by the columns that are there: from 2021 to 2026 tables gained columns (`graphNodeId`, `mangledName`, `textId`),
and a report has only the tables that its recording filled. Times are nanoseconds. `globalTid` and `globalPid` hold the
process in bits 24 to 47 and the thread in the lowest 24; a kernel, a copy and a set have the `correlationId` of the
call that asked for them, which is unique within its process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from profiler.trace.errors import TraceError
from profiler.trace.model import NONE, Note
from profiler.trace.read.events import Args, DeviceProperties, Event
from profiler.trace.read.formats.recording import RECORD_NSYS, RECORD_ROCPROFV3, Recording, in_batches, of_several
from profiler.trace.read.formats.sqlite_file import Database, Value
from profiler.trace.read.formats.torch_ranges import MOST_NAME, range_event
from profiler.trace.read.limits import Limits

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
RANGES = "NVTX_EVENTS"
STRINGS = "StringIds"
GPUS = "TARGET_INFO_GPU"
CUDA_DEVICES = "TARGET_INFO_CUDA_DEVICE"

TABLES = (KERNELS, GRAPHS, COPIES, SETS, *CALLS, RANGES, STRINGS, GPUS, CUDA_DEVICES)
_TELLING = (KERNELS, GRAPHS, COPIES, SETS, *CALLS, RANGES)
"""Without any of these a database is no export of a program's run."""

PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75
"""NVTX_EVENTS.eventType (ENUM_NSYS_EVENT_TYPE)."""

LIBRARY_DOMAINS = frozenset({"nccl", "cccl", "cub", "thrust", "cublas", "cublaslt", "cudnn", "cufft", "cusparse",
                             "cusolver", "tensorrt", "libcudf", "nvshmem", "ucx"})  # fmt: skip
"""Domains, in lower case, in which libraries mark their own calls: no steps and no operations of the program."""

MOST_TEXT_CHARS = 1 << 28
"""Of all strings of a file together."""

_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_MEMORY_KINDS = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed", 6: "Device", 7: "Managed"}
_VERSION = re.compile(r"(?:_pt[ds]z?s?)?_v\d{4,5}$")
"""What CUPTI puts behind a call's name: cudaLaunchKernel_v7000, cudaMemcpyAsync_ptsz_v7000."""


def read_nsys(database: Database, limits: Limits) -> Recording:
    """The events of the process with the most kernel time. Raises TraceError for a database of another kind."""
    if not any(table in database.tables for table in _TELLING):
        raise _another(database)
    recording = Recording("nsys", iter(()))
    reader = _Reader(database, limits, recording)
    recording.batches = in_batches(reader.events())
    return recording


def _another(database: Database) -> TraceError:
    """What to do with a database that is no export of a program's run."""
    if any(name.startswith("rocpd_") for name in database.other_names):
        message = "The file is a database of rocprofv3 (rocpd), of which the JSON is read."
        return TraceError("trace-not-a-trace", message, f"Record with --output-format json: {RECORD_ROCPROFV3}")
    if database.tables:
        message = "The nsys export has no kernels, no calls and no ranges."
        return TraceError("trace-not-a-trace", message, f"Record these: {RECORD_NSYS}")
    return TraceError(
        "trace-not-a-trace",
        "The file is an SQLite database of another program, no nsys export.",
        "Read are the JSON of torch.profiler (export_chrome_trace), the SQLite of nsys (nsys export --type sqlite) and "
        "the JSON of rocprofv3 (--output-format json).",
    )


class _Reader:
    """One pass over each table."""

    def __init__(self, database: Database, limits: Limits, recording: Recording) -> None:
        self._database = database
        self._most = limits.max_events
        self._recording = recording
        self._strings: dict[int, str] = {}
        self._process: int | None = None  # None where the tables tell no processes

    def events(self) -> Iterator[Event]:
        """All events of the chosen process."""
        self._strings = dict(self._texts())
        device = self._choose_process()
        self._recording.header.devices = list(self._devices(device))
        yield from self._kernels()
        yield from self._graphs()
        yield from self._copies()
        yield from self._sets()
        for table in CALLS:
            yield from self._calls(table)
        yield from self._ranges()

    def _rows(self, table: str, *columns: str) -> Iterator[tuple[Value, ...]]:
        return self._database.rows(table, columns, self._most)

    def _texts(self) -> Iterator[tuple[int, str]]:
        total = 0
        for key, text in self._rows(STRINGS, "id", "value"):
            if isinstance(key, int) and isinstance(text, str):
                total += len(text)
                if total > MOST_TEXT_CHARS:
                    raise TraceError(
                        "trace-too-large",
                        f"The export's strings have more than {MOST_TEXT_CHARS} characters.",
                        "Record fewer steps, and without sampling: nsys profile --sample=none --cpuctxsw=none.",
                    )
                yield key, text

    def _choose_process(self) -> int:
        """Keeps the process whose kernels run longest; its device on which they do."""
        spent_ns: Counter[tuple[int | None, int]] = Counter()
        for table in (KERNELS, GRAPHS):
            for start, end, owner, device in self._rows(table, "start", "end", "globalPid", "deviceId"):
                if isinstance(start, int) and isinstance(end, int) and end > start:
                    spent_ns[_process(owner), device if isinstance(device, int) else 0] += end - start
        if not spent_ns:
            return 0
        by_process: Counter[int | None] = Counter()
        for (process, _), time_ns in spent_ns.items():
            by_process[process] += time_ns
        self._process = by_process.most_common(1)[0][0]
        if len(by_process) > 1 and self._process is not None:
            remedy = "Record each process in a report of its own: nsys profile -o rank%q{RANK}, started once a rank."
            self._recording.notes.append(of_several("nsys", len(by_process), self._process, remedy))
        return max((key for key in spent_ns if key[0] == self._process), key=lambda key: spent_ns[key])[1]

    def _is_ours(self, owner: Value) -> bool:
        return self._process is None or _process(owner) in (self._process, None)

    def _devices(self, used: int) -> Iterator[DeviceProperties]:
        """The GPUs, the one with most of the work first."""
        told = list(self._rows(CUDA_DEVICES, "gpuId", "cudaId", "pid"))
        ours = [gpu for gpu, cuda, pid in told if cuda == used and pid in (self._process, None)]
        first = ours[0] if ours else used
        columns = ("id", "name", "computeMajor", "computeMinor", "smCount", "threadsPerWarp", "totalMemory")
        rows = sorted(self._rows(GPUS, *columns), key=lambda row: row[0] != first)
        for _, name, major, minor, processors, warp_size, memory_bytes in rows[:64]:
            yield DeviceProperties(name, major, minor, processors, warp_size, memory_bytes)

    # -- on the GPU

    def _on_gpu(
        self, category: str, name: str, start: Value, end: Value, device: Value, stream: Value, correlation: Value
    ) -> Event | None:
        """One event; None, and counted, where its time is no time."""
        if not isinstance(start, int) or not isinstance(end, int) or end < start:
            self._recording.dropped += 1
            return None
        args = Args(device=_number(device), stream=_number(stream), correlation=_number(correlation))
        return Event(
            cat=category,
            name=name,
            pid=args.device,
            tid=args.stream,
            ts=start / 1e3,
            dur=(end - start) / 1e3,
            args=args,
        )

    def _kernels(self) -> Iterator[Event]:
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
                   "mangledName", "name")  # fmt: skip
        for start, end, device, stream, correlation, owner, *names in self._rows(KERNELS, *columns):
            if self._is_ours(owner):
                name = next(filter(None, map(self._text, names)), "kernel without a name")
                if event := self._on_gpu("kernel", name, start, end, device, stream, correlation):
                    yield event

    def _graphs(self) -> Iterator[Event]:
        """Graphs that were recorded whole: each replay counts as one kernel."""
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId")
        replays = 0
        for start, end, device, stream, correlation, owner, graph in self._rows(GRAPHS, *columns):
            if self._is_ours(owner):
                name = f"CUDA graph {graph}" if isinstance(graph, int) else "CUDA graph"
                if event := self._on_gpu("kernel", name, start, end, device, stream, correlation):
                    replays += 1
                    yield event
        if replays:
            self._recording.notes.append(
                Note(
                    "graphs-recorded-whole",
                    "warning",
                    f"{replays} replays of CUDA graphs were recorded whole: the kernels inside of them are not told.",
                    f"Record them node by node: {RECORD_NSYS}",
                )
            )

    def _copies(self) -> Iterator[Event]:
        columns = (
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "copyKind",
            "srcKind",
            "dstKind",
        )
        for start, end, device, stream, correlation, owner, kind, source, target in self._rows(COPIES, *columns):
            if self._is_ours(owner):
                ends = [_MEMORY_KINDS.get(_number(place)) for place in (source, target)]
                between = f" ({ends[0]} -> {ends[1]})" if all(ends) else ""
                name = f"Memcpy {_COPY_KINDS.get(_number(kind), 'Unknown')}{between}"
                if event := self._on_gpu("gpu_memcpy", name, start, end, device, stream, correlation):
                    yield event

    def _sets(self) -> Iterator[Event]:
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "memKind")
        for start, end, device, stream, correlation, owner, kind in self._rows(SETS, *columns):
            if self._is_ours(owner):
                name = f"Memset ({_MEMORY_KINDS.get(_number(kind), 'Device')})"
                if event := self._on_gpu("gpu_memset", name, start, end, device, stream, correlation):
                    yield event

    # -- on the host

    def _calls(self, table: str) -> Iterator[Event]:
        for start, end, thread, correlation, name in self._rows(
            table, "start", "end", "globalTid", "correlationId", "nameId"
        ):
            if not self._is_ours(thread):
                continue
            if not isinstance(start, int) or not isinstance(end, int) or end < start:
                self._recording.dropped += 1
                continue
            yield Event(
                cat="cuda_runtime",
                name=_VERSION.sub("", self._text(name)),
                pid=_process(thread) or 0,
                tid=_thread(thread),
                ts=start / 1e3,
                dur=(end - start) / 1e3,
                args=Args(correlation=_number(correlation)),
            )

    def _ranges(self) -> Iterator[Event]:
        columns = ("start", "end", "globalTid", "eventType", "text", "textId", "domainId")
        libraries = {
            (_process(thread), domain)
            for _, _, thread, kind, text, text_id, domain in self._rows(RANGES, *columns)
            if kind == DOMAIN_CREATE and self._said(text, text_id).lower() in LIBRARY_DOMAINS
        }
        for start, end, thread, kind, text, text_id, domain in self._rows(RANGES, *columns):
            if kind not in (PUSH_POP, START_END, None) or not self._is_ours(thread):
                continue
            if (_process(thread), domain) in libraries or end is None:
                continue  # a range that is open where the recording ends has no time
            said = self._said(text, text_id)
            if not isinstance(start, int) or not isinstance(end, int) or end < start or not said:
                self._recording.dropped += 1
                continue
            pid, tid, at_us, for_us = _process(thread) or 0, _thread(thread), start / 1e3, (end - start) / 1e3
            if kind == START_END:  # it may cross others of its thread, so it is no operation
                yield Event("user_annotation", said[:MOST_NAME], pid, tid, at_us, for_us)
            else:
                yield range_event(said, pid, tid, at_us, for_us)

    def _said(self, text: Value, text_id: Value) -> str:
        return text if isinstance(text, str) and text else self._text(text_id)

    def _text(self, key: Value) -> str:
        """What a reference to StringIds stands for; a column that holds the text itself says it."""
        if isinstance(key, int):
            return self._strings.get(key, "")
        return key if isinstance(key, str) else ""


def _number(value: Value) -> int:
    return value if isinstance(value, int) and value >= 0 else NONE


def _process(serialized: Value) -> int | None:
    return serialized >> 24 & 0xFFFFFF if isinstance(serialized, int) else None


def _thread(serialized: Value) -> int:
    return serialized & 0xFFFFFF if isinstance(serialized, int) else 0
