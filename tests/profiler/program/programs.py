"""Programs that the tests record, as a user's file would have them."""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))
        q = h.unflatten(-1, (4, -1)).transpose(1, 2)
        a = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        return x + self.drop(h) + a.transpose(1, 2).reshape(x.shape)


class Reads(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum() > 0:  # the line that tests look for
            y = torch.relu(y)
        return y


class ReadsEachLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            if x.abs().max().item() >= 0:
                x = x * 2
        return x


Of = Callable[[torch.Tensor], torch.Tensor]
VALUES_READ: dict[str, Of] = {
    "item": lambda x: x * x.sum().item(),
    "bool": lambda x: x * 2 if x.sum() > 0 else x,
    "equal": lambda x: x * torch.equal(x, x + 1),
    "nonzero": lambda x: x.nonzero() * 2,
    "masked_select": lambda x: torch.masked_select(x, x > 0) * 2,
    "a mask": lambda x: x[x > 0] * 2,
    "a mask written": lambda x: x.index_put((x > 0,), x.new_zeros(())) * 2,
    "cpu": lambda x: x.cpu() * 2,
    "to": lambda x: x.to("cpu") * 2,
    "to by name": lambda x: x.to(device="cpu") * 2,
}
"""Of which the host waits for the GPU, once each."""
NONE_READ: dict[str, Of] = {
    "positions": lambda x: x[torch.arange(8)] * 2,
    "later": lambda x: x.to("cpu", non_blocking=True) * 2,
    "the host's own": lambda x: x * torch.tensor(2.0, device="cpu").item(),
    "another type": lambda x: x.to(torch.bfloat16) * 2,
}


class Stops(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x @ x.mT, -1)
        raise ValueError(f"no more after {y.dim()} dimensions")


def blocks() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(*(Block() for _ in range(3))).to(torch.bfloat16), torch.randn(2, 64, 256).to(torch.bfloat16)


def reads() -> tuple[nn.Module, torch.Tensor]:
    return Reads(), torch.randn(64, 64)


def reads_each_layer() -> tuple[nn.Module, torch.Tensor]:
    return ReadsEachLayer().to(torch.bfloat16), torch.randn(2048, 1024, dtype=torch.bfloat16)


def stops() -> tuple[nn.Module, torch.Tensor]:
    return Stops(), torch.randn(64, 64)


def seventy_billion() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(*(nn.Linear(32768, 32768, bias=False) for _ in range(65))), torch.randn(4, 32768)


def endless() -> Any:
    while True:
        time.sleep(0.01)


def nothing() -> str:
    return "a model"


class Hostile:
    def __reduce__(self) -> Any:
        return (print, ("this was unpickled",))


def hostile() -> Any:
    return Hostile()
