"""A small HTTP server that speaks vLLM's or SGLang's profiling calls, and writes traces where they would."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

TRACE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"


@dataclass
class Behaviour:
    """How the server answers. folder: of vLLM, set at its start; SGLang is told its own."""

    kind: str
    folder: Path | None = None
    ranks: int = 1
    is_profiling_on: bool = True
    key: str = ""
    answer_s: float = 0.0
    is_idle: bool = False
    calls: list[tuple[str, Any]] = field(default_factory=list)
    recording: dict[str, Any] | None = None


def name_of(kind: str, rank: int) -> str:
    """As vLLM's torch.profiler handler and SGLang name what they write."""
    if kind == "vllm":
        return f"dp0_pp0_tp{rank}_dcp0_ep0_rank{rank}.1764145{rank}.pt.trace.json.gz"
    return f"1764145.12-TP-{rank}.trace.json.gz"


def trace_of(rank: int) -> bytes:
    """A trace; another file for every rank."""
    recorded = TRACE.read_bytes()
    return gzip.compress(gzip.decompress(recorded) + b"\n" * rank) if rank else recorded


def write(behaviour: Behaviour, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for rank in range(behaviour.ranks):
        place = folder / name_of(behaviour.kind, rank)
        if behaviour.is_idle:
            place.with_suffix("").write_text('{"traceEvents": []}')
        else:
            place.write_bytes(trace_of(rank))
    if behaviour.kind == "vllm":  # the front end's own, with no kernel
        (folder / "host_77.AsyncLLM.1764145.pt.trace.json").write_text('{"traceEvents": [{"cat": "cpu_op"}]}')


@contextmanager
def engine(behaviour: Behaviour) -> Iterator[str]:
    """Its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"null")
            behaviour.calls.append((self.path, body))
            time.sleep(behaviour.answer_s)
            self.send_response(self.status(body))
            self.end_headers()
            self.wfile.write(b"" if behaviour.kind == "vllm" else b"Start profiling.\n")

        def status(self, body: dict[str, Any] | None) -> int:
            if behaviour.key and self.headers.get("Authorization") != f"Bearer {behaviour.key}":
                return 401
            if not behaviour.is_profiling_on:
                return 404
            if self.path == "/start_profile":
                if behaviour.recording is not None:
                    return 500
                behaviour.recording = body or {}
                if "num_steps" in behaviour.recording or "max_iterations" in behaviour.recording:
                    self.finish_recording()
                return 200
            if behaviour.recording is None and behaviour.kind == "sglang":
                return 500  # "Profiling is not in progress"
            if behaviour.recording is not None:
                self.finish_recording()
            return 200

        def finish_recording(self) -> None:
            assert behaviour.recording is not None
            folder = behaviour.folder or Path(behaviour.recording["output_dir"])
            behaviour.recording = None
            write(behaviour, folder)

        def log_message(self, *arguments: object) -> None:
            """Not on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
