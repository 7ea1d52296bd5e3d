"""Experts whose tokens a router chooses: an even spread is recorded, in each way in which programs write it down."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from profiler.program.model import Program
from profiler.program.record import Workload, record
from profiler.region import op_kinds

WIDTH, INNER, EXPERTS, TOP_K = 64, 128, 8, 2


def _scattered(chosen: torch.Tensor) -> torch.Tensor:
    return chosen.new_zeros((chosen.shape[0], EXPERTS)).scatter_(1, chosen, 1)


def _added(chosen: torch.Tensor) -> torch.Tensor:
    flat = chosen.flatten()
    return torch.zeros(EXPERTS, dtype=torch.int64, device=flat.device).scatter_add_(0, flat, torch.ones_like(flat))


def _from_ends(chosen: torch.Tensor) -> list[int]:
    ends = torch.bincount(chosen.flatten(), minlength=EXPERTS).cumsum(0).tolist()
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


COUNTED: dict[str, Callable[[torch.Tensor], Iterable[int]]] = {
    "bincount": lambda chosen: torch.bincount(chosen.view(-1), minlength=EXPERTS).tolist(),
    "bincount alone": lambda chosen: torch.bincount(chosen.view(-1)).tolist(),
    "items": lambda chosen: [c.item() for c in torch.bincount(chosen.view(-1), minlength=EXPERTS)],
    "ends": _from_ends,
    "scatter": lambda chosen: _scattered(chosen).sum(dim=0).cpu().numpy(),
    "one-hot counts": lambda chosen: F.one_hot(chosen, EXPERTS).sum((0, 1)).tolist(),
    "comparisons": lambda chosen: [int((chosen == number).sum()) for number in range(EXPERTS)],
    "histc": lambda chosen: torch.histc(chosen.float(), EXPERTS, 0, EXPERTS - 1).int().tolist(),
    "scatter_add": lambda chosen: _added(chosen).tolist(),
}
"""How many tokens each expert gets, in the ways in which programs count them."""


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
        by = {
            "one-hot": self.by_one_hot, "comparison": self.by_comparison, "mask": self.by_mask,
            "scattered": self.by_scattered, **dict.fromkeys(COUNTED, self.by_counts),
        }  # fmt: skip
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

    def by_scattered(
        self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor, out: torch.Tensor
    ) -> torch.Tensor:
        mask = torch.zeros(len(x), EXPERTS, device=x.device).scatter_(1, chosen, 1.0)
        for number in range(EXPERTS):
            token = mask[:, number].nonzero()[:, 0]
            out.index_add_(0, token, self.expert(number, x[token]))
        return out

    def by_counts(
        self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor, out: torch.Tensor
    ) -> torch.Tensor:
        """Tokens sorted by expert, a slice for each, as DeepSeek writes it."""
        order = chosen.view(-1).argsort()
        ordered, outs, start = x[order // TOP_K], [], 0
        for number, count in enumerate(COUNTED[self.written](chosen)):
            if count == 0:
                continue
            outs.append(self.expert(number, ordered[start : start + count]))
            start += count
        out = torch.cat(outs)
        return out * weights.view(-1)[order][:, None]


def recorded(written: str, tokens: int, *, training: bool = False) -> Program:
    return record("experts", lambda: Workload(Experts(written), (torch.randn(tokens, WIDTH),), {}), training=training)


def product_flops(program: Program) -> int:
    """Of the experts alone."""
    products = [c.operation for c in program.calls if c.operation and c.operation.kind == op_kinds.GEMM]
    return sum(p.flops for p in products if INNER in (*p.reads[0].shape, *p.writes[0].shape, *p.reads[1].shape))


@pytest.mark.parametrize("written", ["one-hot", "comparison", "mask", "scattered"])
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


def read_as(program: Program) -> str:
    told = [gap.what for gap in program.gaps if "x 2 of 8 experts evenly" in gap.what]
    assert told and not any("each is 1" in gap.what or gap.ends for gap in program.gaps), program.gaps
    return told[-1]


@pytest.mark.parametrize("written", COUNTED)
@pytest.mark.parametrize("training", [False, True])
def test_experts_written_with_counts_get_every_token_top_k_times(written: str, training: bool) -> None:
    tokens = 512
    program = recorded(written, tokens, training=training)
    by_hand = 2 * tokens * TOP_K * 2 * WIDTH * INNER
    backward = 2 * by_hand if training else 0
    saved = tokens * TOP_K * 2 * WIDTH * INNER if training else 0  # the input does not learn
    assert product_flops(program) == by_hand + backward - saved
    assert read_as(program).endswith(": 128 to 1,024" if written == "ends" else ": 128")


@pytest.mark.parametrize("written", [written for written in COUNTED if written != "comparisons"])
def test_counts_that_do_not_divide_are_whole_numbers_that_add_up(written: str) -> None:
    """21 tokens x 2 of 8 experts: 42 rows, 5 or 6 each."""
    program = recorded(written, 21)
    assert product_flops(program) == 2 * 42 * 2 * WIDTH * INNER
    rows = [c.operation.reads[0].shape[0] for c in program.calls if c.operation and c.operation.kind == op_kinds.GEMM]
    assert sorted(rows[1::2]) == [5] * 6 + [6] * 2
    assert not any("each is 1" in gap.what or gap.ends for gap in program.gaps)


def test_rows_repeated_by_counts_are_as_many_as_the_router_picks() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(x.topk(2, -1)[1].view(-1), minlength=8)
        return torch.arange(8, device=x.device).repeat_interleave(counts) * 2

    program = record("program", lambda: Workload(step, (torch.randn(100, 8),), {}))
    last = [c.operation for c in program.calls if c.operation][-1]
    assert last.writes[0].shape == (200,)


def test_counts_that_are_overwritten_are_known_no_more() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(x.topk(2, -1)[1].view(-1), minlength=8)
        counts.copy_(x[0].long())
        return x * counts.tolist()[0]

    program = record("program", lambda: Workload(step, (torch.randn(100, 8),), {}))
    assert program.gaps[-1].what == "a value is read from the device (tolist); assumed that each is 1"


def test_the_best_of_a_vocabulary_are_no_router_s_choice() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        best = torch.topk(x, 50, dim=-1)[1]
        if (best[:, 0] == 2).any().item():
            return x[(best == 2).any(-1)]
        return x * 2

    program = record("program", lambda: Workload(step, (torch.randn(64, 32_000),), {}))
    assert [gap.what for gap in program.gaps] == [
        "a value is read from the device; assumed True",
        "the result's size depends on values (a mask as index); assumed that all 64 are true",
    ]


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
