"""Random regions: the same for the same seed, with the shapes that arithmetic trips over; many of them are taken."""

from __future__ import annotations

from collections import Counter

import pytest

from profiler.region.graph import lower
from profiler.region.model import RegionError
from profiler.region.program import program
from profiler.region.text import parse
from tests.fuzz import region_texts
from tools import fuzz_regions


def test_a_seed_draws_the_same_texts_again() -> None:
    assert list(fuzz_regions.drawn(3, 20, 20)) == list(fuzz_regions.drawn(3, 20, 20))
    assert set(fuzz_regions.drawn(3, 20, 20)).isdisjoint(fuzz_regions.drawn(4, 20, 20))


def test_texts_have_scalars_sizes_of_nothing_strides_of_zero_and_gradients() -> None:
    texts = [text for _, text in fuzz_regions.drawn(0, 200, 0)]
    for part in ("[()]", "[0", ", 0", ".strides(0", ".requires_grad", "bool[", "i64[", "f8e", "dim="):
        assert any(part in text for text in texts), part
    taken = Counter(_kind(text) for text in texts)
    assert taken["taken"] > 30 and taken["refused"] > 30
    assert not taken["unreadable"]


@pytest.mark.parametrize("name", ["text", "call"])
def test_texts_drawn_are_lowered_or_refused(name: str) -> None:
    for i in range(60):
        text = getattr(region_texts, name)(f"tests {i}")
        try:
            lower(parse(text))
        except RegionError as fault:
            assert fault.line >= 1 and fault.message, text


def test_a_text_without_an_answer_is_told_and_its_child_killed() -> None:
    """The runner, with texts of its own: a child that does not answer is killed, and the rest goes on."""
    good = "x: f32[8]\nreturn x + 1\n"
    limits = fuzz_regions.Limits(wall_s=60.0, memory_bytes=6 * 2**30)
    counts: Counter[str] = Counter()
    items = [("good", good), ("no region", "x"), ("good again", good)]
    assert not list(fuzz_regions.run(iter(items), 1, limits, counts))
    assert counts == {"answered": 2, "refused": 1}
    hurried = fuzz_regions.Limits(wall_s=0.0, memory_bytes=6 * 2**30)
    long = "x: f32[8]\nfor i in range(700):\n    x = gelu(x)\nreturn x\n"
    (failure,) = fuzz_regions.run(iter([("long", long)]), 1, hurried, counts)
    assert (failure.name, failure.text, failure.why) == ("long", long, "no answer in 0 s")


def _kind(text: str) -> str:
    try:
        region = parse(text)
    except RegionError:
        return "unreadable"
    try:
        program(region)
    except RegionError:
        return "refused"
    return "taken"
