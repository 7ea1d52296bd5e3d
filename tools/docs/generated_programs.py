"""A page's part on random programs over what the generator writes, from a record of `tools.fuzz.new_operations`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from tools.docs.tables import table

Json = dict[str, Any]

SLOW = 1.1
"""Times torch.compile's time from which a generated program is listed as a loss."""


def by_family(record: Json) -> dict[str, list[Json]]:
    """Programs by family."""
    made: dict[str, list[Json]] = {}
    for program in record["programs"]:
        made.setdefault(program["family"], []).append(program)
    return made


def new_operations(record: Json, known: Mapping[str, str]) -> Iterator[str]:
    """Random programs over what the generator writes. known: "family seed" -> what is known of a wrong one by now."""
    yield "## Random programs over the generator's newer operations\n"
    yield (
        "`python -m tools.fuzz.new_operations`: each generated, held to float64, and timed in turns with torch.compile "
        "(default mode). Ratio: its time over torch.compile's "
        f"({record['device']}, {record['date']}, torch {record['software']['torch']}).\n"
    )
    rows = []
    for family, programs in by_family(record).items():
        ratios = [p["ratio"] for p in programs if p["status"] == "right"]
        rows.append([
            family, str(len(programs)), str(len(ratios)), f"{statistics.median(ratios):.2f}", f"{max(ratios):.2f}",
            str(sum(r > SLOW for r in ratios)),
        ])  # fmt: skip
    yield from table(["family", "programs", "right", "median ratio", "worst", f"above {SLOW}"], rows)
    for program in record["programs"]:
        if program["status"] != "right":
            name = f"{program['family']} {program['seed']}"
            yield f"- Wrong: {name}, {program['message']}{known.get(name, '')}"
    slow = sorted(
        (p for p in record["programs"] if p["status"] == "right" and p["ratio"] > SLOW), key=lambda p: -p["ratio"]
    )
    listed = ", ".join(f"{p['family']} {p['seed']} ({p['ratio']:.2f})" for p in slow)
    yield f"- Losses: {listed or 'none'}.\n"
