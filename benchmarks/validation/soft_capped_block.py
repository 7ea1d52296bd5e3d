"""A decoder block as Gemma 2 has it, in plain torch, and what is advised on its attention in a trace of it.

`python benchmarks/validation/soft_capped_block.py --out FOLDER` records one eager step, advises on the trace as on an
uploaded one, and writes block.json: the region of the attention, its advice, and what it was found by. Grouped heads,
rotary positions, scores capped by tanh, a sliding window, f32 softmax: written out, as eager attention of
transformers is.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 (run as a file)
from torch import nn  # noqa: E402

from benchmarks.traces.recording import record  # noqa: E402

Json = dict[str, Any]
CAP, THETA, EPS = 50.0, 10000.0, 1e-6


class Norm(nn.Module):
    """RMSNorm whose weight is counted from one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., width]."""
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
        return (normed * (1.0 + self.weight.float())).type_as(x)


class Block(nn.Module):
    """Attention and a gated network, each between two norms. window: how many keys a query sees."""

    mask: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, heads: int, groups: int, width: int, rows: int, window: int) -> None:
        super().__init__()
        self.heads, self.groups, self.width = heads, groups, width
        inner = heads * width
        self.before, self.after, self.before_wide, self.after_wide = (Norm(inner) for _ in range(4))
        self.q, self.out = nn.Linear(inner, inner, bias=False), nn.Linear(inner, inner, bias=False)
        self.k, self.v = (nn.Linear(inner, groups * width, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(inner, 4 * inner, bias=False) for _ in range(2))
        self.down = nn.Linear(4 * inner, inner, bias=False)
        at = torch.arange(rows)
        distance = at[:, None] - at[None, :]
        hidden = (distance < 0) | (distance >= window)
        self.register_buffer("mask", torch.zeros(rows, rows).masked_fill(hidden, torch.finfo(torch.bfloat16).min))
        angles = at[:, None] * THETA ** (-torch.arange(0, width, 2) / width)
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, heads, T, width], by its positions."""
        half = x.shape[-1] // 2
        other = torch.cat((-x[..., half:], x[..., :half]), -1)
        made: torch.Tensor = x * self.cos + other * self.sin
        return made

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, T, heads * width]."""
        batch, rows = x.shape[:2]
        q, k, v = (f(x).view(batch, rows, -1, self.width).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = self.turned(q), self.turned(k)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) * self.width**-0.5
        scores = torch.tanh(scores / CAP) * CAP
        scores = scores + self.mask
        shares = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        made: torch.Tensor = self.out(torch.matmul(shares, v).transpose(1, 2).reshape(batch, rows, -1))
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, T, heads * width]."""
        x = x + self.after(self.attend(self.before(x)))
        y = self.before_wide(x)
        y = self.down(nn.functional.gelu(self.gate(y), approximate="tanh") * self.up(y))
        made: torch.Tensor = x + self.after_wide(y)
        return made


def attention_of(trace: Json) -> list[Json]:
    """The regions of a trace with a softmax and a product, the one that takes longest first."""
    texts = [r for r in trace["regions"] if r.get("text") and "softmax" in r["text"] and "tanh" in r["text"]]
    return sorted(texts, key=lambda r: -(r.get("time_us_per_step") or 0.0))


def main() -> int:
    """0 where the trace has a region of the attention."""
    from app.trace_report.report import report

    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--device", default="cuda")
    reader.add_argument("--rows", type=int, default=2048)
    reader.add_argument("--out", type=Path, required=True)
    asked = reader.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    small = asked.device == "cpu"
    block = Block(4 if small else 16, 2 if small else 8, 16 if small else 128, asked.rows, asked.rows // 4)
    block = block.to(asked.device, torch.bfloat16).eval()
    x = torch.randn(2, asked.rows, block.heads * block.width, device=asked.device, dtype=torch.bfloat16)
    path = asked.out / "block.json.gz"
    record(block, [x], asked.device, path)
    trace: Json = {**report(path, "soft-capped block")}
    kept = ("name", "text", "time_us_per_step", "share_of_step", "advice")
    regions = [{key: region.get(key) for key in kept} for region in attention_of(trace)]
    (asked.out / "block.json").write_text(json.dumps({"regions": regions}, indent=1, default=str) + "\n")
    return 0 if regions else 1


if __name__ == "__main__":
    sys.exit(main())
