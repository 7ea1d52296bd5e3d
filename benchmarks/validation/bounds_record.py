"""What runs of `benchmarks/validation/bounds.py` and `bounds_chains.py` wrote, in shares, as one record of a device.

`python -m benchmarks.validation.bounds_record FOLDER... --date 2026-11-27` joins every bounds-*.json and chains-*.json
below the folders into tests/records/bounds-DEVICE.json. A row or a chain counts once. What the table has and no share
ran, for want of time, is kept by name.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.validation.bounds import implementations
from benchmarks.validation.bounds_regions import REGIONS
from tools.records.launched_record import RECORDS, short_name

Json = dict[str, Any]


def joined(shares: Sequence[Json], chains: Sequence[Json], date: str) -> Json:
    """The record. ValueError where two shares have one row or chain, or are not of one device and its software."""
    about = [{key: body[key] for key in ("device", "software")} for body in (*shares, *chains)]
    if not shares or any(other != about[0] for other in about):
        raise ValueError("no shares of the table, or shares of several devices or of different software")
    rows = [{key: value for key, value in row.items() if key != "seconds"} for body in shares for row in body["rows"]]
    order = [(region, name) for region in REGIONS for name, _, _ in implementations(region, "cuda", with_compile=True)]
    names = [(row["region"], row["implementation"]) for row in rows]
    once("rows", names)
    if unknown := set(names) - set(order):
        raise ValueError(f"rows that the table no longer has: {sorted(unknown)}")
    rows.sort(key=lambda row: order.index((row["region"], row["implementation"])))
    numbers = [n for body in chains for n in body["chains"]]
    once("chains", numbers)
    return {
        **about[0],
        "date": date,
        "rows": rows,
        "not_run": [list(name) for name in order if name not in set(names)],
        "chains": {
            "ranges": ranges(numbers),
            "computations": sum(body["accepted"] + len(body["refusals"]) for body in chains),
            "refusals": [refusal for body in chains for refusal in body["refusals"]],
        },
    }


def once(what: str, items: Sequence[Any]) -> None:
    """ValueError where one is there twice."""
    if len(set(items)) < len(items):
        raise ValueError(f"{what} that several shares have: {sorted(i for i in set(items) if items.count(i) > 1)[:5]}")


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """[first, last] of each run of numbers without a gap."""
    made: list[list[int]] = []
    for number in sorted(numbers):
        if made and number == made[-1][1] + 1:
            made[-1][1] = number
        else:
            made.append([number, number])
    return made


def main(arguments: Sequence[str]) -> int:
    """The command."""
    reader = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    reader.add_argument("folders", nargs="+", type=Path)
    reader.add_argument("--date", required=True, help="of the measurement, such as 2026-11-26")
    asked = reader.parse_args(arguments)
    shares, chains = (
        [
            json.loads(file.read_text(encoding="utf-8"))
            for folder in asked.folders
            for file in sorted(folder.rglob(name))
        ]
        for name in ("bounds-*.json", "chains-*.json")
    )
    record = joined(shares, chains, asked.date)
    path = RECORDS / f"bounds-{short_name(record['device'])}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    left, drawn = len(record["not_run"]), record["chains"]["ranges"]
    print(f"{path.name}: {len(record['rows'])} rows, {left} not run, chains {drawn}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
