"""Validations of corpus programs, kept compact: what was measured of each candidate, without sources and kernels.

One compressed file of JSON lines, in the form of Archive records as far as the accuracy reads them; written by
`python -m tools.corpus.collect`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from app.accuracy.corpus.programs import load_programs
from app.accuracy.rounding import rounded
from app.objects.record import ArchiveRecord

FILE = Path(__file__).resolve().parent / "measured.jsonl.gz"

KEPT = ("id", "name", "outcome", "reason", "region", "device", "software", "best", "floor_us", "date")
"""Fields of a validation that are kept as they are."""
CONDITIONS = ("decided_by", "launch_bound", "warnings", "device")
CANDIDATE = (
    "name", "tool", "status", "message", "error_vs_eager", "time_us", "wall_us", "ratio_to_eager",
    "ratio_to_best_other", "peak_bytes", "compile_s", "shapes",
)  # fmt: skip


def trim_record(record: Mapping[str, Any], program: str) -> ArchiveRecord:
    """What is kept of one validation of the program of this name."""
    conditions = record.get("conditions") or {}
    return cast(
        ArchiveRecord,
        rounded(
            {
                **{key: record[key] for key in KEPT if key in record},
                "id": f"{program} {record['device']} {record['date']}",
                "name": program,
                "conditions": {key: conditions[key] for key in CONDITIONS if key in conditions},
                "candidates": [{k: c[k] for k in CANDIDATE if k in c} for c in record["candidates"]],
            }
        ),
    )


def write_measured(file: Path, records: Iterable[ArchiveRecord]) -> None:
    """The same bytes for the same records, in whatever order they come."""
    by_id = {r["id"]: r for r in records}
    lines = "".join(f"{json.dumps(by_id[key], sort_keys=True)}\n" for key in sorted(by_id))
    file.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


def read_measured(file: Path = FILE) -> list[ArchiveRecord]:
    """All of them. OSError or ValueError where the file is damaged."""
    with gzip.open(file, "rt") as lines:
        return [cast(ArchiveRecord, json.loads(line)) for line in lines]


def load_measured(*thirds: str) -> list[ArchiveRecord]:
    """Those of the programs of these thirds. ValueError for a name that is none."""
    wanted = {p.name for p in load_programs(*thirds)}
    return [r for r in read_measured(FILE) if r["name"] in wanted]
