"""Random calls of an operation differ in every size, also where a case has them in a tuple."""

from __future__ import annotations

import random

import pytest

from kernels.operations import operation
from tools.gpu.check_kernels import vary


@pytest.mark.parametrize(
    ("name", "size"),
    [("group_norm_silu", "shape"), ("batch_norm_activation", "shape"), ("max_pool", "shape"), ("adamw_many", "sizes")],
)
def test_shapes_and_lists_of_sizes_vary_in_every_entry(name: str, size: str) -> None:
    op, dice = operation(name), random.Random(7)
    first = op.checks[0]
    seen = [vary(op, first, dice)[size] for _ in range(60)]
    assert all(len(found) == len(first[size]) and min(found) >= 0 for found in seen)
    for place, value in enumerate(first[size]):
        assert len({found[place] for found in seen}) > 1 or value < 2


def test_what_others_depend_on_stays() -> None:
    op, dice = operation("group_norm_silu"), random.Random(7)
    assert {vary(op, op.checks[0], dice)["groups"] for _ in range(20)} == {op.checks[0]["groups"]}
