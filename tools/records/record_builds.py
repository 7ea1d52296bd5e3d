"""Writes tests/records/kernel-builds.json: what every kernel of kernels/ compiles to for every target of
`kernels.builds`, with no GPU.

`python -m tools.records.record_builds [OPERATION ...]`; named ones replace their part of the record.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

import triton

from kernels.builds import TARGETS, Built, build
from kernels.operations import operation, operations

RECORD = Path(__file__).resolve().parent.parent.parent / "tests" / "records" / "kernel-builds.json"


def build_all(name: str) -> list[Built]:
    """All builds of one operation on all targets."""
    op = operation(name)
    return [build(op, item, target) for item in op.builds for target in TARGETS]


def main(names: list[str]) -> int:
    """Compile in two processes and write."""
    every = [o.name for o in operations()]
    wanted = names or every
    before = json.loads(RECORD.read_text())["builds"] if names else []
    kept = [r for r in before if r["operation"] not in wanted]
    with ProcessPoolExecutor(2) as pool:
        for rows in pool.map(build_all, wanted):
            for row in rows:
                told = f"{row.registers} registers, {row.spill_bytes} B spilled, {row.shared_bytes} B shared"
                print(f"{row.operation:24} {row.target:7} {row.refused or told} {row.variant[:90]}")
                kept.append(asdict(row))
    kept.sort(key=lambda r: (every.index(r["operation"]), r["variant"], TARGETS.index(r["target"])))
    RECORD.write_text(json.dumps({"triton": triton.__version__, "builds": kept}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
