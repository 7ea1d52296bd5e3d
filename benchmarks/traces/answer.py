"""What a trace's answer takes of the processors, sent to a server: `python -m benchmarks.traces.answer FILE ...`.

Of the server and all below it, from the upload until every region has its advice, without the oracle. Medians over
rounds, the first of which is not counted. Processor time and not wall time, because machines are shared. To compare two
commits, run it in a checkout of each in turns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from tools.server import serving

ANSWER_S = 600.0


def processor_s(pid: int) -> float:
    """Of a process, its children, and those of them that have ended and were waited for."""
    total = 0.0
    server = psutil.Process(pid)
    for process in (server, *server.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended meanwhile, and its parent counts it
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def as_another_file(content: bytes, number: int) -> bytes:
    """The same trace in other bytes: a file that was sent before is answered at once. By gzip's own time, or spaces."""
    if content.startswith(b"\x1f\x8b"):
        return content[:4] + (number + 1).to_bytes(4, "little") + content[8:]
    return content + b" " * (number + 1)


def answer(client: httpx.Client, pid: int, file: Path, number: int) -> tuple[float, float]:
    """(processor seconds, wall seconds) from the upload until the trace is ready."""
    content = as_another_file(file.read_bytes(), number)
    before, started = processor_s(pid), time.monotonic()
    sent = client.post("/api/v1/traces", params={"name": file.name}, content=content).raise_for_status()
    trace = sent.json()
    while trace["status"] == "reading":
        trace = client.get(f"/api/v1/traces/{sent.json()['id']}", params={"wait": 60}).raise_for_status().json()
    wall_s = time.monotonic() - started
    time.sleep(1.0)  # until the job's child has ended
    return processor_s(pid) - before, wall_s


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "data", {"ORACLE": "off"}) as served,
        httpx.Client(base_url=served.url, timeout=ANSWER_S) as client,
    ):
        for file in arguments.files:
            rounds = [answer(client, served.pid, file, n) for n in range(arguments.rounds + 1)][1:]
            work_s, wall_s = (statistics.median(column) for column in zip(*rounds, strict=True))
            print(f"{file.name}: {work_s:.2f} s of processors, {wall_s:.2f} s on the clock", flush=True)


if __name__ == "__main__":
    main()
