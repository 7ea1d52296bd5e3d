"""Region programs made by rule: seeded compositions of the grammar's blocks, each read and lowered by the product."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from profiler.region.model import RegionError
from tools.corpus.admission import Admitted, admit
from tools.corpus.dtypes import AUTOCAST, SHARES
from tools.corpus.fingerprints import structure_of
from tools.corpus.grammar.dense import attention, convolution, matmul
from tools.corpus.grammar.draft import Block, Draft
from tools.corpus.grammar.rowwise import norm, reduction, scan
from tools.corpus.grammar.sparse import gather_scatter, pointwise

SEED = 2311
MAX_OF_STRUCTURE = 3
MAX_OF_FAMILY = 5
MAX_DRAWS = 4000
"""Of one block: a grammar that is used up ends here with fewer programs than its quota."""

TRAINING = 0.4

QUOTAS: Mapping[str, tuple[Block, int]] = {
    "convolution": (convolution, 50), "matmul": (matmul, 45), "attention": (attention, 32), "norm": (norm, 30),
    "reduction": (reduction, 30), "scan": (scan, 30), "gather_scatter": (gather_scatter, 25),
    "pointwise": (pointwise, 20),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Generated:
    """block and number: of the draw. dtype: of SHARES."""

    block: str
    number: int
    dtype: str
    admitted: Admitted


def drafts(block: str) -> Iterator[tuple[int, str, str]]:
    """(number, dtype, text) of one block, draw after draw; the same in every run."""
    write, _ = QUOTAS[block]
    for number in range(MAX_DRAWS):
        rng = random.Random(f"{SEED} {block} {number}")
        dtype = rng.choices(list(SHARES), list(SHARES.values()))[0]
        training = rng.random() < TRAINING
        stored = "f32" if dtype == AUTOCAST else dtype
        yield number, dtype, write(Draft(rng, stored, dtype == AUTOCAST, training))


def generated_programs(block: str) -> Iterator[Generated]:
    """The quota of one block: at most MAX_OF_STRUCTURE sizes of one structure, MAX_OF_FAMILY programs of a family."""
    structures: Counter[str] = Counter()
    families: Counter[str] = Counter()
    left = QUOTAS[block][1]
    for number, dtype, text in drafts(block):
        if not left:
            return
        structure = structure_of(text)
        if structures[structure] >= MAX_OF_STRUCTURE:
            continue
        try:
            admitted = admit(text)
        except RegionError:  # a composition that does not fit together: another is drawn
            continue
        if admitted is None or families[admitted.family.name] >= MAX_OF_FAMILY:
            continue
        structures[structure] += 1
        families[admitted.family.name] += 1
        left -= 1
        yield Generated(block, number, dtype, admitted)
