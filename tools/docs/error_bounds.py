"""A page's part on what the bound on errors accepts, from a record of `benchmarks.validation.bounds_record`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

LIBRARIES = {"Liger": "of Liger", "quack": "of quack", "FlexAttention compiled": "of compiled FlexAttention"}
"""Implementations of `benchmarks/validation/bounds_libraries.py` and what a sentence calls them."""


MISSING = "ModuleNotFoundError"
"""In what a row says whose library is not installed."""


def bounds(record: Json) -> Iterator[str]:
    """What was accepted and refused, what was not there or not run, and the drawn programs."""
    yield "## What the bound on errors accepts\n"
    rows = [r for r in record["rows"] if r["verdict"] != "not here"]
    right, wrong = [r for r in rows if r["right"]], [r for r in rows if not r["right"]]
    accepted, passed = (sum(r["verdict"] == "correct" for r in part) for part in (right, wrong))
    note = f"; {record['note']}" if record.get("note") else ""
    chains = record["chains"]
    yield (
        f"`benchmarks/validation/bounds.py --compile` ({record['date']}, torch {record['software']['torch']}, triton "
        f"{record['software']['triton']}): {accepted} of {len(right)} right implementations "
        f"accepted{of_libraries(right)}, {len(wrong) - passed} of {len(wrong)} wrong ones refused{note}. "
        f"`bounds_chains.py`: {drawn(record):,} drawn programs, each in two right ways, {len(chains['refusals'])} of "
        f"{chains['computations']:,} computations refused.\n"
    )
    judged_wrongly = [r for r in right if r["verdict"] != "correct"] + [r for r in wrong if r["verdict"] == "correct"]
    for r in judged_wrongly:
        yield f"- Judged wrongly: {r['implementation']} on {r['region']}: {r['verdict']}: {r['message']}.\n"
    absent = [r for r in record["rows"] if r["verdict"] == "not here"]
    for told, which in (("Not installed", True), ("Not for such a region, or not on this GPU", False)):
        names = [f"{r['implementation']} on {r['region']}" for r in absent if (MISSING in r["message"]) is which]
        if names:
            yield f"- {told}: {', '.join(names)}.\n"
    missing: dict[str, list[str]] = {}
    for region, name in record.get("not_run", ()):
        missing.setdefault(region, []).append(name)
    if missing:
        listed = "; ".join(f"{region}: {', '.join(names)}" for region, names in missing.items())
        yield f"- In the table, and not run for want of time: {listed}.\n"


def drawn(record: Json) -> int:
    """Programs that were drawn, no two of one number."""
    return sum(last - first + 1 for first, last in record["chains"]["ranges"])


def of_libraries(rows: list[Json]) -> str:
    """How many of the rows are calls of libraries or compiled FlexAttention."""
    own = [r["implementation"] for r in rows if r["implementation"] in LIBRARIES]
    counts = " and ".join(f"{own.count(name)} {LIBRARIES[name]}" for name in sorted(set(own)))
    return f" ({counts} among them)" if own else ""
