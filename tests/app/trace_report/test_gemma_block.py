"""An eager block with a soft cap and a window, as Gemma 2 has it: found in a trace, it is advised FlexAttention.

In bf16 and of 2,048 queries: of few, and in f32, FlexAttention takes longer than a compiled graph, and is not advised.
"""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

from app.analysis import service
from profiler.region.mining.mine import MinedRegion, mine
from profiler.trace.read.reader import read_trace
from tests.profiler.region.recording import record

FLEX = "library:torch.nn.attention.flex_attention"
WIDTH, HEADS, GROUPS, HEAD, T, WINDOW = 128, 8, 4, 64, 2048, 64


def near(t: int) -> torch.Tensor:
    i = torch.arange(t)
    return (i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] < WINDOW)


class Block(torch.nn.Module):
    """Norm, grouped heads, attention and residual. made: the window is made in each call, not a mask that is given."""

    def __init__(self, made: bool) -> None:
        super().__init__()
        self.made = made
        self.q = torch.nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k, self.v = (torch.nn.Linear(WIDTH, GROUPS * HEAD, bias=False) for _ in range(2))
        self.o = torch.nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.norm = torch.nn.Parameter(torch.ones(WIDTH))
        self.register_buffer("mask", torch.where(near(T), 0.0, torch.finfo(torch.bfloat16).min)[None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.norm
        q = self.q(h).view(b, t, HEADS, HEAD).transpose(1, 2)
        k, v = (p(h).view(b, t, GROUPS, HEAD).transpose(1, 2) for p in (self.k, self.v))
        each = HEADS // GROUPS
        k, v = (n[:, :, None].expand(b, GROUPS, each, t, HEAD).reshape(b, HEADS, t, HEAD) for n in (k, v))
        weights = torch.matmul(q, k.transpose(2, 3)) * HEAD**-0.5
        weights = torch.tanh(weights / 50.0) * 50.0
        if self.made:
            weights = weights.masked_fill(~near(t), torch.finfo(weights.dtype).min)
        else:
            weights = weights + self.mask[:, :, :, :t]
        weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
        a = torch.matmul(weights, v).transpose(1, 2).contiguous().reshape(b, t, -1)
        return x + self.o(a)


@pytest.fixture(scope="module", params=[True, False], ids=["window made", "mask given"])
def attention(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[bool, MinedRegion]:
    block = Block(request.param).to(torch.bfloat16)
    x = torch.randn(1, T, WIDTH, dtype=torch.bfloat16)
    path = record(tmp_path_factory.mktemp("trace") / "block.json", lambda x: block(x), x)
    (one,) = (r for r in mine(read_trace(path)).regions if r.kind == "attention")
    return request.param, one


def test_the_whole_of_it_is_one_region_and_gets_flex_attention(attention: tuple[bool, MinedRegion]) -> None:
    made, region = attention
    assert region.text is not None
    advised = service.advise_region(region.text, device="NVIDIA H100 80GB HBM3")["advice"]
    assert (advised["tool"], advised["mode"]) == ("library", FLEX.removeprefix("library:"))
    options = {a["candidate"]: a for a in advised["alternatives"]}
    assert options[FLEX]["admitted"]
    returned = dict(re.findall(r"def (\w+)\(.*\):\n    return (.*)", options[FLEX]["call"]))
    if made:
        assert returned["score_mod"] == "50 * torch.tanh(score / 50)"
        assert returned["mask_mod"] == f"(kv_idx >= q_idx - {WINDOW - 1}) & (q_idx >= kv_idx)"
    else:
        assert returned == {"score_mod": "50 * torch.tanh(score / 50) + tensor0[q_idx, kv_idx]"}
