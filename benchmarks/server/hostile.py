"""How long each hostile text takes to be refused, slowest first: `python benchmarks/server/hostile.py [COUNT]`.

Best of three, warm, in one thread: what a request waits for apart from the network.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import RegionError
from tests.profiler.region.hostile.corpus import CORPUS

AIM_MS = 100.0


def refusal_ms(text: str) -> tuple[float, str]:
    """(milliseconds, code) of refusing a text; the code is "" where it was accepted."""
    started = time.perf_counter()
    code = ""
    try:
        program(parse(text))
    except RegionError as fault:
        str(fault)
        code = fault.code
    return (time.perf_counter() - started) * 1e3, code


def main() -> int:
    """Print the slowest; 1 where a text was accepted or took longer than the aim."""
    shown = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    program(parse("x: f32[8, 4]\nreturn layer_norm(x, [4])\n"))
    rows = []
    for name, (text, _) in CORPUS.items():
        runs = [refusal_ms(text) for _ in range(3)]
        rows.append((min(ms for ms, _ in runs), runs[0][1], name))
    rows.sort(reverse=True)
    for ms, code, name in rows[:shown]:
        print(f"{ms:8.2f} ms  {code or 'ACCEPTED':22}  {name}")
    middle = rows[len(rows) // 2][0]
    print(f"{len(rows)} texts, median {middle:.2f} ms, slowest {rows[0][0]:.2f} ms (aim {AIM_MS:.0f} ms)")
    return int(rows[0][0] > AIM_MS or any(not code for _, code, _ in rows))


if __name__ == "__main__":
    raise SystemExit(main())
