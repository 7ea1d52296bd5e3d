"""Random regions: the same for the same seed, with the shapes that arithmetic trips over; many of them are taken."""

from __future__ import annotations

from collections import Counter

import pytest

from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import RegionError
from tests.fuzz import region_texts
from tools.fuzz import fuzz_regions


def test_a_seed_draws_the_same_texts_again() -> None:
    assert list(fuzz_regions.draw_texts(3, 20, 20)) == list(fuzz_regions.draw_texts(3, 20, 20))
    assert set(fuzz_regions.draw_texts(3, 20, 20)).isdisjoint(fuzz_regions.draw_texts(4, 20, 20))


def test_texts_have_scalars_sizes_of_nothing_strides_of_zero_and_gradients() -> None:
    texts = [text for _, text in fuzz_regions.draw_texts(0, 200, 0)]
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


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"{}", "answered"),
        (422, b'{"code": "region-shape"}', "refused"),
        (422, b'{"code": "advice-limit"}', "limit met"),
        (503, b'{"code": "advice-timeout"}', "limit met"),
        (422, b'{"code": "advice-crashed"}', "422 advice-crashed"),
        (503, b'{"code": "advice-killed"}', "503 advice-killed"),
        (500, b'{"code": "internal"}', "500 internal"),
        (500, b"Internal Server Error", "500 without a problem: b'Internal Server Error'"),
    ],
)
def test_a_servers_answer_that_is_no_answer_is_told(status: int, body: bytes, said: str) -> None:
    assert fuzz_regions.judge_response(status, body) == said


def test_a_declared_input_of_a_mutation_has_any_rank_sizes_of_nothing_and_strides_of_zero() -> None:
    from random import Random

    from tests.fuzz.mutate import _type

    types = [_type(Random(seed)) for seed in range(300)]
    for part in ("[()]", "[0", ".strides(0", ".requires_grad"):
        assert any(part in one for one in types), part
    read = [_kind(f"x: {one}\nreturn x\n") for one in types]
    assert read.count("unreadable") < 100  # integers with a gradient


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
