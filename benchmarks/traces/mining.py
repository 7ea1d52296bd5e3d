"""How long mining a trace takes beyond reading it, in a process that has not mined before.

    python -m benchmarks.traces.mining [TRACE ...]

Default: the largest traces in tests/data/traces. Prints seconds and the ratio to reading. Asked for: 4 s more at most
for the largest, the import of torch included.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

TRACES = Path(__file__).resolve().parent.parent.parent / "tests" / "data" / "traces"
LARGEST = 6

ONE = """
import sys, time
from profiler.trace.read.reader import read_trace
started = time.perf_counter()
trace = read_trace(sys.argv[1])
read = time.perf_counter()
from profiler.region.mining.mine import mine
imported = time.perf_counter()
result = mine(trace)
mined = time.perf_counter()
mine(trace)
again = time.perf_counter()
print(read - started, imported - read, mined - imported, again - mined, len(result.regions), len(trace.kernels.name))
"""


def measure(path: Path) -> list[float]:
    """Seconds to read, to import, to mine and to mine again; regions; kernels."""
    done = subprocess.run([sys.executable, "-c", ONE, str(path)], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path)
    traces = parser.parse_args().traces or _largest()
    names = ("trace", "kernels", "regions", "read s", "import s", "mine s", "again s", "mine/read")
    print("{:<44} {:>8} {:>8} {:>8} {:>9} {:>7} {:>8} {:>10}".format(*names))
    for path in traces:
        read, imported, mined, again, regions, kernels = measure(path)
        print(
            f"{path.name[:44]:<44} {kernels:8.0f} {regions:8.0f} {read:8.2f} {imported:9.2f} {mined:7.2f} {again:8.2f} "
            f"{mined / read:10.2f}"
        )


def _largest() -> list[Path]:
    traces = sorted(TRACES.glob("*.json.gz"), key=lambda p: -p.stat().st_size)
    return [p for p in traces if ".et." not in p.name][:LARGEST]


if __name__ == "__main__":
    main()
