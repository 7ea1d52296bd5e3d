"""A program that the command line names -> a trace of its step, predicted for a device."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec

from app.program.layout import trace_of
from app.program.price import prices
from profiler.child.limits import Limits
from profiler.hardware import Device
from profiler.program.process import LIMITS, record_in_process
from profiler.program.request import Request

NVIDIA = "sm_"


def write_predicted(request: Request, device: Device, path: Path, limits: Limits = LIMITS) -> None:
    """Record the program, price it and write the trace, gzipped. Raises ProgramError, OSError."""
    program = record_in_process(request, limits)
    text = msgspec.json.encode(trace_of(program, prices(program, device), device))
    path.write_bytes(gzip.compress(text, compresslevel=6, mtime=0))


def capability_of(device: Device) -> int:
    """Major compute capability whose choices torch makes on the device: an AMD one's are taken for an A100's."""
    digits = device.arch.removeprefix(NVIDIA)
    return int(digits[:-1]) if device.arch.startswith(NVIDIA) and digits.isdigit() else 8
