"""No generated reduction of `tools.fuzz.row_shapes` leaves most processors idle, or reads elements that lie apart.

Of every kernel's best configuration, without a GPU: how many programs run, and which share of the sectors that a
program's first tile touches are bytes that it wants.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from kernels.codegen import pieces
from kernels.codegen.generated import generate
from kernels.codegen.plan import Plan
from kernels.codegen.text.source import Source
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.model import ITEMSIZE
from tools.fuzz.row_shapes import CASES

SECTOR_BYTES = 32
PROCESSORS = 132
LARGE_BYTES = 8 << 20
"""Of a kernel's reads and writes, from which on it has to fill the device."""
HALF = 0.48


def kernels_of(text: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Plan, Source]]:
    """The plans of a region's kernels, each with its text."""
    made: list[tuple[Plan, Source]] = []
    write = pieces.files.write

    def kept(plan: Plan, *rest: Any) -> Source:
        source = write(plan, *rest)
        made.append((plan, source))
        return source

    monkeypatch.setattr(pieces.files, "write", kept)
    used = {source.text for source in generate(lower(parse(text))).sources}
    monkeypatch.undo()
    return (pair for pair in made if pair[1].text in used)


def tile(plan: Plan, source: Source, constants: Mapping[str, int]) -> tuple[int, np.ndarray[Any, Any]]:
    """How many programs there are, and the places in the domain of the first tile of the middle one."""
    sizes, rows, width = plan.domain.sizes, plan.domain.rows, plan.domain.width
    if source.form == "flat":
        programs = -(-rows * width // constants["BLOCK"])
        return programs, span(programs // 2, constants["BLOCK"], rows * width)
    if source.form == "tile":
        columns = sizes[-1]
        down, across = constants["BLOCK_M"], constants["BLOCK_N"]
        high, wide = -(-rows * width // columns // down), -(-columns // across)
        lines, places = span(high // 2, down, rows * width // columns), span(wide // 2, across, columns)
        return high * wide, (lines[:, None] * columns + places).ravel()
    count = constants.get("ROWS", 1)
    places = np.arange(min(width, constants.get("BLOCK", width)))
    if "inner = " in source.text:  # programs keep to the neighbours of one outer row
        neighbours = plan.domain.sizes[plan.domain.first_column - 1]
        parts = -(-neighbours // count)
        programs = rows // neighbours * parts
        outer, part = divmod(programs // 2, parts)
        lines = outer * neighbours + span(part, count, neighbours)
    else:
        programs = -(-rows // count)
        lines = span(programs // 2, count, rows)
    return programs, (lines[:, None] * width + places).ravel()


def span(number: int, count: int, most: int) -> np.ndarray[Any, Any]:
    """Numbers of the elements of one block."""
    return np.arange(number * count, min(most, (number + 1) * count))


def addresses(plan: Plan, where: Any, places: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which elements of a tensor a tile touches."""
    reached = np.full(places.shape, where.offset, dtype=np.int64)
    steps = dict(where.terms)
    for dim in reversed(range(len(plan.domain.sizes))):
        places, at = np.divmod(places, plan.domain.sizes[dim])
        reached += at * steps.get(dim, 0)
    return np.unique(reached)


def judged(plan: Plan, source: Source) -> tuple[int, float, float]:
    """Bytes read and written; of the best configuration the programs, and the share of sectors that is used."""
    touched = [(v.where, plan.operands[v.operand].dtype) for v in plan.values if v.kind == "load"]
    touched += [(s.where, s.dtype) for s in plan.stores if not s.how]
    sized = [(w, ITEMSIZE[t], math.prod(plan.domain.sizes[d] for d, _ in w.terms)) for w, t in touched]
    large = [(w, size, count) for w, size, count in sized if size * count >= 1 << 20]
    total = sum(size * count for _, size, count in large)
    best = (0, 0.0)
    for constants, _ in source.constants:
        programs, places = tile(plan, source, dict(constants))
        moved = 0.0
        for where, size, count in large:
            reached = addresses(plan, where, places)
            sectors = len(np.unique(reached * size // SECTOR_BYTES)) * SECTOR_BYTES
            moved += size * count * sectors / (len(reached) * size)
        best = max(best, (min(programs, PROCESSORS), total / moved if moved else 1.0))
    return total, *best


def test_as_many_programs_are_counted_as_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 outer rows of 33 neighbours: two programs of 32 rows each, of which the second has one row."""
    counted = {}
    for plan, source in kernels_of("x: f32[32, 64, 33]\nreturn softmax(x, 1)\n", monkeypatch):
        (grid,) = set(re.findall(r"lambda meta: \((.*),\)\]", source.text))
        assert grid == "32 * triton.cdiv(33, meta['ROWS'])"
        for constants, _ in source.constants:
            programs, places = tile(plan, source, dict(constants))
            height = dict(constants)["ROWS"]
            assert programs == 32 * -(-33 // height)
            outer = np.unique(places // plan.domain.width // 33)
            assert len(outer) == 1
            counted[height] = programs
    assert counted[32] == 64 and counted[64] == 32


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_large_reduction_fills_the_device_and_reads_whole_sectors(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for plan, source in kernels_of(CASES[number].program("large"), monkeypatch):
        if source.form not in ("flat", "tile", "rows", "loop"):
            continue
        total, programs, used = judged(plan, source)
        if total >= LARGE_BYTES:
            assert programs >= 120, (source.kernel, plan.domain)
            assert used >= HALF, (source.kernel, plan.domain)
