"""One region, measured on several kinds of GPU: its newest record on each, candidate by candidate. Pure functions.

Times of two devices stand next to each other for reading. What is compared is which candidate wins on which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from app.archive.nearness import near, same_device
from app.archive.schema import timed_candidates
from app.objects.evidence import Candidate
from app.objects.record import ArchiveRecord, MeasuredCandidate, MeasuredDevice
from kernels.measure.outcome import by_wall
from profiler.hardware import find_device


def by_device(text: str, records: Iterable[ArchiveRecord], devices: Sequence[str] = ()) -> list[MeasuredDevice]:
    """The newest record of this region, at its own sizes and layout, on each device, the fastest first.

    records: as the archive has them, in any order. devices: only on these.
    """
    newest: dict[str, ArchiveRecord] = {}
    for record in records:
        device = record["device"]
        if device is None or not _compares(record) or (devices and not any(same_device(d, device) for d in devices)):
            continue
        nearness = near(text, record)
        if nearness is None or nearness.match != "same" or nearness.distance > 0:
            continue
        name = table_name(device)
        if name not in newest or _age(record) > _age(newest[name]):
            newest[name] = record
    return sorted((_item(name, record) for name, record in newest.items()), key=_place)


def table_name(device: str) -> str:
    """A device by its name in the table, where that has it."""
    entry = find_device(device)
    return device if entry is None else entry.name


def candidates(items: Sequence[MeasuredDevice]) -> list[str]:
    """Every candidate that was timed on one of the devices: those of the first device as it lists them, then others."""
    return list(dict.fromkeys(c["name"] for item in items for c in item["candidates"] if c["time_us"]))


TOOLS: Mapping[str | None, str] = {
    "skip": "what runs now",
    "library": "a library call",
    "compile": "torch.compile",
    "triton": "Triton",
    "cuda": "CUDA",
}


def disagreement(items: Sequence[MeasuredDevice]) -> str:
    """In words, whether the advice after measuring is the same on every device, by the rule with its ties; "" for fewer
    than two that have one."""
    told = [(item["device"], TOOLS[item["tool"]]) for item in items if item["tool"] in TOOLS]
    if len(told) < 2:
        return ""
    if len({tool for _, tool in told}) == 1:
        return f"The advice is the same on all {len(told)} kinds of GPU: {told[0][1]}."
    each = "; ".join(f"{tool} on {device}" for device, tool in told)
    return f"The advice differs: {each}. A build for several kinds needs a choice for each."


def _compares(record: ArchiveRecord) -> bool:
    """It timed at least two candidates on a device: one alone says nothing about which is the fastest."""
    return bool(record.get("device")) and len(timed_candidates(record)) > 1


def _age(record: ArchiveRecord) -> tuple[str, str]:
    """Of one day this server's own is the newer: files of the archive, of which only the day is known, came before."""
    return str(record.get("date") or ""), str(record.get("created_at") or "")


def _item(name: str, record: ArchiveRecord) -> MeasuredDevice:
    after = record.get("advice_after")
    return {
        "id": record["id"],
        "device": name,
        "here": bool(record["archived"].get("here")),
        "date": record.get("date") or "",
        "software": record.get("software") or {},
        "outcome": record["outcome"],
        "best": record.get("best"),
        "tool": after["tool"] if after else None,
        "decided_by": str((record.get("conditions") or {}).get("decided_by") or "device time"),
        "candidates": [_candidate(c) for c in record["candidates"]],
    }


def _candidate(candidate: Candidate) -> MeasuredCandidate:
    """What is shown of it; an older record may not tell everything."""
    return {
        "name": candidate["name"],
        "tool": candidate["tool"],
        "status": candidate["status"],
        "time_us": candidate.get("time_us"),
        "wall_us": candidate.get("wall_us"),
        "ratio_to_eager": candidate.get("ratio_to_eager"),
        "ratio_to_best_other": candidate.get("ratio_to_best_other"),
        "share_of_limit": candidate.get("share_of_limit"),
    }


def _place(item: MeasuredDevice) -> tuple[float, str]:
    best = next((c for c in item["candidates"] if c["name"] == item["best"]), None)
    if best is None or best["time_us"] is None:
        return float("inf"), item["device"]
    wall_us = best["wall_us"] or float("inf")
    return (wall_us if by_wall(item["decided_by"]) else best["time_us"]["median"]), item["device"]
