"""Every variant of kernels whose first one alone would run here: the interpreter times none, and takes the first."""

from __future__ import annotations

import pytest

from kernels.agreement import disagreement
from kernels.operations import operation
from kernels.spec import Case, Maker, case
from kernels.tuning import forced, watched

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of lanes that are masked


def _case(dtype: str, **sizes: object) -> Case:
    return Case(dtype, tuple(sizes.items()))


VARIED: tuple[tuple[str, Case, frozenset[str]], ...] = (
    ("group_norm_silu", _case("f32", shape=(2, 6, 7, 5), groups=3), frozenset({"group_held", "group_flat"})),
    ("group_norm_silu", _case("f32", shape=(1, 4, 20, 500), groups=2, mean=20.0), frozenset({"group_spans"})),
    ("group_norm_silu", _case("f32", shape=(1, 6, 90, 80), groups=3, mean=50.0, last=True), frozenset({"lines_spans"})),
    ("group_norm_silu", _case("bf16", shape=(1, 20, 70, 9), groups=2, last=True), frozenset({"lines_spans"})),
    ("batch_norm_activation", _case("f32", shape=(2, 6, 7, 5), residual=True),
     frozenset({"batch_norm_planes", "batch_norm_line"})),
    ("batch_norm_activation", _case("bf16", shape=(3, 40, 9, 4), last=True), frozenset({"batch_norm_line"})),
    ("adamw_many", _case("bf16", sizes=(20000, 7, 0, 8192), master=True), frozenset({"adamw_chunks"})),
    ("embedding_bag", case("f32", rows=9, columns=20, indices=200, bags=3, mode="max"), frozenset({"bag_rows"})),
    ("segment_reduce", case("f32", rows=300, columns=33, segments=9, mode="max"), frozenset({"segment_parts"})),
    ("segment_reduce_backward", case("bf16", rows=300, columns=33, segments=9, mode="max"),
     frozenset({"segment_spread"})),
    ("embedding_bag_backward", case("f32", rows=9, columns=20, indices=90, bags=3, mode="sum", weights=True),
     frozenset({"segment_parts", "table_rows"})),
    ("embedding_bag_backward", case("bf16", rows=40, columns=100, indices=70, bags=3, mode="mean"),
     frozenset({"segment_parts", "table_rows"})),
    # A row of the table with so many samples that it is split.
    ("embedding_bag_backward",
     case("f32", rows=7, columns=130, indices=1600, bags=9, mode="sum", skewed=True, weights=True),
     frozenset({"segment_parts", "table_rows"})),
    ("max_pool", _case("f32", shape=(2, 3, 17, 19), k=3, s=2, p=1), frozenset({"pool_windows"})),
    ("max_pool_backward", _case("f32", shape=(2, 3, 17, 19), k=3, s=2, p=1), frozenset({"pool_patches"})),
    ("max_pool", _case("bf16", shape=(2, 40, 15, 12), k=3, s=2, p=1, last=True), frozenset({"pool_windows"})),
    ("average_pool_backward", _case("f32", shape=(2, 3, 9, 11), k=6, s=2, p=3), frozenset({"pool_visits"})),
    ("top_k_top_p_sample", case("bf16", rows=2, columns=3000, k=20, p=0.9), frozenset({"sample_rows"})),
)  # fmt: skip
"""Operation, case, and kernels that must be among its variants."""


@pytest.mark.parametrize(("name", "tried", "kernels"), VARIED, ids=[f"{n}-{c}" for n, c, _ in VARIED])
def test_every_variant_is_as_exact_as_the_first(name: str, tried: Case, kernels: frozenset[str]) -> None:
    op = operation(name)
    arguments = op.inputs(tried, Maker(seed=0))
    with watched() as picks:
        op.run(*arguments)
    variants = [(pick, variant) for pick in picks for variant in pick.variants]
    assert kernels <= {v.kernel.__name__ for _, v in variants}
    wrong = {}
    for pick, variant in variants:
        with forced(pick, variant):
            wrong[str(variant)] = disagreement(op, op.run(*arguments), arguments)
    assert not {v: fault for v, fault in wrong.items() if fault}
