"""The ceilings of the GPU that is here: how fast it copies, multiplies and adds. For a child process of its own."""

from __future__ import annotations

import datetime
import fcntl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import torch
import triton

from kernels.measure import conditions
from kernels.measure.gpu_lock import open_lock
from kernels.tuning import cold_us

SIDE = 8192
MOST_BYTES, SHARE = 4 << 30, 0.1
"""Of one side of the copy, and of the free memory."""
CHAIN = 256
"""Multiply-adds on each value of the vector test: far above what memory could feed."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One rate. value: bytes or FLOPs per second; how: what was run, in words."""

    name: str
    value: float
    unit: str
    how: str


class CeilingRow(TypedDict):
    """A Ceiling, as it is stored."""

    name: str
    value: float
    unit: str
    how: str


class BeforeAndAfter(TypedDict):
    """The GPU's state around the measurement."""

    before: conditions.Reading
    after: conditions.Reading


class Ceilings(TypedDict):
    """All that was measured. date: ISO 8601, in UTC."""

    device: str
    date: str
    software: dict[str, str]
    conditions: BeforeAndAfter
    ceilings: list[CeilingRow]


def measure() -> Ceilings:
    """The GPU's rates. Takes it for a few seconds, by its lock.

    RuntimeError where there is no GPU.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU here")
    properties = torch.cuda.get_device_properties(0)
    with open_lock(str(getattr(properties, "uuid", "")) or "0") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = conditions.read()
        rates = [_copy(), _read(), _matmul(), _vector()]
        after = conditions.read()
    return {
        "device": torch.cuda.get_device_name(0),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "software": {"torch": torch.__version__, "triton": triton.__version__},
        "conditions": {"before": before, "after": after},
        "ceilings": [{"name": c.name, "value": c.value, "unit": c.unit, "how": c.how} for c in rates],
    }


def _buffer() -> torch.Tensor:
    free = torch.cuda.mem_get_info()[0]
    size = min(MOST_BYTES, int(free * SHARE)) // 4096 * 4096
    return torch.empty(size // 4, dtype=torch.float32, device="cuda").normal_()


def _copy() -> Ceiling:
    x = _buffer()
    y = torch.empty_like(x)
    time_us = _timed(lambda: y.copy_(x))
    return Ceiling("copy", 2 * x.nbytes / time_us * 1e6, "B/s", f"{x.nbytes} bytes copied on the device")


def _read() -> Ceiling:
    x = _buffer()
    time_us = _timed(lambda: torch.sum(x))
    return Ceiling("read", x.nbytes / time_us * 1e6, "B/s", f"{x.nbytes} bytes summed by torch.sum")


def _matmul() -> Ceiling:
    a, b = (torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    c = torch.empty_like(a)
    time_us = _timed(lambda: torch.mm(a, b, out=c))
    return Ceiling("bf16 matrix", 2 * SIDE**3 / time_us * 1e6, "FLOP/s", f"torch.mm, {SIDE}³, on random numbers")


@triton.jit
def _chain(x, steps):  # type: ignore[no-untyped-def]  # Triton reads an annotation as code
    offsets = triton.language.program_id(0) * 1024 + triton.language.arange(0, 1024)
    a = triton.language.load(x + offsets)
    b = a * 0.5
    c = a * 0.25
    d = a * 0.125
    for _ in range(steps):
        a = a * 0.999 + 0.001
        b = b * 0.999 + 0.001
        c = c * 0.999 + 0.001
        d = d * 0.999 + 0.001
    triton.language.store(x + offsets, a + b + c + d)


def _vector() -> Ceiling:
    programs = 1 << 15
    x = torch.randn(programs * 1024, device="cuda")
    time_us = _timed(lambda: _chain[(programs,)](x, CHAIN, num_warps=8))
    flops = 2 * 4 * CHAIN * x.numel()
    return Ceiling("f32 vector", flops / time_us * 1e6, "FLOP/s", f"{CHAIN} fused multiply-adds in four chains a value")


def _timed(call: Callable[[], object]) -> float:
    def run() -> None:
        call()

    return cold_us(run)
