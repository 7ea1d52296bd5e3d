"""Random outputs whose elements depend on each other, held to how far right samples of them lie apart."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest
import torch
import torch.nn.functional as F

from kernels.measure.candidate.clusters import FEWEST_CLUSTERS, spreads
from kernels.measure.candidate.correctness import compare
from kernels.measure.candidate.reference import Reference
from kernels.measure.judge import AFTER_TIMING, judge
from kernels.measure.messages import Case

RATE = 0.1
DISTRIBUTIONS = {"normal": (torch.randn, 1.0), "uniform": (torch.rand, 1.0), "large": (torch.randn, 32.0)}
Draw = Callable[[], torch.Tensor]
Drop = Callable[[torch.Tensor], torch.Tensor]


def dropped(values: torch.Tensor) -> torch.Tensor:
    return F.dropout(values, RATE)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, drop: Drop = dropped) -> torch.Tensor:
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    later = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return drop(torch.softmax(scores.masked_fill(later, -math.inf), -1, dtype=wide).to(q.dtype)) @ v


def inputs(distribution: str) -> list[torch.Tensor]:
    draw, scale = DISTRIBUTIONS[distribution]
    generator = torch.Generator().manual_seed(1)
    return [(draw((2, 4, 128, 64), generator=generator) * scale).bfloat16() for _ in range(3)]


def case(draw: Draw, exact: Draw, distribution: str = "normal") -> Case:
    errors = compare([draw()], Reference((exact(),), {}, "float64"), frozenset({0}))
    return Case(distribution, "float64", errors)


def accepted(draw: Draw, eager: Draw, exact: Draw, distribution: str = "normal") -> bool:
    own = case(draw, exact, distribution)
    return judge([own], [case(eager, exact, distribution)]).ok


def accepted_attention(candidate: Callable[..., torch.Tensor], distribution: str, seed: int) -> bool:
    given = inputs(distribution)
    wide = [t.double() for t in given]
    torch.manual_seed(seed)
    return accepted(lambda: candidate(*given), lambda: attention(*given), lambda: attention(*wide), distribution)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_attention_that_drops_whole_rows_is_right_under_every_seed(distribution: str) -> None:
    assert [seed for seed in range(20) if not accepted_attention(attention, distribution, seed)] == []


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_library_that_draws_attentions_dropout_its_own_way_is_right(distribution: str) -> None:
    def library(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=RATE, is_causal=True)

    assert [seed for seed in range(5) if not accepted_attention(library, distribution, seed)] == []


def once_for_all_rows(values: torch.Tensor) -> torch.Tensor:
    return values * dropped(torch.ones(values.shape[-1], dtype=values.dtype))


FAULTS: dict[str, Drop] = {
    "nothing dropped": lambda p: p,
    "not rescaled": lambda p: dropped(p) * (1 - RATE),
    "another rate": lambda p: F.dropout(p, 2 * RATE),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_dropout_within_attention_is_refused_by_one_of_its_cases(fault: str) -> None:
    def wrong(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention(q, k, v, FAULTS[fault])

    for seed in range(3):
        assert not all(accepted_attention(wrong, d, seed) for d in DISTRIBUTIONS)


X = torch.randn(2048, 512, generator=torch.Generator().manual_seed(3))
W = torch.randn(512, 256, generator=torch.Generator().manual_seed(4)) / 22
PLANES = torch.randn(32, 256, 4, 4, generator=torch.Generator().manual_seed(5))
POSITIVE = torch.rand(2048, 512, generator=torch.Generator().manual_seed(7))
RIGHT: dict[str, Draw] = {
    "elements": lambda: dropped(X),
    "positive elements": lambda: dropped(POSITIVE),
    "rows": lambda: dropped(X) @ W,
    "columns": lambda: X @ dropped(W),
    "planes": lambda: F.dropout2d(PLANES, RATE),
    "means that all rows add": lambda: dropped(X).mean(0) + X,
}


@pytest.mark.parametrize("what", RIGHT)
def test_elements_that_depend_along_any_axis_are_right_under_every_seed(what: str) -> None:
    draw = RIGHT[what]
    torch.manual_seed(0)
    assert all(accepted(draw, draw, draw) for _ in range(20))


WRONG: dict[str, tuple[str, Draw]] = {
    "elements at another rate": ("elements", lambda: F.dropout(X, 0.12)),
    "elements all kept": ("elements", lambda: X),
    "elements not rescaled": ("elements", lambda: dropped(X) * (1 - RATE)),
    "elements with one mask for every row": ("elements", lambda: once_for_all_rows(X)),
    "elements with one draw for each row": ("elements", lambda: X * dropped(torch.ones(len(X), 1))),
    "positive elements of a scale 1 % off": ("positive elements", lambda: dropped(POSITIVE) * 1.01),
    "rows at no rate": ("rows", lambda: X @ W),
    "rows not rescaled": ("rows", lambda: dropped(X) @ W * (1 - RATE)),
    "columns not rescaled": ("columns", lambda: X @ dropped(W) * (1 - RATE)),
    "planes all kept": ("planes", lambda: PLANES),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_random_numbers_are_refused(what: str) -> None:
    like, draw = WRONG[what]
    right = RIGHT[like]
    torch.manual_seed(0)
    assert not any(accepted(draw, right, right) for _ in range(5))


CONSTANT: dict[str, Draw] = {
    "shares of rows": lambda: torch.softmax(dropped(X), -1).sum(-1),
    "shares of rows in float64": lambda: torch.softmax(dropped(X.double()), -1).sum(-1),
    "shares of rows in bf16": lambda: torch.softmax(dropped(X), -1).bfloat16().sum(-1),
    "zeros": lambda: dropped(X) * 0.0,
    "large": lambda: dropped(X) * 0.0 + 3e37,
    "whole numbers": lambda: (dropped(X) < 100).sum(-1),
}
OFF: dict[str, Drop] = {
    "by 2 %": lambda values: values * 1.02 + 0.01,
    "here and there": lambda values: values + (torch.rand(values.shape) < 0.01) * (1 + values.abs().max()),
    "all over the place": lambda values: values * (1 + torch.randn(values.shape)) + torch.rand(values.shape),
    "out of reach": lambda values: values + 1e30,
}  # fmt: skip


def exactly(what: str) -> torch.Tensor:
    if what in ("zeros", "large", "whole numbers"):
        return CONSTANT[what]().double()
    return CONSTANT["shares of rows in float64"]()


@pytest.mark.parametrize("what", CONSTANT)
def test_constant_results_of_random_numbers_are_right_under_every_seed_and_can_be_sent(what: str) -> None:
    torch.manual_seed(0)
    for _ in range(10):
        made = case(CONSTANT[what], lambda: exactly(what))
        assert judge([made], [case(CONSTANT[what], lambda: exactly(what))]).ok
        assert msgspec.json.decode(msgspec.json.encode(made), type=Case) == made


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("what", CONSTANT)
def test_what_should_be_constant_and_is_not_it_is_refused(what: str, off: str) -> None:
    if (what, off) == ("large", "out of reach"):
        off = "by 2 %"
    torch.manual_seed(0)

    def wrong() -> torch.Tensor:
        right = CONSTANT[what]()
        return OFF[off](right).to(right.dtype)

    for _ in range(3):
        made = case(wrong, lambda: exactly(what))
        assert not judge([made], [case(CONSTANT[what], lambda: exactly(what))]).ok
        assert msgspec.json.decode(msgspec.json.encode(made), type=Case) == made


def test_rounding_is_not_taken_for_shared_draws() -> None:
    """Elements that nothing random reaches, judged as random ones all the same."""
    left, right = X.t().contiguous(), torch.randn(2048, 64, generator=torch.Generator().manual_seed(8))
    exact = left.double() @ right.double()
    scattered = exact.float() * (1 + 3e-7 * torch.randn(len(left), 1, generator=torch.Generator().manual_seed(9)))
    assert accepted(lambda: scattered, lambda: exact.float(), lambda: exact)
    shared = exact.float() * (1 + 3e-3 * torch.randn(len(left), 1, generator=torch.Generator().manual_seed(9)))
    assert not accepted(lambda: shared, lambda: exact.float(), lambda: exact)


def test_the_variance_by_clusters_is_that_of_many_samples() -> None:
    """Against the scatter of the figures themselves, over samples that are drawn 200 times."""
    values = torch.rand(256, 1, generator=torch.Generator().manual_seed(6)).double() + 0.5

    def rows() -> torch.Tensor:
        return (values * dropped(torch.ones_like(values))).expand(256, 32)

    def figures(t: torch.Tensor) -> torch.Tensor:
        return torch.stack([t.mean(), t.std(correction=0), (t == 0).double().mean()])

    torch.manual_seed(0)
    pairs = [(rows(), rows()) for _ in range(200)]
    seen = torch.stack([figures(a) - figures(b) for a, b in pairs]).square().mean(0)
    told = torch.tensor([next(s for s in spreads(a, b) if s.clusters == (256, 1)).variances for a, b in pairs]).mean(0)
    assert torch.allclose(told.double(), seen, rtol=0.35)
    of_elements = torch.tensor([spreads(a, b)[0].variances for a, b in pairs]).mean(0)
    assert bool((of_elements.double() * 20 < seen).all())


def test_few_slices_are_not_asked_how_they_scatter() -> None:
    made = spreads(torch.rand(8, 1, 64), torch.rand(8, 1, 64))
    assert [s.clusters for s in made] == [(8, 64), (1, 64)]
    assert all(math.prod(s.clusters) >= FEWEST_CLUSTERS for s in made)
    assert spreads(torch.full((64,), math.nan), torch.rand(64)) == []


@pytest.mark.parametrize("seed", range(6))
def test_timed_inputs_that_are_each_candidates_own_are_no_fault_and_excuse_none(seed: int) -> None:
    """768 biases drawn anew move the share of zeros by a hundredth, far beyond what dropout does to it."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 768, 32, 32, generator=generator)
    mine, eagers = (torch.randn(768, 1, 1, generator=generator) for _ in range(2))
    torch.manual_seed(seed)

    def judged(rate: float) -> bool:
        own = case(
            lambda: F.dropout((x + mine).relu(), rate), lambda: dropped((x.double() + mine).relu()), AFTER_TIMING
        )
        eager = case(lambda: dropped((x + eagers).relu()), lambda: dropped((x.double() + eagers).relu()), AFTER_TIMING)
        return judge([own], [eager]).ok

    assert judged(RATE)
    assert not judged(RATE + 0.02)
