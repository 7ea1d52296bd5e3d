"""Random chains of every kind of operation, layout, dtype and axis: right against float64, and few refused."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from kernels.codegen.graph import split
from kernels.codegen.plan import Plan
from kernels.codegen.text import shapes
from profiler.region.graph.lowering import Graph
from tools.gpu import check_generated
from tools.gpu.check_generated import ERROR, REFUSED, RIGHT, WRONG, verdict
from tools.gpu.random_chains import chain, chain_of_seed

# numpy, which interprets the kernels, warns of the NaN that masked-out rows compute and nobody stores
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

POINTWISE, REDUCING = 130, 70
MOST_REFUSED = 0.05
"""Share of chains of either family that may be refused; they are views and casts that compute nothing."""


def run(family: str, count: int) -> Counter[str]:
    """Hypothesis draws the chains, shrinks one that is wrong, and the outcomes are counted, a chain once: which ones it
    draws again depends on what else was imported."""
    outcomes: dict[str, str] = {}

    @seed(0)  # not by the text of this function, which a new name in it would change
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def holds(drawn: random.Random) -> None:
        text = chain(drawn, "small", family)
        answer = verdict(text, "cpu")
        outcomes[text] = answer["status"]
        assert answer["status"] not in (WRONG, ERROR), f"{answer['message']}\n{text}"

    holds()
    return Counter(outcomes.values())


@pytest.mark.parametrize(("family", "count"), [("pointwise", POINTWISE), ("reducing", REDUCING)])
def test_random_chains_are_right_and_hardly_any_is_refused(family: str, count: int) -> None:
    outcomes = run(family, count)
    assert sum(outcomes.values()) >= 0.4 * count  # 61 of 130 differ
    assert outcomes[REFUSED] <= MOST_REFUSED * sum(outcomes.values()), outcomes


@pytest.mark.parametrize("number", range(12))
def test_the_seeds_that_a_gpu_runs_are_right_here(number: int) -> None:
    for family in ("pointwise", "reducing"):
        text = chain_of_seed(number, "small", family)
        answer = verdict(text, "cpu", number)
        assert answer["status"] in (RIGHT, REFUSED), f"{answer['message']}\n{text}"


@pytest.mark.parametrize("seed", [1, 3])
def test_walks_and_split_sums_are_right_where_every_row_is_walked(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = shapes.choose

    def walked(plan: Plan) -> str:
        return "loop" if plan.reduces and plan.domain.width > 4 else usual(plan)

    monkeypatch.setattr(split, "SMALLEST", 64)
    monkeypatch.setattr(split, "SHORTEST", 2)
    monkeypatch.setattr(split, "WANTED", 40)
    monkeypatch.setattr(shapes, "choose", walked)
    text = chain_of_seed(seed, "small", "reducing")
    answer = verdict(text, "cpu", seed)
    assert answer["status"] == RIGHT, f"{answer['message']}\n{text}"


def test_a_wrong_kernel_is_called_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.codegen.expressions import ops

    broken = {**ops.POINTWISE, "tanh": ops.Pointwise("tanh({0}) * 1.0001", ops.FLOAT)}
    text = "x: f32[40]\ny = torch.tanh(x) * 2\nreturn y\n"
    assert verdict(text, "cpu")["status"] == RIGHT
    monkeypatch.setattr(ops, "POINTWISE", broken)
    assert verdict(text, "cpu")["status"] == WRONG


def test_results_that_lie_otherwise_in_memory_are_wrong_though_their_numbers_are_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = check_generated.generate

    def turned(graph: Graph) -> Any:
        right = made(graph)
        return SimpleNamespace(
            sources=right.sources, module=lambda *inputs: [y.t().contiguous().t() for y in right.module(*inputs)]
        )

    monkeypatch.setattr(check_generated, "generate", turned)
    answer = verdict("x: f32[40, 24]\ny = torch.tanh(x) * 2\nreturn y\n", "cpu")
    assert answer["status"] == WRONG
    assert "with strides (1, 40)" in answer["message"]
