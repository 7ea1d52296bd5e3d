from __future__ import annotations

import pytest

from app.estimate.irregularity import WEIGHTS, irregularity
from profiler.region.language.text import parse
from profiler.region.model import Binding, Workload


def score(text: str, *bindings: Binding):
    return irregularity(parse(text), Workload(bindings or (Binding(),)))


FIXED = "x: bf16[64, 4096]\ny = gelu(x)\nreturn y\n"
VARYING = "N: sizes[37, 911, 2048, 4000]\nx: bf16[N, 4096]\ny = gelu(x)\nreturn y\n"


def part(found, name: str):
    return next(p for p in found.parts if p.name == name)


def test_one_aligned_shape_is_regular():
    assert score(FIXED).score == 0.0


def test_distinct_shapes_and_their_spread_count():
    found = score(VARYING)
    assert part(found, "shapes").score == pytest.approx(2 / 3)  # log2(4) / 3
    assert part(found, "spread").score == pytest.approx(1.0)  # 4000 / 37 is beyond 64
    assert found.score > 0.34


def test_bindings_in_use_replace_those_of_the_text():
    one = Binding((("N", 2048),), 10.0)
    assert part(score(VARYING, one), "shapes").score == 0.0


def test_rows_that_miss_16_bytes():
    found = score("x: bf16[64, 50257]\ny = gelu(x)\nreturn y\n")
    assert part(found, "alignment").score == pytest.approx(1.0)
    assert part(score("x: f32[64, 1000]\ny = gelu(x)\nreturn y\n"), "alignment").score == pytest.approx(0.15)


def test_jagged_rows_are_the_most_ragged():
    jagged = "v: f32[128, 64]\noff: i64[9].offsets(128)\ny = v * 2.0\nn = off[1:] - off[:-1]\nreturn y, n\n"
    assert part(score(jagged), "ragged").score == 1.0
    assert score(jagged).score >= 0.5
    by_value = "x: f32[8, 64]\ni: i64[4].below(8)\ny = x.index_add(0, i, x[:4])\nreturn y\n"
    assert part(score(by_value), "ragged").score == 0.7


def test_every_part_is_shown_and_weights_add_up():
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)
    assert [p.name for p in score(FIXED).parts] == list(WEIGHTS)
    assert all(p.because for p in score(FIXED).parts)
