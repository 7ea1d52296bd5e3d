"""rocprofv3's JSON (`--output-format json`) as the events of a torch.profiler trace.

By the schema that ROCprofiler-SDK publishes (`rocprofv3-schema.json`): one object a process, records whose `kind` and
`operation` are places in a table of names, times in nanoseconds. A kernel has the correlation id of the HIP call that
launched it; the text of a roctx range stands in `strings.marker_api` under the range's correlation id. The file is held
in memory while it is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from profiler.trace.errors import TraceError
from profiler.trace.model import NONE
from profiler.trace.read.events import MALFORMED, Args, DeviceProperties, Event
from profiler.trace.read.formats.recording import RECORD_ROCPROFV3, Recording, in_batches, of_several
from profiler.trace.read.formats.torch_ranges import range_event
from profiler.trace.read.limits import Limits, check_events

MOST_BYTES = 1 << 30
"""Of a file: its records take about as much memory again."""

GPU_AGENT = 2
"""agents[].type: 1 is a CPU."""

_AGAIN = f"Record it again: {RECORD_ROCPROFV3}"


class _Handle(msgspec.Struct, gc=False):
    handle: int = 0


class _Correlation(msgspec.Struct, gc=False):
    internal: int = NONE


class _Bank(msgspec.Struct, gc=False):
    size_in_bytes: int = 0


class _Agent(msgspec.Struct):
    id: _Handle = msgspec.field(default_factory=_Handle)
    type: int = 0
    name: str = ""
    product_name: str = ""
    cu_count: int = 0
    wave_front_size: int = 0
    gfx_target_version: int = 0
    mem_banks: list[_Bank] = msgspec.field(default_factory=list)


class _Names(msgspec.Struct):
    kind: str = ""
    operations: list[str] = msgspec.field(default_factory=list)


class _Marker(msgspec.Struct, gc=False):
    key: int = NONE
    value: str = ""


class _Strings(msgspec.Struct):
    buffer_records: list[_Names] = msgspec.field(default_factory=list)
    marker_api: list[_Marker] = msgspec.field(default_factory=list)


class _Symbol(msgspec.Struct, gc=False):
    kernel_id: int = NONE
    demangled_kernel_name: str = ""
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class _Dispatch(msgspec.Struct):
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    kernel_id: int = NONE


_Time = Annotated[int, msgspec.Meta(le=2**63 - 1)]


class _Record(msgspec.Struct):
    """One record of any kind: a kernel's has `dispatch_info`, a copy's the agents."""

    start_timestamp: _Time = 0
    end_timestamp: _Time = 0
    kind: int = NONE
    operation: int = NONE
    thread_id: int = 0
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)
    dispatch_info: _Dispatch | None = None
    stream_id: _Handle | None = None
    src_agent_id: _Handle | None = None
    dst_agent_id: _Handle | None = None


class _Records(msgspec.Struct):
    kernel_dispatch: list[_Record] = msgspec.field(default_factory=list)
    hip_api: list[_Record] = msgspec.field(default_factory=list)
    hsa_api: list[_Record] = msgspec.field(default_factory=list)
    marker_api: list[_Record] = msgspec.field(default_factory=list)
    memory_copy: list[_Record] = msgspec.field(default_factory=list)

    def count(self) -> int:
        return sum(len(getattr(self, name)) for name in self.__struct_fields__)


class _Metadata(msgspec.Struct, gc=False):
    pid: int = 0


class _Process(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agents: list[_Agent] = msgspec.field(default_factory=list)
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[_Symbol] = msgspec.field(default_factory=list)
    buffer_records: _Records = msgspec.field(default_factory=_Records)


class _File(msgspec.Struct):
    processes: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


_CUT = "Input data was truncated"
"""What msgspec says of JSON that lacks its end."""
_DECODER = msgspec.json.Decoder(_File, strict=False)


def read_rocprofv3(text: bytes, limits: Limits, *, truncated: bool = False) -> Recording:
    """The events of the process with the most kernel time. truncated: whether the packed stream broke off.

    Raises TraceError for text that is not whole, or not of the schema.
    """
    try:
        processes = _DECODER.decode(text.removeprefix(b"\xef\xbb\xbf")).processes
    except MALFORMED as error:
        if truncated or str(error) == _CUT or not text.rstrip().endswith(b"}"):
            message = "The rocprofv3 file ends before its records do."
        else:
            message = f"The rocprofv3 file is not as rocprofv3 writes it: {error}."
        raise TraceError("trace-not-json", message, f"Copy it again. {_AGAIN}") from error
    if not processes:
        raise TraceError("trace-not-a-trace", "The rocprofv3 file has no process in it.", _AGAIN)
    check_events(sum(process.buffer_records.count() for process in processes), limits)
    process = max(processes, key=_kernel_time_ns)
    recording = Recording("rocprofv3", iter(()))
    working = sum(_kernel_time_ns(p) > 0 for p in processes)
    if working > 1:
        remedy = "Give the file of one process: rocprofv3 writes one each, named by process, unless told otherwise."
        recording.notes.append(of_several("rocprofv3", working, process.metadata.pid, remedy))
    used = {
        record.dispatch_info.agent_id.handle
        for record in process.buffer_records.kernel_dispatch
        if record.dispatch_info
    }
    gpus = [agent for agent in process.agents if agent.type == GPU_AGENT]
    recording.header.devices = [_properties(agent) for agent in sorted(gpus, key=lambda a: a.id.handle not in used)]
    recording.batches = in_batches(_events(process, gpus, recording))
    return recording


def _kernel_time_ns(process: _Process) -> int:
    return sum(max(0, r.end_timestamp - r.start_timestamp) for r in process.buffer_records.kernel_dispatch)


def _properties(agent: _Agent) -> DeviceProperties:
    version = agent.gfx_target_version  # 90402 of gfx942
    return DeviceProperties(
        agent.product_name or agent.name, version // 10_000, version // 100 % 100, agent.cu_count,
        agent.wave_front_size, sum(bank.size_in_bytes for bank in agent.mem_banks),
    )  # fmt: skip


def _events(process: _Process, gpus: list[_Agent], recording: Recording) -> Iterator[Event]:
    records, pid = process.buffer_records, process.metadata.pid
    device_of = {agent.id.handle: number for number, agent in enumerate(gpus)}
    kernel_names = {symbol.kernel_id: _kernel_name(symbol) for symbol in process.kernel_symbols}
    names = process.strings.buffer_records
    texts = {marker.key: marker.value for marker in process.strings.marker_api}

    def is_timed(record: _Record) -> bool:
        timed = 0 < record.start_timestamp <= record.end_timestamp
        recording.dropped += not timed
        return timed

    for record in filter(is_timed, records.kernel_dispatch):
        told = record.dispatch_info or _Dispatch()
        stream = record.stream_id or told.queue_id
        name = kernel_names.get(told.kernel_id) or "kernel without a name"
        yield _on_gpu("kernel", name, record, device_of.get(told.agent_id.handle, 0), stream.handle)
    for record in filter(is_timed, records.memory_copy):
        source, target = ((place or _Handle()).handle for place in (record.src_agent_id, record.dst_agent_id))
        ends = "".join("D" if place in device_of else "H" for place in (source, target))
        device = device_of.get(target, device_of.get(source, 0))
        yield _on_gpu(
            "gpu_memcpy", f"Memcpy {ends[0]}to{ends[1]}", record, device, (record.stream_id or _Handle()).handle
        )
    for record in filter(is_timed, [*records.hip_api, *records.hsa_api]):
        yield Event(
            "cuda_runtime", _operation(names, record), pid, record.thread_id, *_times(record),
            Args(correlation=record.correlation_id.internal),
        )  # fmt: skip
    for record in filter(is_timed, records.marker_api):
        text = texts.get(record.correlation_id.internal, "")
        if text and record.end_timestamp > record.start_timestamp:  # a mark has no length
            yield range_event(text, pid, record.thread_id, *_times(record))


def _on_gpu(category: str, name: str, record: _Record, device: int, stream: int) -> Event:
    args = Args(device=device, stream=stream, correlation=record.correlation_id.internal)
    return Event(category, name, device, stream, *_times(record), args)


def _times(record: _Record) -> tuple[float, float]:
    """Start and duration in microseconds."""
    return record.start_timestamp / 1e3, (record.end_timestamp - record.start_timestamp) / 1e3


def _kernel_name(symbol: _Symbol) -> str:
    """Of its names the one that is written out; the object's own ends in .kd."""
    name = symbol.demangled_kernel_name or symbol.formatted_kernel_name or symbol.kernel_name
    return name.removesuffix(".kd")


def _operation(names: list[_Names], record: _Record) -> str:
    """hipLaunchKernel, by the places that the record gives."""
    if 0 <= record.kind < len(names) and 0 <= record.operation < len(names[record.kind].operations):
        return names[record.kind].operations[record.operation]
    return "call without a name"
