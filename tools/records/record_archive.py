"""Validate regions on this machine's GPU and record each in the Archive.

python tools/records/record_archive.py --records DIR [--trace FILE] [REGION.txt ...]: every region of the trace that
has a text,
then the region files. Run from the repository's root on a GPU host; needs torch, triton, numpy, msgspec and isal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

TIMEOUT_S = 240


def validate(arguments: list[str], records: Path) -> str:
    """One `tritonworthy validate --record`; a line for the table."""
    command = [sys.executable, "-m", "app.cli", "validate", *arguments, "--record", str(records), "--json"]
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    spent = time.monotonic() - started
    try:
        body = json.loads(done.stdout)
    except json.JSONDecodeError:
        return f"{arguments[-1]}: exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
    return f"{spent:5.1f} s  {body['name']}: {body['outcome']}, best {body['best']}: {body['reason'][:150]}"


def main() -> int:
    """Record everything asked for; 0 where each gave a validation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, default=ROOT / "app" / "archive" / "records")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("texts", nargs="*", type=Path)
    asked = parser.parse_args()
    jobs = [[str(t)] for t in asked.texts]
    if asked.trace is not None:
        from app.trace_report.report import report

        regions = report(asked.trace, asked.trace.name)["regions"]
        jobs += [["--trace", str(asked.trace), "--region", str(i)] for i, r in enumerate(regions, 1) if r["text"]]
    lines = []
    for job in jobs:
        lines.append(validate(job, asked.records))
        print(lines[-1], flush=True)
    return 1 if any(": exit " in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
