"""The process in which a user's program is built and recorded: a request in, a program or an error out, as files."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from profiler.child.peak_memory import peak_bytes
from profiler.program.frames import line_of
from profiler.program.model import Program, ProgramError
from profiler.program.process import Answer
from profiler.program.record import counted_flops, record, said
from profiler.program.request import Request
from profiler.program.sources import DTYPES, maker


def main(arguments: list[str]) -> int:
    """arguments: the files of the request and of the answer."""
    asked, answer = (Path(a) for a in arguments)
    request = msgspec.json.decode(asked.read_bytes(), type=Request)
    try:
        encoded = msgspec.msgpack.encode(_answered(request))
    except OverflowError:
        told = f"{request.source}: a count of its elements, bytes or FLOPs is above 2^64"
        encoded = msgspec.msgpack.encode(Answer(error=told, remedy="No GPU has that much memory: check its sizes."))
    answer.write_bytes(encoded)
    return 0


def _answered(request: Request) -> Answer:
    dtype = DTYPES[request.dtype] if request.dtype else None
    try:
        program: Program = record(
            request.source, maker(request), training=request.training, dtype=dtype, capability=request.capability
        )
    except ProgramError as error:
        return Answer(error=error.message, remedy=error.remedy)
    except MemoryError:
        return Answer(error="the program needs more memory than it may have")
    except BaseException as fault:
        if isinstance(fault, Exception):  # a fault of ours
            raise
        return Answer(error=f"{line_of(fault) or request.source}: it ended itself, by {said(fault)}")
    flops = counted_flops(maker(request), training=request.training, dtype=dtype) if request.counted else 0
    return Answer(program, peak_bytes(), flops)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
