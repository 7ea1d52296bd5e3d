"""Plain figures of every trace in tests/data/traces: `python -m tools.docs.trace_figures`. --check only compares.

The tests hold the reader to them, so nothing here is the project's: json.load, dictionaries and loops. A kernel is
linked to an operation by its correlation: the runtime event of that correlation, then the innermost cpu_op of the same
thread that encloses it.
"""

from __future__ import annotations

import gzip
import json
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
TRACES = ROOT / "tests" / "data" / "traces"
FIGURES = TRACES / "expected.json"

Event = dict[str, Any]

OPERATIONS = {"cpu_op", "operator"}  # as torch names them now, and as it did until 1.11
RUNTIME = {"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime"}
MEMORY = {"gpu_memcpy", "gpu_memset", "memcpy", "memset"}
TOP = 5


def trace_paths() -> list[Path]:
    """The traces, execution traces aside."""
    return sorted(p for p in TRACES.glob("*.json*") if p != FIGURES and ".et." not in p.name)


def figures_of(path: Path) -> dict[str, Any]:
    """One trace's figures."""
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    events: list[Event] = document["traceEvents"] if isinstance(document, dict) else document
    complete = [e for e in events if e.get("ph") == "X"]
    kernels = _select(complete, {"kernel"})
    operations = _select(complete, OPERATIONS)
    linked = _link_kernels(kernels, _select(complete, RUNTIME), operations)
    time_us = sum(_duration(k) for k in kernels)
    by_operation: Counter[str] = Counter()
    for kernel, operation in linked:
        by_operation[operation["name"]] += _duration(kernel)  # type: ignore[assignment]  # a float counts as well
    devices = document.get("deviceProperties", []) if isinstance(document, dict) else []
    return {
        "events": len(events),
        "kernels": len(kernels),
        "kernel_time_us": round(time_us, 1),
        "kernel_busy_us": round(_union_us(kernels), 1),
        "memory_events": len(_select(complete, MEMORY)),
        "profiler_steps": len({e["name"] for e in complete if str(e.get("name")).startswith("ProfilerStep")}),
        "linked_kernels": len(linked),
        "linked_time_share": round(sum(_duration(k) for k, _ in linked) / time_us, 4) if time_us else None,
        "has_shapes": any("Input Dims" in e.get("args", {}) or "Input dims" in e.get("args", {}) for e in operations),
        "has_stacks": any(e.get("cat") == "python_function" for e in complete),
        "gpu": devices[0].get("name") if devices else None,
        "top_ops": [[name, round(us, 1)] for name, us in by_operation.most_common(TOP)],
    }


def _select(events: list[Event], categories: set[str]) -> list[Event]:
    return [e for e in events if str(e.get("cat", "")).lower() in categories]


def _duration(event: Event) -> float:
    return float(event.get("dur", 0))


def _union_us(kernels: list[Event]) -> float:
    """The time in which at least one of them runs."""
    total = reached = 0.0
    for start, end in sorted((float(k["ts"]), float(k["ts"]) + _duration(k)) for k in kernels):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _link_kernels(kernels: list[Event], runtime: list[Event], operations: list[Event]) -> list[tuple[Event, Event]]:
    """Each kernel that has one, with its operation."""
    threads: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for operation in operations:
        threads[operation["pid"], operation["tid"]].append(operation)
    starts = {}
    for thread, on_thread in threads.items():
        on_thread.sort(key=lambda e: (float(e["ts"]), -_duration(e)))
        starts[thread] = [float(e["ts"]) for e in on_thread]
    launches = {e["args"]["correlation"]: e for e in runtime if "correlation" in e.get("args", {})}
    pairs = []
    for kernel in kernels:
        launch = launches.get(kernel.get("args", {}).get("correlation"))
        if launch is None:
            continue
        thread, at = (launch["pid"], launch["tid"]), float(launch["ts"])
        for i in range(bisect_right(starts.get(thread, []), at) - 1, -1, -1):  # the innermost begins last
            operation = threads[thread][i]
            if float(operation["ts"]) + _duration(operation) >= at:
                pairs.append((kernel, operation))
                break
    return pairs


def main() -> int:
    """0 written, or the same; 1 something differs."""
    figures = {path.name: figures_of(path) for path in trace_paths()}
    if "--check" not in sys.argv[1:]:
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        return 0
    written = json.loads(FIGURES.read_text(encoding="utf-8"))
    differing = sorted(n for n in figures.keys() | written.keys() if figures.get(n) != written.get(n))
    print("\n".join(f"{n}: {written.get(n)}\n  now {figures.get(n)}" for n in differing) or "the figures are the same")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
