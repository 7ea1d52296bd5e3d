"""Device and wall time of cold calls on the GPU of this process. Used in a child only.

A call is timed between two device events. Before a batch the GPU sleeps while the host enqueues, so that the events
bracket the kernels and not the gaps that the host leaves; the wall time of back-to-back calls has those.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

Call = Callable[..., tuple[torch.Tensor, ...]]

SLEEP_CYCLES_PER_US = 2000.0  # clock64 ticks; boost clocks are about this, and a slower clock only sleeps longer
MOST_SLEEP_US = 20_000.0
COVER = 1.6  # times the host's time to enqueue: behind the sleep's end the events would bracket the host's gaps
# Taken before any candidate is loaded, which may put others in their place (`integrity` finds that).
_now = time.perf_counter
_Event = torch.cuda.Event
_synchronize = torch.cuda.synchronize
_device_sleep = getattr(torch.cuda, "_sleep", None)

LAUNCH_US = 4.0  # host time of one launch, about; a batch stays within the queue of 1024 launches
MARKING_US = 3 * LAUNCH_US  # two events, and room
QUEUE = 700
MOST_BATCH = 1000


class Clock(Protocol):
    """Marks in the order of work on one device, and the time between them."""

    def mark(self) -> Any:
        """A point in the device's queue."""

    def elapsed_us(self, first: Any, second: Any) -> float:
        """Time between two marks that the device has passed."""

    def synchronize(self) -> None:
        """Wait for everything that was queued."""

    def sleep_us(self, duration_us: float) -> None:
        """Keep the device from starting what is queued next, while the host queues more."""


class DeviceClock:
    """The current GPU's events, on the current stream."""

    def mark(self) -> torch.cuda.Event:
        event: torch.cuda.Event = _Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def elapsed_us(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        return float(first.elapsed_time(second)) * 1e3

    def synchronize(self) -> None:
        _synchronize()

    def sleep_us(self, duration_us: float) -> None:
        if _device_sleep is not None:
            _device_sleep(int(duration_us * SLEEP_CYCLES_PER_US))


@dataclass(slots=True)
class Rotation:
    """Input sets in turn. Each call gets the next; `last` are the outputs of the last timed call on set `last_set`."""

    sets: Sequence[Sequence[torch.Tensor]]
    position: int = 0
    last: tuple[torch.Tensor, ...] | None = None
    last_set: int = 0

    def next(self) -> Sequence[torch.Tensor]:
        self.last_set = self.position
        self.position = (self.position + 1) % len(self.sets)
        return self.sets[self.last_set]


class Flush:
    """Evicts L2 by writing twice its size, then reads other memory of its size so that no dirty lines are left:
    their write-back would be charged to the timed call. Used where a call touches too little of its inputs for
    rotation to keep them out of L2 (gathers)."""

    def __init__(self, l2_bytes: float, device: str) -> None:
        self.written = torch.empty(int(2 * l2_bytes) // 4, dtype=torch.int32, device=device)
        self.read = torch.zeros(int(1.5 * l2_bytes) // 4, dtype=torch.int32, device=device)
        self.sum = torch.zeros((), dtype=torch.int64, device=device)

    def __call__(self) -> None:
        self.written.zero_()
        torch.sum(self.read, dtype=torch.int64, dim=0, out=self.sum)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one call: time on the device and time of the host to enqueue it, in µs."""

    device_us: float
    host_us: float

    @property
    def cold_us(self) -> float:
        """What one cold call takes of a turn: the device sleeps until it is queued."""
        return max(self.device_us, COVER * (self.host_us + MARKING_US))


def warm(call: Call, rotation: Rotation, at_least_ms: float, clock: Clock) -> Estimate:
    """Calls for at_least_ms of device time, three at least; the estimate is of the last batch."""
    for _ in range(2):
        rotation.last = call(*rotation.next())
    clock.synchronize()
    spent_ms, count, device_us, host_us = 0.0, 1, 0.0, 0.0
    while spent_ms < at_least_ms or not device_us:
        begin = clock.mark()
        started = _now()
        for _ in range(count):
            rotation.last = call(*rotation.next())
        host_us = (_now() - started) / count * 1e6
        end = clock.mark()
        clock.synchronize()
        elapsed_us = max(clock.elapsed_us(begin, end), 0.1)
        spent_ms += elapsed_us / 1e3
        device_us = elapsed_us / count
        wanted = (at_least_ms - spent_ms) / 3 * 1e3 / device_us
        count = min(MOST_BATCH, max(count, math.ceil(wanted)))
    return Estimate(device_us, min(host_us, device_us))


def enqueued(call: Call, rotation: Rotation, calls: int) -> float:
    """`calls` untimed calls; host time of one, in µs, as this host is now: what a batch's sleep has to cover."""
    started = _now()
    for _ in range(calls):
        call(*rotation.next())
    return (_now() - started) / max(1, calls) * 1e6


def cold_calls(
    call: Call,
    rotation: Rotation,
    calls: int,
    estimate: Estimate,
    clock: Clock,
    flush: Callable[[], None] | None = None,
) -> list[float]:
    """Device time of each of `calls` calls, in µs."""
    times: list[float] = []
    covered_us = COVER * (estimate.host_us + MARKING_US)
    batch = max(1, min(calls, int(QUEUE / (4 + estimate.host_us / LAUNCH_US)), int(MOST_SLEEP_US / covered_us)))
    enabled = gc.isenabled()
    gc.disable()
    try:
        while len(times) < calls:
            count = min(batch, calls - len(times))
            clock.sleep_us(min(MOST_SLEEP_US, 50 + count * covered_us))
            marks = []
            for _ in range(count):
                inputs = rotation.next()
                if flush is not None:
                    flush()
                begin = clock.mark()
                rotation.last = call(*inputs)
                marks.append((begin, clock.mark()))
            clock.synchronize()
            times += [clock.elapsed_us(begin, end) for begin, end in marks]
    finally:
        if enabled:
            gc.enable()
    return times


@dataclass(frozen=True, slots=True)
class BackToBack:
    """Of one of many back-to-back calls, in µs: host time, and the part of it after the host had queued them all.

    The device needs that part for at most the calls' own device time: more is work that their events do not see.
    """

    wall_us: float
    drain_us: float


def back_to_back(call: Call, rotation: Rotation, calls: int, clock: Clock) -> BackToBack:
    """`calls` calls, the last one's end on the device included."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        clock.synchronize()
        started = _now()
        for _ in range(calls):
            rotation.last = call(*rotation.next())
        queued = _now()
        clock.synchronize()
        ended = _now()
    finally:
        if enabled:
            gc.enable()
    return BackToBack((ended - started) / calls * 1e6, (ended - queued) / calls * 1e6)


def kernel_names(call: Call, inputs: Sequence[torch.Tensor]) -> list[str]:
    """Names of the kernels of one call, in order of launch, as torch.profiler (CUPTI) saw them. [] where it cannot."""
    from torch.autograd import DeviceType  # type: ignore[attr-defined]
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU], acc_events=True) as seen:
        call(*inputs)
        torch.cuda.synchronize()
    events = [e for e in seen.events() if e.device_type == DeviceType.CUDA]
    events.sort(key=lambda e: e.time_range.start)
    return [e.name for e in events if not e.name.startswith(("Memcpy", "Memset"))]


def triton_launches(call: Call, inputs: Sequence[torch.Tensor]) -> list[str]:
    """Names of the Triton functions that one call launches, as Triton itself is asked to."""
    from triton.runtime.jit import JITFunction

    original = JITFunction.run
    seen: list[str] = []

    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("warmup"):  # compiled and not launched
            seen.append(str(function.fn.__name__))
        return original(function, *args, **kwargs)

    JITFunction.run = run
    try:
        call(*inputs)
    finally:
        JITFunction.run = original
    return list(dict.fromkeys(seen))
