"""Embedding bags of a recommender find FBGEMM's table batch, as something to install, never as the advice."""

from __future__ import annotations

import pytest

from app.advice.model import Advice
from app.analysis.analyze import AdviceContext, decide, prepare
from profiler.hardware import find_device
from profiler.region.language.text import parse
from profiler.region.model import Binding, Workload
from tests.kernels.libraries.hosts import BARE_H200

BAG = "w: f32[100000, 64]{g}\ni: i64[4096, 32].below(100000)\nreturn F.embedding_bag(i, w, mode='{mode}')\n"
THREE = """a: f32[100000, 64].requires_grad
b: f32[100000, 64].requires_grad
c: f32[100000, 64].requires_grad
i: i64[4096, 32].below(100000)
x = F.embedding_bag(i, a, mode='sum')
y = F.embedding_bag(i, b, mode='sum')
return torch.cat([x, y, F.embedding_bag(i, c, mode='sum')], 1)
"""


def advised(text: str, calls: float) -> Advice:
    device = find_device("H200")
    assert device is not None
    workload = Workload((Binding((), calls),), 10_000.0, 0.2)
    return decide(prepare(parse(text), workload, device, AdviceContext(host=BARE_H200))).advice


@pytest.mark.parametrize(
    ("text", "calls"),
    [(BAG.format(g="", mode="sum"), 26.0), (BAG.format(g=".requires_grad", mode="mean"), 8.0), (THREE, 1.0)],
    ids=["one table after another", "in training", "three in one region"],
)
def test_bags_of_several_tables_are_told_of_the_table_batch_and_how_to_get_it(text: str, calls: float) -> None:
    advice = advised(text, calls)
    note = next(n for n in advice.notes if "table-batched" in n)
    assert "fbgemm" in note and "worth installing to try" in note
    assert "fbgemm" not in f"{advice.headline} {advice.action} {advice.mode}"


@pytest.mark.parametrize(("mode", "calls"), [("sum", 1.0), ("max", 26.0)], ids=["one table", "a maximum"])
def test_one_table_and_what_the_table_batch_does_not_compute_are_not(mode: str, calls: float) -> None:
    assert not any("table-batched" in n for n in advised(BAG.format(g="", mode=mode), calls).notes)
