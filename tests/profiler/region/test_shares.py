"""Which share of mining is told to be done while it runs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from profiler.region.mining import mine as mining
from profiler.region.shares import INFERRED, PARTED, STEPS
from tests.profiler.trace.files import SMALL, real


def test_mining_is_done_only_once_its_texts_are_written_and_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    at_texts: list[float] = []
    write = mining.write

    def timed(part: mining.Part, bound: object) -> mining.Text:
        at_texts.append(told[-1])
        return write(part, bound)  # type: ignore[arg-type]

    monkeypatch.setattr(mining, "write", timed)
    trace = real(SMALL)
    mining.mine(trace, trace.steps[-1], on_share=told.append)
    assert told == sorted(told)
    assert told[0] == pytest.approx(PARTED * STEPS)
    assert told[-1] == 1.0
    assert at_texts
    assert all(INFERRED * STEPS <= share < STEPS for share in at_texts)
    assert max(after - before for before, after in pairwise(told)) < 0.1


def test_each_of_several_steps_is_an_equal_part() -> None:
    told: list[float] = []
    trace = real(SMALL)
    steps = len(mining.mine(trace, on_share=told.append).steps)
    assert steps == 2
    assert told == sorted(told)
    assert told[0] == pytest.approx(PARTED * STEPS / 2)
    assert any(share == pytest.approx(STEPS / 2 * (1 + PARTED)) for share in told)
