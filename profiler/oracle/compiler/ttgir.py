"""TTGIR, Triton's GPU dialect: the tiles that a pipelined loop keeps in shared memory, and specialised warps."""

from __future__ import annotations

import re

from profiler.oracle.compiler.machine import Buffer

_ALLOC = re.compile(
    r"^\s*(%[\w#]+) = ttg\.local_alloc\s*:\s*\(\) -> !ttg\.memdesc<((?:\d+x)+)(\w+),.*loc\((#loc\w*)\)\s*$",
    re.MULTILINE,
)
_INDEXED = re.compile(r"ttg\.memdesc_(?:index|subview) (%[\w#]+)\[")
_SPECIALIZED = re.compile(r"ttg\.warp_specialize\(([^)]*)\)")
_LOC = re.compile(r"^(#loc\w*) = loc\((.*)\)\s*$", re.MULTILINE)
_CALLSITE = re.compile(r"^callsite\((#loc\w*) at (#loc\w*)\)$")
_NAMED = re.compile(r'^"[^"]*"\((#loc\w*)\)$')
_PLACE = re.compile(r'^"[^"]*":(\d+):\d+')
BARRIER_TYPE = "i64"  # barrier objects are kept in shared memory too


def buffers(text: str) -> tuple[Buffer, ...]:
    """Tiles in shared memory of which a loop takes one at a time by index: the buffers of a software pipeline.

    The first extent of such an allocation is the number of copies; one is enough where the next tile waits in registers
    or is fetched while this one is multiplied.
    """
    places = dict(_LOC.findall(text))
    indexed = set(_INDEXED.findall(text))
    for operands in _SPECIALIZED.findall(text):  # the warps get their own names for what they share
        indexed |= {name.strip() for name in operands.split(",")}
    pipelined = []
    for name, extents, dtype, place in _ALLOC.findall(text):
        copies, *shape = (int(e) for e in extents.rstrip("x").split("x"))
        if shape and dtype != BARRIER_TYPE and name in indexed:
            pipelined.append(Buffer(copies, tuple(shape), dtype, line_of(place, places)))
    return tuple(pipelined)


def line_of(place: str, places: dict[str, str], depth: int = 20) -> int:
    """Line of the outermost caller that an MLIR location names, 0 where it names none."""
    text = places.get(place, "")
    if (site := _CALLSITE.match(text)) and depth:
        return line_of(site.group(2), places, depth - 1) or line_of(site.group(1), places, depth - 1)
    if (alias := _NAMED.match(text)) and depth:
        return line_of(alias.group(1), places, depth - 1)
    return int(match.group(1)) if (match := _PLACE.match(text)) else 0


def warp_specialized(text: str) -> bool:
    """Whether the compiler gave warps different work."""
    return "ttg.warp_specialize" in text
