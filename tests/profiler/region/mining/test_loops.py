"""Loops of small operations: one region each, and no stack of layers taken for one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from profiler.region.mining.mine import Mining, mine
from profiler.trace.read.reader import read_trace
from tests.profiler.region.recording import record

randn = torch.randn


def mined(path: Path, function: Callable[..., object], *args: torch.Tensor, shapes: bool = True) -> Mining:
    return mine(read_trace(record(path, function, *args, shapes=shapes)))


def scan(x: torch.Tensor, a: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    out = []
    for t in range(x.shape[-1]):
        h = a * h + x[:, :, t]
        out.append(h)
    return torch.stack(out, -1)


def advantages(reward: torch.Tensor, done: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    total, out = reward[0], []
    for t in reversed(range(len(reward))):
        delta = reward[t] + 0.99 * value[t + 1] * (1 - done[t]) - value[t]
        total = delta + 0.99 * 0.95 * (1 - done[t]) * total
        out.append(total)
    return torch.stack(out)


def gru(x: torch.Tensor, h: torch.Tensor, wi: torch.Tensor, wh: torch.Tensor) -> torch.Tensor:
    for step in x.unbind(1):
        (ir, iz, ic), (hr, hz, hc) = F.linear(step, wi).chunk(3, -1), F.linear(h, wh).chunk(3, -1)
        z = torch.sigmoid(iz + hz)
        n = torch.tanh(ic + torch.sigmoid(ir + hr) * hc)
        h = n + z * (h - n)
    return h


def in_place(x: torch.Tensor, a: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    h = h.clone()
    for t in range(x.shape[-1]):
        h.mul_(a).add_(x[:, :, t])
    return h


def selective_scan(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """What a round gives away is read by no other: the state was made before it."""
    out = []
    for t in range(a.shape[1]):
        state = a[:, t] * state + b[:, t]
        out.append(torch.matmul(state.to(torch.bfloat16), c[:, t].unsqueeze(-1)))
    return torch.stack(out, 1)


def summed_scan(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    out = []
    for t in range(a.shape[1]):
        state = a[:, t] * state + b[:, t]
        out.append((state * c[:, t, None, :]).sum(-1))
    return torch.stack(out, 1)


def scan_behind_its_own_products(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, state: torch.Tensor
) -> torch.Tensor:
    """The operation that stands last in each round also makes what the rounds read."""
    b = torch.einsum("btdn,btn->btdn", b, c)
    out = []
    for t in range(a.shape[1]):
        state = a[:, t] * state + b[:, t]
        out.append(torch.einsum("bdn,bn->bd", state, c[:, t]))
    return torch.stack(out, 1)


STATE = (randn(8, 32), randn(8, 32))
SCANNED = (randn(2, 24, 16, 8), randn(2, 24, 16, 8), randn(2, 24, 8), randn(2, 16, 8))
RECURRENCES = {
    "scan": (scan, (randn(8, 32, 40), *STATE), 40),
    "advantages": (advantages, (randn(64, 8), randn(64, 8), randn(65, 8)), 64),
    "gru": (gru, (randn(8, 12, 32), randn(8, 32), randn(96, 32), randn(96, 32)), 12),
    "selective_scan": (selective_scan, (*SCANNED[:2], SCANNED[2].bfloat16(), SCANNED[3]), 24),
    "summed_scan": (summed_scan, SCANNED, 24),
    "scan_behind_its_own_products": (scan_behind_its_own_products, SCANNED, 24),
    "in_place": (in_place, (randn(8, 32, 40), *STATE), 40),
}


@pytest.mark.parametrize("name", RECURRENCES)
def test_a_recurrence_is_one_region(name: str, tmp_path: Path) -> None:
    function, args, rounds = RECURRENCES[name]
    mining = mined(tmp_path / "t.json", function, *args)
    loop = mining.regions[0]
    assert (loop.title, loop.kind, loop.calls_per_step) == ("unrolled recurrence", "recurrence", 1.0)
    assert rounds - 1 <= loop.rounds <= rounds
    assert loop.time_us_per_step > 0.9 * mining.kernel_time_us
    assert len(loop.operations) < 0.2 * loop.launches  # one round of them
    assert loop.text is None
    assert loop.missing


def test_layers_are_no_recurrence(tmp_path: Path) -> None:
    """Equal layers repeat as a loop does, each reads what the last one made, and small ones are as quick."""
    weights = [randn(64, 64) for _ in range(12)]
    vectors = [randn(64) for _ in range(12)]

    def model(x: torch.Tensor) -> torch.Tensor:
        for w, v in zip(weights, vectors, strict=True):
            z = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * v
            x = x + F.linear(F.relu(F.linear(z, w)), w)
        return x

    mining = mined(tmp_path / "t.json", model, randn(16, 64))
    assert {r.title for r in mining.regions} == {"RMSNorm by hand", "GEMM with ReLU tail", "GEMM", "residual add"}
    assert all(r.calls_per_step == 12 for r in mining.regions)


def test_equal_columns_that_nothing_is_carried_between_are_no_recurrence(tmp_path: Path) -> None:
    def columns(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.stack([(x[:, t] * w).sum(-1) for t in range(x.shape[1])], 1)

    mining = mined(tmp_path / "t.json", columns, randn(2, 24, 16, 8), randn(16, 8))
    assert "unrolled recurrence" not in {r.title for r in mining.regions}


PARAMETERS = [randn(64, 8 * n) for n in range(1, 7)]


def sgd() -> None:
    for p in PARAMETERS:
        p.add_(p, alpha=-0.01)


def momentum() -> None:
    for p in PARAMETERS:
        p.mul_(0.9).add_(p)
        p.add_(p, alpha=-0.01)


def adam() -> None:
    for p in PARAMETERS:
        p.mul_(0.9).add_(p, alpha=0.1)
        p.mul_(0.99).addcmul_(p, p, value=0.01)
        p.addcdiv_(p, p.sqrt().add_(1e-8), value=-0.01)


@pytest.mark.parametrize(
    ("step", "operations", "shapes"),
    [(sgd, 1, True), (momentum, 3, True), (adam, 7, True), (momentum, 3, False), (adam, 7, False)],
)
def test_an_optimizer_by_hand_is_one_region(
    step: Callable[[], None], operations: int, shapes: bool, tmp_path: Path
) -> None:
    """Without its factor an add is any add: of plain SGD only the recorded sizes tell."""
    mining = mined(tmp_path / "t.json", step, shapes=shapes)
    (region,) = mining.regions
    assert (region.title, region.kind) == ("optimizer step (one tensor at a time)", "optimizer")
    assert (len(region.operations), region.rounds) == (operations, len(PARAMETERS))


def test_one_operation_over_many_tensors_is_one_region(tmp_path: Path) -> None:
    def clip() -> None:
        for p in PARAMETERS:
            p.mul_(0.5)

    (region,) = mined(tmp_path / "t.json", clip).regions
    assert (region.title, region.rounds) == ("mul over many tensors", len(PARAMETERS))


def experts(x: torch.Tensor, router: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    chance, chosen = torch.topk(F.softmax(x @ router, -1), 2)
    out = torch.zeros_like(x)
    for e in range(len(up)):
        token, slot = torch.where(chosen == e)
        if len(token):  # a GPU launches nothing for none
            h = F.linear(F.silu(F.linear(x[token], up[e])), down[e]) * chance[token, slot, None]
            out.index_add_(0, token, h)
    return out


@pytest.mark.parametrize("spread", [0.0, 3.0], ids=["all experts", "some without tokens"])
def test_an_expert_loop_is_one_region(spread: float, tmp_path: Path) -> None:
    torch.manual_seed(0)
    router = randn(32, 8) * 0.01
    router[:, 5] -= spread
    args = (torch.rand(64, 32), router, randn(8, 64, 32), randn(8, 32, 64))
    mining = mined(tmp_path / "t.json", experts, *args)
    loop = mining.regions[0]
    assert (loop.title, loop.calls_per_step) == ("expert loop", 1.0)
    assert {"where", "linear", "silu", "index_add_"} <= set(loop.operations)
    assert sum("linear" in r.operations for r in mining.regions) == 1
    assert any(r.title == "routing" for r in mining.regions)


def test_gradients_added_up_are_one_region(tmp_path: Path) -> None:
    weights = [randn(16, 16).requires_grad_() for _ in range(6)]

    def train(x: torch.Tensor) -> None:
        for w in weights:
            x = torch.tanh(x * w)
        x.sum().backward()  # the second step adds to the first one's gradients

    trace = read_trace(record(tmp_path / "t.json", train, randn(16, 16)))
    mining = mine(trace, trace.steps[1])  # the steady one of two is whichever was faster
    (region,) = [r for r in mining.regions if r.title == "gradient accumulation"]
    assert region.launches == len(weights)
    assert not any("AccumulateGrad" in r.title for r in mining.regions)
