"""Which of the programs that traces gave are kept: by rule, so that no structure dominates."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profiler.region.model import RegionError
from tools.corpus.admission import Admitted, admit
from tools.corpus.dtypes import SHARES
from tools.corpus.families import Family, family_of
from tools.corpus.fingerprints import structure_of
from tools.corpus.mined import MinedProgram

SEED = 2311
MAX_OF_STRUCTURE = 3


@dataclass(frozen=True, slots=True)
class Sampled:
    """A program that was kept, with what the product counts of it."""

    program: MinedProgram
    admitted: Admitted


def sample(programs: Sequence[MinedProgram], count: int) -> list[Sampled]:
    """At most `count`: one of each family, then of each about as the root of its programs; each time of the dtype that
    is shortest of its share. Of a structure at most MAX_OF_STRUCTURE sizes.

    All choices go by a hash of the seed and the program, so the same programs give the same sample.
    """
    kept: list[Sampled] = []
    structures: Counter[str] = Counter()
    dtypes: Counter[str] = Counter()
    families = _by_family(programs)
    for name in _turns({name: len(members) for name, members in families.items()}):
        if len(kept) == count:
            break
        members = families[name]
        while members:
            members.sort(key=lambda p: (dtypes[p.dtype] - SHARES.get(p.dtype, 0.0) * len(kept), _hash(p.text)))
            program = members.pop(0)
            structure = structure_of(program.text)
            admitted = None if structures[structure] == MAX_OF_STRUCTURE else _admitted(program.text)
            if admitted is not None:
                structures[structure] += 1
                dtypes[program.dtype] += 1
                kept.append(Sampled(program, admitted))
                break
    return kept


def _turns(sizes: Mapping[str, int]) -> list[str]:
    """Names of families in the order in which they give a program: all once, then the n-th of N at n / sqrt(N)."""
    turns = [
        (0.0 if place == 0 else (place + 1) / math.sqrt(size), _hash(name), name)
        for name, size in sizes.items()
        for place in range(size)
    ]
    return [name for *_, name in sorted(turns)]


def _by_family(programs: Sequence[MinedProgram]) -> dict[str, list[MinedProgram]]:
    """Family -> its programs; each structure's family is worked out once."""
    families: dict[str, list[MinedProgram]] = defaultdict(list)
    of_structure: dict[str, Family | None] = {}
    for program in programs:
        structure = structure_of(program.text)
        if structure not in of_structure:
            of_structure[structure] = _family(program.text)
        family = of_structure[structure]
        if family is not None:
            families[family.name].append(program)
    return families


def _admitted(text: str) -> Admitted | None:
    try:
        return admit(text)
    except RegionError:
        return None


def _family(text: str) -> Family | None:
    try:
        return family_of(text)
    except RegionError:
        return None


def _hash(text: str) -> str:
    return hashlib.sha256(f"{SEED} {text}".encode()).hexdigest()
