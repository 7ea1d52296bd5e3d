"""A recorded step, priced, as the trace that torch.profiler would write of it: host and GPU on one clock."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import msgspec

from app.program import memory_copies
from app.program.memory_copies import is_memory_copy
from app.program.price import Prices
from app.program.reads import RETURNS_US, copied_bytes, copy_us
from profiler.hardware import Device
from profiler.program.model import ENGINE, NO_PARENT, Call, Program
from profiler.region.operations import LIBRARY_KINDS

PROCESS, THREAD, BACKWARD_THREAD, STREAM = 1, 1, 2, 7
STEP = "ProfilerStep#1"
KERNEL = "predicted:"
"""Before the operation's name: which kernel a library takes is not known."""
TO_HOST = "Memcpy DtoH (Device -> Pageable)"
INSIDE_US = 0.75
"""Of a call that only makes others, before the first and behind the last."""
PYTHON_US, NODE_US, LAUNCH_US, LIBRARY_US = 6.5, 6.0, 11.7, 20.0
"""What the host takes: Python, modules and arguments between two calls of a program; autograd's engine between two of
its nodes; a kernel with the memory for its result; what a library adds to that, as cuBLAS and cuDNN look for a kernel.

Chosen by hand, by two recordings on one host of an H200 (qwen3_moe_prefill_bf16, swin_training_bf16): no medians, and
nothing computes them. tests/records/host-times-h200.json (benchmarks.program.host_times) has the medians: over how much
recording slowed each step (1.047 and 1.575), 12.7 and 12.0 for a launch of the program's and 8.1 for one of the
engine's, 21.3, 17.1 and 9.0 more for a library's, 5.0 and 3.2 between two of the program's calls; none of a node.
"""
BETWEEN_US = 0.01
"""Between what ends and what begins: at one time they would nest by chance."""
REACHES_GPU_US = 3.0
"""From the end of a launch to the kernel's start on an idle GPU."""
MARK = "tritonworthyProgram"
"""Key of the trace's header that says what it was predicted from."""

Json = dict[str, object]


class Event(TypedDict, total=False):
    """A complete event of the Chrome trace format."""

    ph: str
    cat: str
    name: str
    pid: int
    tid: int
    ts: float
    dur: float
    args: Json


class GapJson(TypedDict):
    """As `model.Gap`."""

    what: str
    where: str
    ends: bool


class MarkJson(TypedDict):
    """What the header says of the prediction."""

    name: str
    device: str
    training: bool
    parameters: int
    weights_bytes: int
    known_share: float
    gaps: list[GapJson]
    versions: dict[str, str]


def pieces_of(program: Program, prices: Prices, device: Device) -> Iterator[bytes]:
    """The whole file as JSON, an event after the other: a long step has a million."""
    header: Json = {
        "schemaVersion": 1,
        "deviceProperties": [_properties(device)],
        "record_shapes": 1,
        "with_stack": 1,
        "with_modules": 1,
        "displayTimeUnit": "ms",
        MARK: mark_of(program, prices, device),
        "traceName": program.name,
    }
    yield msgspec.json.encode(header)[:-1] + b',"traceEvents":['
    between = b""
    for event in _Layout(program, prices).events():
        yield between + msgspec.json.encode(event)
        between = b","
    yield b"]}"


def mark_of(program: Program, prices: Prices, device: Device) -> MarkJson:
    """What the header says of it."""
    return {
        "name": program.name,
        "device": device.name,
        "training": program.training,
        "parameters": program.parameters,
        "weights_bytes": program.weights_bytes,
        "known_share": round(prices.known, 3),
        "gaps": [{"what": gap.what, "where": gap.where, "ends": gap.ends} for gap in program.gaps],
        "versions": dict(program.versions),
    }


def _properties(device: Device) -> Json:
    digits = device.arch.removeprefix("sm_")
    capability = (int(digits[:-1]), int(digits[-1])) if digits.isdigit() else (0, 0)
    return {
        "id": 0, "name": device.name, "totalGlobalMem": int(device.memory_bytes), "computeMajor": capability[0],
        "computeMinor": capability[1], "warpSize": 64 if device.is_amd else 32, "numSms": device.processors,
    }  # fmt: skip


@dataclass(slots=True)
class _Open:
    """A Python function or module that is open. number: its place in Program.frames."""

    number: int
    start_us: float


@dataclass(slots=True)
class _Layout:
    """host_us: the host's clock. gpu_us: when the GPU has done what was launched."""

    program: Program
    prices: Prices
    host_us: float = 0.0
    gpu_us: float = 0.0
    correlation: int = 0
    open: list[_Open] = field(default_factory=list)

    def events(self) -> Iterator[Event]:
        self.host_us = INSIDE_US
        children: dict[int, list[int]] = {}
        for index, call in enumerate(self.program.calls):
            children.setdefault(call.parent, []).append(index)
        for index in children.get(NO_PARENT, ()):
            yield from self.enter(self.program.stacks[self.program.calls[index].stack])
            yield from self.call(index, children)
        yield from self.enter(())
        end_us = max(self.host_us, self.gpu_us) + INSIDE_US
        yield _event("user_annotation", STEP, THREAD, 0.0, end_us)

    def enter(self, stack: Sequence[int]) -> Iterator[Event]:
        """Leave the functions that are not in the stack, and enter those that are."""
        same = 0
        while same < min(len(stack), len(self.open)) and self.open[same].number == stack[same]:
            same += 1
        while len(self.open) > same:
            left = self.open.pop()
            name = self.program.frames[left.number]
            yield _event("python_function", name, THREAD, left.start_us, self.host_us - left.start_us)
        self.host_us += BETWEEN_US
        for number in stack[same:]:
            self.open.append(_Open(number, self.host_us))
        self.host_us += BETWEEN_US

    def call(self, index: int, children: dict[int, list[int]]) -> Iterator[Event]:
        """The call with all that it makes; the host goes on behind it."""
        call = self.program.calls[index]
        if call.waits and call.operation is None:
            yield self.synchronize(call.name, THREAD)
            return
        if call.parent == NO_PARENT and not call.backward:
            self.host_us += PYTHON_US
        if call.name.startswith(ENGINE):
            self.host_us += NODE_US
        start_us = self.host_us
        thread = BACKWARD_THREAD if call.backward else THREAD
        time_us = self.prices.times_us.get(index)
        self.host_us += INSIDE_US
        if time_us is not None:
            yield from self.launch(call, time_us, thread)
        for child in children.get(index, ()):
            yield from self.call(child, children)
        if call.waits:
            yield from self.wait(call, thread)
        self.host_us += INSIDE_US
        yield _event("cpu_op", call.name, thread, start_us, self.host_us - start_us, _arguments(call, index))

    def launch(self, call: Call, time_us: float, thread: int) -> Iterator[Event]:
        if is_memory_copy(call):
            on = yield from self.hand_over(memory_copies.CALL, time_us, thread)
            yield _event("gpu_memcpy", memory_copies.NAME, STREAM, self.gpu_us - time_us, time_us, on, process=0)
            return
        if call.operation is not None and call.operation.kind in LIBRARY_KINDS:
            self.host_us += LIBRARY_US
        on = yield from self.hand_over("cudaLaunchKernel", time_us, thread)
        yield _event("kernel", KERNEL + call.name, STREAM, self.gpu_us - time_us, time_us, on, process=0)

    def wait(self, call: Call, thread: int) -> Iterator[Event]:
        """The copy to the host behind all that was launched, and the host until it has come."""
        size_bytes = copied_bytes(call)
        time_us = copy_us(size_bytes)
        on = yield from self.hand_over("cudaMemcpyAsync", time_us, thread)
        yield _event(
            "gpu_memcpy", TO_HOST, STREAM, self.gpu_us - time_us, time_us, {**on, "bytes": size_bytes}, process=0
        )
        yield self.synchronize("cudaStreamSynchronize", thread)

    def synchronize(self, name: str, thread: int) -> Event:
        """The host's call that ends when the GPU has done all that was launched."""
        self.correlation += 1
        start_us, self.host_us = self.host_us, max(self.host_us, self.gpu_us) + RETURNS_US
        shared: Json = {"correlation": self.correlation}
        return _event("cuda_runtime", name, thread, start_us, self.host_us - start_us, shared)

    def hand_over(self, name: str, time_us: float, thread: int) -> Generator[Event, None, Json]:
        """The host's call that gives the GPU what takes so long. Returns what the GPU's event says of it."""
        self.correlation += 1
        launch_us = LAUNCH_US - 2 * INSIDE_US
        shared: Json = {"correlation": self.correlation}
        yield _event("cuda_runtime", name, thread, self.host_us, launch_us, shared)
        self.host_us += launch_us
        self.gpu_us = max(self.gpu_us, self.host_us + REACHES_GPU_US) + time_us
        return {**shared, "device": 0, "stream": STREAM}


def _arguments(call: Call, index: int) -> Json:
    signature = call.signature
    arguments: Json = {"External id": index + 1, "Ev Idx": index}
    if call.sequence >= 0:
        arguments |= {"Sequence number": call.sequence, "Fwd thread id": 1 if call.backward else 0}
    if signature.types:
        arguments |= {
            "Input Dims": signature.dims, "Input type": signature.types, "Input Strides": signature.strides,
            "Concrete Inputs": signature.concrete,
        }  # fmt: skip
    return arguments


def _event(
    category: str, name: str, thread: int, start_us: float, duration_us: float, args: Json | None = None,
    process: int = PROCESS,
) -> Event:  # fmt: skip
    return {
        "ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": round(start_us, 3),
        "dur": round(duration_us, 3), "args": args or {},
    }  # fmt: skip
