"""Families divided among processes: every program belongs to one of them, and each family keeps its weight."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import pytest

from kernels.calibrate.programs import EAGER, FUSED
from kernels.calibrate.shares import Share, divide, programs

FAMILIES = {name: float(share) for name, (_, share) in (EAGER | FUSED).items()}


@pytest.mark.parametrize("count", [1, 2, 8, 13])
def test_each_process_has_the_same_weight_and_no_weight_is_lost(count: int) -> None:
    divided = divide(FAMILIES, count)
    each = sum(FAMILIES.values()) / count
    assert [sum(s.weight for s in shares) for shares in divided] == pytest.approx([each] * count)
    weights: Counter[str] = Counter()
    for share in itertools.chain(*divided):
        weights[share.family] += share.weight  # type: ignore[assignment]
    assert dict(weights) == pytest.approx(FAMILIES)


@pytest.mark.parametrize("count", [1, 2, 8, 13])
def test_no_program_is_drawn_by_two_processes_and_none_is_left_out(count: int) -> None:
    numbers: dict[str, list[int]] = defaultdict(list)
    for share in itertools.chain(*divide(FAMILIES, count)):
        numbers[share.family] += range(share.first, 60 * share.step, share.step)
    for drawn in numbers.values():
        assert sorted(drawn)[:60] == list(range(60))


def test_a_family_stays_with_few_processes() -> None:
    """A family whose programs end their process again and again disturbs no other than these."""
    processes = Counter(share.family for share in itertools.chain(*divide(FAMILIES, 16)))
    assert all(n <= 2 + FAMILIES[family] / (sum(FAMILIES.values()) / 16) for family, n in processes.items())


def endless(family: str) -> int | None:
    """No family ends."""
    return None


def test_a_family_that_ends_leaves_its_place_to_the_others() -> None:
    shares = (Share("norm", 1.0), Share("model_operation", 3.0, 1, 2))
    drawn = list(itertools.islice(programs(shares, lambda family: 6 if family == "model_operation" else None), 50))
    assert [n for family, n in drawn if family == "model_operation"] == [1, 3, 5]
    assert sum(family == "norm" for family, _ in drawn) == 47
    assert list(programs(shares[1:], lambda family: 6)) == [("model_operation", n) for n in (1, 3, 5)]


def test_programs_come_by_their_weights_and_the_same_each_time() -> None:
    shares = (Share("norm", 3.0), Share("copy", 1.0, 2, 5))
    drawn = list(itertools.islice(programs(shares, endless), 4000))
    assert drawn == list(itertools.islice(programs(shares, endless), 4000))
    assert sum(family == "norm" for family, _ in drawn) == pytest.approx(3000, abs=120)
    assert [n for family, n in drawn if family == "copy"][:3] == [2, 7, 12]
    assert len(set(drawn)) == 4000
