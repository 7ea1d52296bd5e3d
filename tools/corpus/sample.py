"""Which of the programs that traces gave are kept: by rule, so that no structure dominates."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from profiler.region.model import RegionError
from tools.corpus.admission import Admitted, admit
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
    """At most `count`: of each structure MAX_OF_STRUCTURE sizes, of each family about as the root of its programs.

    All choices go by a hash of the seed and the program, so the same programs give the same sample.
    """
    kept: list[Sampled] = []
    structures: Counter[str] = Counter()
    for program in _by_share(programs):
        if len(kept) == count:
            break
        structure = structure_of(program.text)
        if structures[structure] == MAX_OF_STRUCTURE:
            continue
        try:
            admitted = admit(program.text)
        except RegionError:
            continue
        if admitted is not None:
            structures[structure] += 1
            kept.append(Sampled(program, admitted))
    return kept


def _by_share(programs: Sequence[MinedProgram]) -> Iterator[MinedProgram]:
    """In the order in which families take turns: the n-th program of a family of N comes at n / sqrt(N)."""
    families: dict[str, list[MinedProgram]] = defaultdict(list)
    by_structure: dict[str, Family | None] = {}
    for program in sorted(programs, key=lambda p: _hash(p.text)):
        structure = structure_of(program.text)
        if structure not in by_structure:
            by_structure[structure] = _family(program.text)
        family = by_structure[structure]
        if family is not None:
            families[family.name].append(program)
    turns = [
        ((place + 1) / math.sqrt(len(members)), _hash(name), place, program)
        for name, members in families.items()
        for place, program in enumerate(members)
    ]
    return (program for *_, program in sorted(turns, key=lambda turn: turn[:3]))


def _family(text: str) -> Family | None:
    try:
        return family_of(text)
    except RegionError:
        return None


def _hash(text: str) -> str:
    return hashlib.sha256(f"{SEED} {text}".encode()).hexdigest()
