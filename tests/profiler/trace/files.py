"""Trace files for these tests: real ones, and real ones damaged in one way."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from profiler.trace import Trace, read_trace
from tests.conftest import DATA

TRACES = DATA / "traces"
EXPECTED: dict[str, dict[str, Any]] = json.loads((TRACES / "expected.json").read_text())

SMALL = "handrolled_blocks_bf16_eager.json.gz"  # 2345 events, one chunk and a bit
LARGER = "gpt2_train_autocast_eager.json.gz"  # several chunks


@cache
def real(name: str) -> Trace:
    """One of the real traces, read once for all tests."""
    return read_trace(TRACES / name)


def plain(name: str) -> bytes:
    """The JSON of one of the real traces."""
    data = (TRACES / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def loaded(name: str) -> dict[str, Any]:
    """One of the real traces as json.load reads it."""
    document: dict[str, Any] = json.loads(plain(name))
    return document


def written(folder: Path, data: bytes | str, name: str = "trace.json") -> Path:
    """A file with these bytes."""
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def op(name: str, ts: float, dur: float, tid: int = 1, **args: object) -> dict[str, object]:
    """A cpu_op event."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def launch(ts: float, correlation: int, tid: int = 1, name: str = "cudaLaunchKernel") -> dict[str, object]:
    """A runtime event."""
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": 1, "args": args}


def kernel(
    ts: float, dur: float, correlation: int, stream: int = 7, name: str = "k", **args: object
) -> dict[str, object]:
    """A kernel event."""
    more = {"correlation": correlation, "stream": stream, "device": 0, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": more}


def annotation(name: str, ts: float, dur: float, tid: int = 1) -> dict[str, object]:
    """A user_annotation event."""
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}
