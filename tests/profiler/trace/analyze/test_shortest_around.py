"""The shortest span around a time, against a look at every span."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler.trace.analyze.shortest_around import ShortestAround
from profiler.trace.model import NONE

Spans = list[tuple[int, int, int]]
SPANS: st.SearchStrategy[Spans] = st.lists(
    st.tuples(st.integers(0, 40), st.integers(-2, 30), st.integers(0, 3)), max_size=30
)
"""(start, length, rank); ends before the start, as clocks that are set back record them, hold no time."""


def swept(spans: Spans) -> ShortestAround:
    table = np.array(spans, np.int64).reshape(-1, 3)
    return ShortestAround(table[:, 0].astype(float), (table[:, 0] + table[:, 1]).astype(float), table[:, 2])


def plain(spans: Spans, at_us: float) -> int:
    around = [(length, rank, i) for i, (s, length, rank) in enumerate(spans) if s <= at_us < s + length]
    return min(around, default=(0, 0, NONE))[2]


@given(SPANS)
def test_each_time_has_the_span_that_a_look_at_all_of_them_gives(spans: Spans) -> None:
    around = swept(spans)
    for at_us in np.arange(-1.0, 75.0, 0.5).tolist():
        assert around.at(at_us) == plain(spans, at_us), at_us


def test_a_span_around_all_others_does_not_have_each_question_look_at_them() -> None:
    count = 20_000
    around = swept([(0, 4 * count, 0), *((4 * i, 2, 1) for i in range(count))])
    assert [around.at(4.0 * i + 1.0) for i in range(count)] == list(range(1, count + 1))
    assert {around.at(4.0 * i + 3.0) for i in range(count)} == {0}
