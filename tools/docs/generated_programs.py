"""A page's part on random programs over what the generator writes, from a record of `tools.fuzz.new_operations`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from tools.docs.tables import table

Json = dict[str, Any]

SLOW = 1.1
"""Times torch.compile's time from which a generated program is listed as a loss."""
LONGER = 1.5
"""Times a program's time on another card of the same generation from which the host is taken to be in it."""


def programs_of(record: Json) -> list[Json]:
    """Programs of all runs."""
    return [program for run in record["runs"] for program in run["programs"]]


def by_family(record: Json) -> dict[str, list[Json]]:
    """Programs by family."""
    made: dict[str, list[Json]] = {}
    for program in programs_of(record):
        made.setdefault(program["family"], []).append(program)
    return made


def on_both(record: Json, other: Json) -> list[tuple[Json, Json]]:
    """Programs that were right and timed on another card too, as they were here and there."""
    there = {p["text"]: p for p in programs_of(other) if p["status"] == "right"}
    return [(p, there[p["text"]]) for p in programs_of(record) if p["status"] == "right" and p["text"] in there]


def larger_ratios(record: Json, other: Json) -> dict[str, list[float]]:
    """The larger of the ratios on two cards of each program that both ran, by family."""
    made: dict[str, list[float]] = {}
    for here, there in on_both(record, other):
        made.setdefault(here["family"], []).append(max(here["ratio"], there["ratio"]))
    return made


def new_operations(record: Json, known: Mapping[str, str], other: Json | None = None) -> Iterator[str]:
    """Random programs over what the generator writes. known: "family seed" -> what is known of a wrong one by now.
    other: the record of another card, which ran some of them too.
    """
    runs = "; ".join(
        f"{run['date']}, torch {run['software']['torch']}, triton {run['software']['triton']}: {len(run['programs'])}"
        for run in record["runs"]
    )
    yield "## Random programs over the generator's newer operations\n"
    yield (
        "`python -m tools.fuzz.new_operations`: each generated, held to float64, and timed in turns with torch.compile "
        f"(default mode). Ratio: its time over torch.compile's ({record['device']}; {runs}).\n"
    )
    larger = larger_ratios(record, other) if other else {}
    rows = []
    for family, programs in by_family(record).items():
        ratios = [p["ratio"] for p in programs if p["status"] == "right"]
        rows.append([
            family, str(len(programs)), str(len(ratios)), f"{statistics.median(ratios):.2f}", f"{max(ratios):.2f}",
            str(sum(r > SLOW for r in ratios)),
        ])  # fmt: skip
        if other:
            both = larger.get(family)
            rows[-1] += [str(len(both)), f"{statistics.median(both):.2f}"] if both else ["0", ""]
    head = ["family", "programs", "right", "median ratio", "worst", f"above {SLOW}"]
    yield from table(head + (["on both cards", "median of the larger ratio"] if other else []), rows)
    if other:
        yield from compared(record, other)
    for program in programs_of(record):
        if program["status"] != "right":
            name = f"{program['family']} {program['seed']}"
            yield f"- Wrong: {name}, {program['message']}{known.get(name, '')}"
    slow = sorted(
        (p for p in programs_of(record) if p["status"] == "right" and p["ratio"] > SLOW), key=lambda p: -p["ratio"]
    )
    listed = ", ".join(f"{p['family']} {p['seed']} ({p['ratio']:.2f})" for p in slow)
    yield f"- Losses: {listed or 'none'}.\n"


def compared(record: Json, other: Json) -> Iterator[str]:
    """How far the host is in the times, as the other card shows."""
    both = on_both(record, other)
    longer = sum(here["compiled_us"] > LONGER * there["compiled_us"] for here, there in both)
    generated = sum(here["generated_us"] > LONGER * there["generated_us"] for here, there in both)
    most = max(statistics.median(ratios) for ratios in larger_ratios(record, other).values())
    yield (
        f"Small programs' ratios are too good here. Other programs were compiled on the host meanwhile, and where a "
        f"call takes the host longer than what hides it, the host is in its time: of {len(both)} programs that ran on "
        f"{other['device']} too, torch.compile took more than {LONGER} times as long here for {longer}, what was "
        f"generated for {generated}. So the last column takes the larger of a program's two ratios: no family's median "
        f"of it is above {most:.2f}.\n"
    )
