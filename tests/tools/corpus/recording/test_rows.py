"""The table of what is recorded: wide by structure, in practice's dtypes, and in an order that favours nothing."""

from __future__ import annotations

from collections import Counter

from tools.corpus.recording.made import DTYPES
from tools.corpus.recording.makers import MAKERS
from tools.corpus.recording.rows import ROWS, in_order

OPTIMIZERS = {"adamw", "adamw_fused", "sgd", "lion"}


def test_every_row_has_its_own_name_a_maker_and_a_known_use() -> None:
    assert len({r.name for r in ROWS}) == len(ROWS) >= 90
    for row in ROWS:
        assert row.maker in MAKERS, row.name
        assert row.mode in ("infer", "decode", "train"), row.name
        assert row.dtype in DTYPES, row.name
        assert row.attention in ("eager", "sdpa", ""), row.name
        assert row.optimizer in OPTIMIZERS, row.name


def test_rows_are_of_every_library_both_uses_and_both_forms_of_attention() -> None:
    makers = Counter(r.maker for r in ROWS)
    assert min(makers[m] for m in ("transformers", "torchvision", "timm", "graph")) >= 10
    assert len(MAKERS) - 4 <= sum(
        n for m, n in makers.items() if m not in ("transformers", "torchvision", "timm", "graph")
    )
    assert 0.35 <= sum(r.mode == "train" for r in ROWS) / len(ROWS) <= 0.6
    attention = Counter(r.attention for r in ROWS)
    assert min(attention["eager"], attention["sdpa"]) >= 20
    assert {r.optimizer for r in ROWS if r.mode == "train"} == OPTIMIZERS


def test_the_order_is_of_the_names_alone() -> None:
    order = in_order(ROWS)
    assert in_order(ROWS[::-1]) == order != list(ROWS)
    first_half = Counter(r.maker for r in order[: len(order) // 2])
    assert first_half["transformers"] <= 0.65 * len(order) / 2
