"""Add validations to what was measured of the corpus: `python -m tools.corpus.collect RECORDS_FOLDER`.

The folder is what `benchmarks/validation/validate.py --out` wrote of programs of the corpus. A newer validation of a
program on a device takes the place of one of the same day.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from app.accuracy.corpus.measured import FILE, read_measured, trim_record, write_measured
from app.accuracy.corpus.programs import load_corpus
from app.objects.record import ArchiveRecord


def collect(folder: Path) -> tuple[list[ArchiveRecord], list[str]]:
    """The folder's validations of corpus programs, and the names of files that are of none."""
    by_text = {p.text: p.name for p in load_corpus().programs}
    records, others = [], []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        program = by_text.get(record["region"])
        if program is None:
            others.append(path.name)
        else:
            records.append(trim_record(record, program))
    return records, others


def main(arguments: Sequence[str]) -> int:
    """0 where every file was of a program; counts by third are printed, and nothing of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    records, others = collect(folder)
    everything = [*(read_measured() if FILE.exists() else []), *records]
    write_measured(FILE, everything)
    thirds = {p.name: p.third for p in load_corpus().programs}
    counts = Counter((thirds[r["name"]], str(r["device"])) for r in read_measured())
    for (third, device), count in sorted(counts.items()):
        print(f"{third:<12} {device:<24} {count}")
    for name in others:
        print(f"{name}: no program of the corpus", file=sys.stderr)
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
