"""How fast traces are read here, compared with the tools that are installed: `make bench-trace`, or
`python benchmarks/traces/trace.py --help`.

Each tool runs in a process of its own and does the same job: load the file, link kernels to ops, sum their time. The
seconds are those of the job, without imports; memory is the sum over all processes of the tool, sampled. Ratios are to
this reader on the same file in the same run, and only they mean anything on a shared machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.traces.repeated import LONG_BYTES, TRAINING, repeat  # noqa: E402 (run as a file)

# What each tool is asked: a script that gets the file as its argument and prints the seconds that its job took.
_TIMED = """
import sys, time
{setup}
start = time.perf_counter()
{job}
print("seconds", time.perf_counter() - start)
"""

_OURS = _TIMED.format(
    setup="from profiler.trace import read_trace; from benchmarks.traces.trace_rows import kernel_table",
    job="""
trace = read_trace(sys.argv[1], processes=PROCESSES)
table = kernel_table(trace)
assert "torch" not in sys.modules
""",
)

_HTA = _TIMED.format(
    setup="import logging; logging.disable(); from hta.trace_analysis import TraceAnalysis",
    job="TraceAnalysis(trace_files={0: sys.argv[1]}).get_gpu_kernel_breakdown(visualize=False)",
)

_TRACELENS = _TIMED.format(
    setup="sys.path.insert(0, sys.argv[2]); from TraceLens import TreePerfAnalyzer",
    job="""
analyzer = TreePerfAnalyzer.from_file(sys.argv[1])
launchers = analyzer.get_df_kernel_launchers()
analyzer.get_df_kernel_launchers_summary(launchers)
""",
)

_PERFETTO = """
select k.name, count(*), sum(k.dur) from slice k where k.category = 'kernel' group by k.name;
"""


@dataclass(frozen=True, slots=True)
class Tool:
    """One reader. command: None where it is not installed; the file is appended."""

    name: str
    command: list[str] | None
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took. wall_s: the job alone where the tool tells, else the whole process."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def tools(arguments: argparse.Namespace, folder: Path) -> list[Tool]:
    """This reader, in as many processes as it likes and in one, and the others."""
    query = folder / "query.sql"
    query.write_text(_PERFETTO)
    perfetto = shutil.which(arguments.perfetto)
    us = [sys.executable, "-c"]
    return [
        Tool("this reader", [*us, _OURS.replace("PROCESSES", "None")]),
        Tool("this reader, one process", [*us, _OURS.replace("PROCESSES", "1")]),
        Tool("HTA", [arguments.hta, "-c", _HTA] if _has(arguments.hta, "hta") else None),
        Tool(
            "TraceLens",
            [arguments.tracelens_python, "-c", _TRACELENS] if arguments.tracelens else None,
            (arguments.tracelens or "",),
        ),
        Tool("Perfetto", [perfetto, "-q", str(query)] if perfetto else None),
        Tool("Perfetto, WebAssembly", _perfetto_wasm(arguments.perfetto_wasm), (str(query),)),
    ]


def _perfetto_wasm(folder: str | None) -> list[str] | None:
    node = shutil.which("node")
    return [node, str(ROOT / "benchmarks" / "traces" / "perfetto.mjs"), folder] if node and folder else None


def _has(python: str, module: str) -> bool:
    code = f"import importlib.util as u; raise SystemExit(u.find_spec({module!r}) is None)"
    return shutil.which(python) is not None and subprocess.run([python, "-c", code], check=False).returncode == 0


def run(tool: Tool, file: Path, runs: int) -> Cost | str:
    """The fastest of several runs, or why there is none."""
    if tool.command is None:
        return "not installed"
    best: Cost | None = None
    for _ in range(runs):
        before = os.times()
        started = time.perf_counter()
        process = subprocess.Popen(
            [*tool.command, str(file), *tool.after],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        memory = Memory(process.pid)
        out, err = process.communicate()
        wall_s = time.perf_counter() - started
        peak_mb = memory.stop()
        after = os.times()
        if process.returncode:
            return "failed: " + (err.strip().splitlines() or ["no message"])[-1][:100]
        told = [float(line.split()[1]) for line in out.splitlines() if line.startswith("seconds ")]
        cpu_s = after.children_user - before.children_user + after.children_system - before.children_system
        cost = Cost(told[-1] if told else wall_s, cpu_s, peak_mb)
        if best is None or cost.wall_s < best.wall_s:
            best = cost
    assert best is not None
    return best


class Memory:
    """The most that a process and all its children hold at once: resident pages, shared ones counted in each."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak_kb = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> float:
        """Megabytes."""
        self._done.set()
        self._thread.join()
        return self._peak_kb / 1024

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._peak_kb = max(self._peak_kb, _tree_kb(self._pid))


def _tree_kb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    own = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")]
    return sum(own) + sum(_tree_kb(int(child)) for child in children)


def uncompressed_mb(file: Path) -> float:
    """Megabytes of JSON in a file."""
    size = 0
    with gzip.open(file) as text:
        while chunk := text.read(1 << 24):
            size += len(chunk)
    return size / 1e6


def table(file: Path, mb: float, costs: list[tuple[str, Cost | str]]) -> str:
    """Markdown: one row a tool, ratios to the first."""
    first = costs[0][1]
    lines = [
        f"{file.name}, {mb:.0f} MB of JSON",
        "",
        "| | MB/s | wall, s | x | CPU, s | x | peak, MB | x |",
        "|-|-|-|-|-|-|-|-|",
    ]
    for name, cost in costs:
        if isinstance(cost, str) or isinstance(first, str):
            lines.append(f"| {name} | {cost} | | | | | | |")
            continue
        lines.append(
            f"| {name} | {mb / cost.wall_s:.0f} "
            f"| {cost.wall_s:.2f} | {cost.wall_s / first.wall_s:.1f} "
            f"| {cost.cpu_s:.2f} | {cost.cpu_s / first.cpu_s:.1f} "
            f"| {cost.peak_mb:.0f} | {cost.peak_mb / first.peak_mb:.1f} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Print one table a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="a trace as torch wrote it (default: T5 training of 215 MB)")
    parser.add_argument("--repeated", type=Path, help="the trace that --gb repeats (default: T5 training)")
    parser.add_argument("--gb", type=float, nargs="*", default=[1.0], help="sizes to repeat it to, in GB of JSON")
    parser.add_argument("--runs", type=int, default=3, help="runs of each tool; the fastest counts")
    parser.add_argument("--hta", default=sys.executable, help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--tracelens", help="folder of AMD's TraceLens (the package of that name on PyPI is another)")
    parser.add_argument("--tracelens-python", default=sys.executable, help="a Python that has what TraceLens needs")
    parser.add_argument("--perfetto", default="trace_processor_shell", help="Perfetto's trace processor")
    parser.add_argument(
        "--perfetto-wasm", help="folder of Perfetto's user interface with trace_processor.wasm, for node"
    )
    parser.add_argument("--folder", help="where the long traces are written (default: the system's temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        if arguments.file is None:
            arguments.file = Path(folder) / "t5_training_repeated.json.gz"
            repeat(TRAINING, arguments.file, LONG_BYTES)
        asked = tools(arguments, Path(folder))
        files = [(arguments.file, uncompressed_mb(arguments.file))]
        for gb in arguments.gb:
            file = Path(folder) / f"repeated_{gb:g}GB.json.gz"
            files.append((file, repeat(arguments.repeated or TRAINING, file, int(gb * 1e9)) / 1e6))
        for file, mb in files:
            costs = []
            for tool in asked:
                costs.append((tool.name, run(tool, file, arguments.runs)))
                print(json.dumps({"file": file.name, "tool": tool.name, "cost": str(costs[-1][1])}), file=sys.stderr)
            print(table(file, mb, costs), end="\n\n", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
