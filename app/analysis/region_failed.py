"""A part that fails is a part without its result: what a trace's report says of a region, or of all, that did."""

from __future__ import annotations

from collections.abc import Sequence

from app.objects.common import Note
from app.objects.region import RegionBody
from profiler.child.limits import MIB, Limits
from profiler.child.pool import Failure

REGION, REGIONS = "region-failed", "regions-failed"
MOST = 10
"""Regions that have a note of their own among the trace's; the others share one."""

DEFECT = "this is a defect of Tritonworthy: report it with {what}; the log has the traceback"


def in_words(fault: Exception) -> str:
    """What happened, in one line of at most 200 characters."""
    if isinstance(fault, MemoryError):
        return "memory ran out"
    lines = str(fault).strip().splitlines()
    said = f"{type(fault).__name__}: {lines[0]}" if lines else type(fault).__name__
    return f"an unexpected error ({said})"[:200]


def of_region(name: str, fault: Exception) -> Note:
    """The note of a region without advice."""
    if isinstance(fault, MemoryError):
        remedy = "advise on its text by itself, or with smaller sizes"
    else:
        remedy = DEFECT.format(what="the region's text")
    return {
        "code": REGION,
        "level": "warning",
        "message": f"{name[:120]} has no advice: {in_words(fault)}. The other regions are not concerned.",
        "remedy": remedy,
    }


def of_limit(name: str, why: Failure, limits: Limits) -> Note:
    """The note of a region whose process was killed at a limit, or died."""
    most = f"{limits.memory_bytes / MIB:,.0f} MiB of memory" if limits.memory_bytes else "memory than there is"
    words = {
        Failure.TIMEOUT: f"it took longer than {limits.timeout_s:g} s",
        Failure.CPU: f"it took more than {limits.cpu_s or 0:g} s of processor time",
        Failure.MEMORY: f"it needed more {'than ' if limits.memory_bytes else ''}{most}",
        Failure.KILLED: "the system killed the process that worked on it, twice",
    }.get(why, "the process that worked on it crashed")
    return {
        "code": REGION,
        "level": "warning",
        "message": f"{name[:120]} has no advice: {words}. The other regions are not concerned.",
        "remedy": "advise on its text by itself, or with smaller sizes",
    }


def of_all(fault: Exception) -> Note:
    """The note of a trace that could not be cut into regions."""
    return {
        "code": REGIONS,
        "level": "error",
        "message": f"The step could not be cut into regions: {in_words(fault)}. What does not need them is here.",
        "remedy": DEFECT.format(what="the trace"),
    }


def among(regions: Sequence[RegionBody]) -> list[Note]:
    """The notes of a trace's regions, the first MOST and one for the rest."""
    notes = [note for region in regions for note in region.get("notes") or () if note["code"] == REGION]
    if len(notes) <= MOST:
        return notes
    rest: Note = {**notes[MOST], "message": f"{len(notes) - MOST} more regions have no advice; their pages say why."}
    return [*notes[:MOST], rest]
