"""Experts whose tokens a router chooses: an even spread is recorded, in each way in which programs write it down."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from profiler.program.model import Program
from profiler.program.record import Workload, record
from profiler.region import op_kinds

WIDTH, INNER, EXPERTS, TOP_K = 64, 128, 8, 2


class Experts(nn.Module):
    def __init__(self, written: str) -> None:
        super().__init__()
        self.written = written
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.empty(EXPERTS, INNER, WIDTH))
        self.down = nn.Parameter(torch.empty(EXPERTS, WIDTH, INNER))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.topk(F.softmax(self.router(x), -1), TOP_K, dim=-1)
        out = torch.zeros_like(x)
        by = {"one-hot": self.by_one_hot, "comparison": self.by_comparison, "mask": self.by_mask}
        return by[self.written](x, weights, chosen, out)

    def expert(self, number: int | torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.relu(F.linear(x, self.up[number])), self.down[number])

    def by_one_hot(
        self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor, out: torch.Tensor
    ) -> torch.Tensor:
        """As transformers 5 writes it, with one more for padding."""
        with torch.no_grad():
            mask = F.one_hot(chosen, num_classes=EXPERTS + 1).permute(2, 1, 0)
            hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        for number in hit:
            number = number[0]
            if number == EXPERTS:
                continue
            place, token = torch.where(mask[number])
            out.index_add_(0, token, self.expert(number, x[token]) * weights[token, place, None])
        return out

    def by_comparison(
        self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor, out: torch.Tensor
    ) -> torch.Tensor:
        for number in range(EXPERTS):
            token, place = torch.where(chosen == number)
            out.index_add_(0, token, self.expert(number, x[token]) * weights[token, place, None])
        return out

    def by_mask(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        for number in range(EXPERTS):
            token = (chosen == number).any(-1)
            if token.any():
                out[token] += self.expert(number, x[token])
        return out


def recorded(written: str, tokens: int, *, training: bool = False) -> Program:
    return record("experts", lambda: Workload(Experts(written), (torch.randn(tokens, WIDTH),), {}), training=training)


def product_flops(program: Program) -> int:
    """Of the experts alone."""
    products = [c.operation for c in program.calls if c.operation and c.operation.kind == op_kinds.GEMM]
    return sum(p.flops for p in products if INNER in (*p.reads[0].shape, *p.writes[0].shape, *p.reads[1].shape))


@pytest.mark.parametrize("written", ["one-hot", "comparison", "mask"])
@pytest.mark.parametrize("training", [False, True])
def test_every_token_goes_to_top_k_experts_and_to_no_more(written: str, training: bool) -> None:
    tokens = 512
    program = recorded(written, tokens, training=training)
    by_hand = 2 * tokens * TOP_K * 2 * WIDTH * INNER
    backward = 2 * by_hand if training else 0
    # what is added to the input's gradient by the first product alone is not asked for: the input does not learn
    saved = tokens * TOP_K * 2 * WIDTH * INNER if training else 0
    assert product_flops(program) == by_hand + backward - saved
    told = "tokens x 2 of 8 experts evenly: 128 of "
    assert any(f"512 {told}" in gap.what for gap in program.gaps), program.gaps
    assert not any(gap.ends for gap in program.gaps)


def test_one_token_hits_as_many_experts_as_it_is_sent_to() -> None:
    program = recorded("one-hot", 1)
    assert product_flops(program) == 2 * TOP_K * 2 * WIDTH * INNER
    assert any("2 of 9 are true" in gap.what for gap in program.gaps), program.gaps


def test_a_mask_of_something_else_has_as_many_true_as_there_are() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        best = torch.topk(x, 4, dim=0)[1]  # along the tokens: no router's choice
        return x[:4][best > 3] * 2

    program = record("program", lambda: Workload(step, (torch.randn(64, 64),), {}))
    assert [gap.what for gap in program.gaps] == [
        "the result's size depends on values (a mask as index); assumed that all 256 are true"
    ]
