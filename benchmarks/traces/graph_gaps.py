"""The time between two kernels of one CUDA graph on this host's GPU, and how a profiler slows the host.

python benchmarks/traces/graph_gaps.py [--out FILE]

Chains of 200 additions, each reading what the one before it wrote: wall time of a replay without a profiler, per
kernel, against the kernels' durations as a profiler records them in eager; eager's wall time per call with and without.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

KERNELS = 200
ELEMENTS = (1 << 12, 1 << 20, 1 << 22, 1 << 24, 1 << 26)


def wall_us(run: Callable[[], Any], times: int = 30) -> float:
    """Median wall time of a run with the GPU's work done."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        taken.append(1e6 * (time.perf_counter() - start))
    return statistics.median(taken)


def recorded(run: Callable[[], Any], shapes: bool) -> tuple[float, float]:
    """(duration of a kernel, time from the first kernel's start to the last one's end per kernel), under a profiler."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=shapes) as record:
        run()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        record.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text("utf-8"))["traceEvents"]
    kernels = sorted((e["ts"], e["dur"]) for e in events if e.get("cat") == "kernel")
    span = kernels[-1][0] + kernels[-1][1] - kernels[0][0]
    return sum(duration for _, duration in kernels) / len(kernels), span / len(kernels)


def of_size(elements: int) -> dict[str, float]:
    """All figures of one length, µs per kernel."""
    x = torch.randn(elements, device="cuda", dtype=torch.bfloat16)

    def chain() -> torch.Tensor:
        y = x
        for _ in range(KERNELS):
            y = y + 1.0
        return y

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        chain()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    row = {"bytes": 4.0 * elements, "eager_us": wall_us(chain) / KERNELS, "graph_us": wall_us(graph.replay) / KERNELS}
    row["kernel_us"], row["eager_profiled_us"] = recorded(chain, shapes=False)
    row["eager_profiled_with_shapes_us"] = recorded(chain, shapes=True)[1]
    row["graph_kernel_us"], row["graph_profiled_us"] = recorded(graph.replay, shapes=False)
    return row


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = [of_size(elements) for elements in ELEMENTS]
    for row in rows:
        print("  ".join(f"{name} {value:.2f}" for name, value in row.items()), flush=True)
    if arguments.out:
        record = {
            "device": torch.cuda.get_device_name(), "date": datetime.now(UTC).date().isoformat(),
            "software": {"torch": torch.__version__}, "kernels": KERNELS, "rows": rows,
        }  # fmt: skip
        arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
