"""The sample goes by rule: the order of the programs does not matter, and no structure or family dominates."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from app.archive.program_fingerprint import fingerprint
from tools.corpus.mined import MinedProgram, Source
from tools.corpus.sample import MAX_OF_STRUCTURE, sample

SOURCE = Source("model", "timm", "Model_0", "infer", "f32", "a GPU", 10.0, 1.0)
LINES = ("relu(x)", "x.sum(-1)", "softmax(x, -1)", "cumsum(x, 0)", "x.t() @ x")


def programs() -> list[MinedProgram]:
    texts = [f"x: f32[{n}, 512]\nreturn {line}\n" for line in LINES for n in range(1024, 1044)]
    texts += [f"x: f32[{n}, 512]\nreturn relu(x) + {k}.0\n" for k in range(30) for n in (2048, 4096)]
    return [MinedProgram(t, "pointwise", SOURCE, frozenset({"model"})) for t in texts]


def test_the_same_programs_in_another_order_give_the_same_sample() -> None:
    given = programs()
    first = sample(given, 20)
    random.Random(1).shuffle(given)
    assert sample(given, 20) == first
    assert len(first) == 20


def test_no_structure_has_more_than_its_sizes_and_every_family_its_turn() -> None:
    kept = sample(programs(), 30)
    structures = Counter(fingerprint(s.program.text, "other-sizes") for s in kept)
    assert max(structures.values()) == MAX_OF_STRUCTURE
    families = Counter(s.admitted.family.label for s in kept)
    assert set(families) == {"pointwise", "reduction", "norm", "scan", "matmul"}
    assert families["pointwise"] > families["norm"]


@pytest.mark.parametrize(
    "text", ["x: f32[2, 2]\nreturn relu(x)\n", "x: f32[512, 512]\nreturn x.t()\n", "x: f32[4, 4]\nreturn y\n"]
)
def test_what_is_not_admitted_takes_no_place(text: str) -> None:
    small = [MinedProgram(text, "pointwise", SOURCE, frozenset({"model"}))]
    assert sample(small, 5) == []
