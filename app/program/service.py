"""A program that somebody names -> a trace of its step, predicted for a device."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

from app.program.layout import pieces_of
from app.program.named import trace_name
from app.program.price import prices
from profiler.child.limits import Limits
from profiler.hardware import Device
from profiler.program.process import LIMITS, record_in_process
from profiler.program.request import Request

NVIDIA = "sm_"


@contextmanager
def predicted_trace(
    request: Request, device: Device, save: Path | None = None, limits: Limits = LIMITS,
    on_wait: Callable[[float], object] = lambda _: None,
) -> Iterator[Path]:  # fmt: skip
    """The file of the trace that is predicted for the program: `save`, else one that is removed. on_wait: as
    `record_in_process` takes it; the capability is the device's. Raises ProgramError, OSError."""
    with TemporaryDirectory(prefix="tritonworthy-") as folder:
        path = save or Path(folder) / trace_name(request.source)
        write_predicted(replace(request, capability=capability_of(device)), device, path, limits, on_wait)
        yield path


def write_predicted(
    request: Request, device: Device, path: Path, limits: Limits = LIMITS,
    on_wait: Callable[[float], object] = lambda _: None,
) -> None:  # fmt: skip
    """Record the program, price it and write the trace, gzipped where it is named so. Raises ProgramError, OSError."""
    program = record_in_process(request, limits, on_wait)
    pieces = pieces_of(program, prices(program, device), device)
    with path.open("wb") as file, ExitStack() as stack:
        to: IO[bytes] = file
        if path.suffix == ".gz":  # of the same bytes, whenever and wherever it is written
            packed = gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
            to = cast("IO[bytes]", stack.enter_context(packed))
        for piece in pieces:
            to.write(piece)


def capability_of(device: Device) -> int:
    """Major compute capability whose choices torch makes on the device: an AMD one's are taken for an A100's."""
    digits = device.arch.removeprefix(NVIDIA)
    return int(digits[:-1]) if device.arch.startswith(NVIDIA) and digits.isdigit() else 8
