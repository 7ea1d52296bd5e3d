"""Inferred edges against execution traces: precision and recall for each pair of files.

python tools/checks/check_edges.py TRACE EXECUTION_TRACE [TRACE EXECUTION_TRACE ...]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from profiler.region.mining.execution_edges import Edges, exact
from profiler.region.mining.infer_edges import infer
from profiler.region.mining.partition import partition
from profiler.region.mining.units import Unit, collect_units
from profiler.trace.analyze.steps import steady_step
from profiler.trace.execution_trace import Execution, read_execution
from profiler.trace.model import Trace
from profiler.trace.read.reader import read_trace

EITHER_ORDER = frozenset({"add", "add_", "mul", "mul_"})
"""Operations whose operands count as a set."""


def score(trace: Trace, execution: Execution) -> tuple[int, int, int]:
    """(true, inferred, inferred rightly) edges among the forward operations of the steady step, views among them."""
    taken = collect_units(trace, steady_step(trace))
    true = exact(trace, taken.units, execution)
    partition(trace, taken)  # completes the units' arguments
    forward = [u for u in taken.units if not u.backward]
    threads = sorted({u.thread for u in forward})
    inferred = [infer([u for u in forward if u.thread == t]) for t in threads]
    one, two = (
        _count_edges(forward, [true]),
        _count_edges(forward, inferred),
    )
    return sum(one.values()), sum(two.values()), sum((one & two).values())


def _count_edges(forward: Sequence[Unit], edges: Sequence[Edges]) -> Counter[tuple[object, ...]]:
    by_op = {u.op: u for u in forward}
    counted: Counter[tuple[object, ...]] = Counter()
    for (op, place, member), source in ((k, s) for e in edges for k, s in e.sources.items()):
        unit = by_op.get(op)
        if unit is None or source[0] not in by_op:
            continue
        if place < len(unit.args) and unit.args[place].kind == "lost":
            continue  # a Python number, wrapped
        counted[op, None if unit.name in EITHER_ORDER else (place, member), source] += 1
    return counted


def main(paths: Sequence[str]) -> int:
    """Prints one line for each pair; exit status 1 without any."""
    if not paths or len(paths) % 2:
        print(__doc__)
        return 1
    print(f"{'trace':48} {'true':>6} {'found':>6} {'right':>6} {'precision':>9} {'recall':>7}")
    for path, execution in zip(paths[::2], paths[1::2], strict=True):
        true, inferred, right = score(read_trace(path), read_execution(execution))
        precision, recall = right / max(inferred, 1), right / max(true, 1)
        print(f"{Path(path).name[:48]:48} {true:6} {inferred:6} {right:6} {precision:9.3f} {recall:7.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
