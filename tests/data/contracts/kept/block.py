"""A block that is one product and what follows it."""

import torch
from torch import nn


class Block(nn.Module):
    """Linear, GELU, RMSNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1024, 1024, dtype=torch.bfloat16)
        self.weight = nn.Parameter(torch.ones(1024, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output."""
        hidden = nn.functional.gelu(self.linear(x)) * 2
        return hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def make() -> tuple[nn.Module, torch.Tensor]:
    """The block and its input."""
    return Block(), torch.randn(4096, 1024, dtype=torch.bfloat16)
