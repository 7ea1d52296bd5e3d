"""What Ray adds to a job: the same child through the local runner and through a cluster on this machine, in turns.

python -m benchmarks.fleet.fleet_overhead --out tests/records/fleet-overhead.json

A head that reads and a host that declares one H200; the child only answers, so that all of its time is overhead. Reads
are real (`app.jobs.tasks read` of a shipped trace); where four at once go is told by the worker's parent.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from app.jobs.local_runner import Limits, LocalRunner
from app.jobs.protocol import Runner
from app.jobs.ray import model
from app.objects.task import ProbedHost
from tests.app.jobs.ray.cluster import H200, SMALL, Fleet, look

ROOT = Path(__file__).resolve().parent.parent.parent
TRACE = ROOT / "app" / "examples" / "vit_base.json.gz"
CHILD = [sys.executable, str(ROOT / "tests" / "app" / "jobs" / "children.py"), "ok", "{fd}"]
WHERE = [sys.executable, str(ROOT / "tests" / "app" / "jobs" / "ray" / "children.py"), "where", "{fd}"]
READING = {"path": str(TRACE), "name": "trace", "max_uncompressed_bytes": 1 << 33}
READ = [sys.executable, "-m", "app.jobs.tasks", "read", "{fd}"]


def run_job(runner: Runner, command: list[str], request: dict[str, Any], folder: Path) -> tuple[float, Any]:
    """Seconds of one job, and what it answered."""
    began = time.perf_counter()
    ended = runner.run(command, request, limits=Limits(300, 1), log=folder / f"{threading.get_ident()}.log", cwd=ROOT)
    took = time.perf_counter() - began
    if ended.error is not None:
        raise SystemExit(str(ended.error))
    return took, ended.value


def count_readings_by_host(runner: Runner, count: int, folder: Path) -> list[int]:
    """How many of so many readings at once each host took; a reading is held for a second."""
    hosts: Counter[int] = Counter()

    def lane(number: int) -> None:
        request = {"pid_file": str(folder / f"{number}.pid"), "hold_s": 1.0}
        hosts[run_job(runner, WHERE, request, folder)[1]["conditions"]["raylet"]] += 1

    lanes = [threading.Thread(target=lane, args=(n,)) for n in range(count)]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()
    return sorted(hosts.values())


def figures(times: list[float]) -> dict[str, float]:
    """Median, the middle half and the slowest."""
    low, _, high = statistics.quantiles(times, n=4)
    seconds = {"median": statistics.median(times), "low": low, "high": high, "slowest": max(times)}
    return {name: round(value, 4) for name, value in seconds.items()}


def main() -> None:
    """Measure and print; --out keeps it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--reads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    fleet = Fleet(folder)
    fleet.cluster.add_node(num_gpus=0, resources=model.resources(None, 2), **SMALL)
    from app.jobs.ray.runner import RayRunner

    probe = cast("Callable[[], ProbedHost]", look)
    ray = RayRunner(fleet.cluster.address, token_file=fleet.token_file, look=probe)
    local = LocalRunner()
    first, _ = run_job(ray, CHILD, {"on": H200}, folder)
    times: dict[str, list[float]] = {"local": [], "ray": []}
    for _ in range(arguments.jobs):  # in turns: whatever else this machine does hits both alike
        times["local"].append(run_job(local, CHILD, {}, folder)[0])
        times["ray"].append(run_job(ray, CHILD, {"on": H200}, folder)[0])
    added = [r - x for r, x in zip(times["ray"], times["local"], strict=True)]
    record = {
        "cpus": os.cpu_count(), "load_1min": round(os.getloadavg()[0], 1), "date": time.strftime("%Y-%m-%d"),
        "jobs": arguments.jobs, "first_on_a_host_s": round(first, 3), "local_s": figures(times["local"]),
        "ray_s": figures(times["ray"]), "overhead_s": figures(added), "reads": {
            "trace_bytes": TRACE.stat().st_size, "hosts": 2, "slots": 4,
            "local_s": [round(run_job(local, READ, READING, folder)[0], 2) for _ in range(arguments.reads)],
            "ray_s": [round(run_job(ray, READ, READING, folder)[0], 2) for _ in range(arguments.reads)],
            "four_at_once_by_host": count_readings_by_host(ray, 4, folder),
        },
    }  # fmt: skip
    ray.close()
    fleet.cluster.shutdown()  # type: ignore[no-untyped-call]
    text = json.dumps(record, indent=2) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
