"""Programs that the tests record, as a user's file would have them."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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


def waits_for_an_event(x: torch.Tensor) -> torch.Tensor:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    y = x * 2
    end.record()
    end.synchronize()
    return y * begin.elapsed_time(end)


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
    "tolist": lambda x: x * x.sum(0).tolist()[0],
    "tolist of the host's": lambda x: x * x.sum(0).cpu().tolist()[0],
    "numpy": lambda x: x * float(x.detach().numpy()[0, 0]),
    "numpy of the host's": lambda x: x * float(x.detach().cpu().numpy()[0, 0]),
    "array": lambda x: x * float(np.asarray(x, dtype="float64").sum()),
    "format": lambda x: (f"{x.sum():.3f}", x * 2)[1],
    "print": lambda x: (str(x), x * 2)[1],
    "allclose": lambda x: x * torch.allclose(x, x + 1),
    "unique": lambda x: torch.unique(x) * 2,
    "unique's places": lambda x: torch.unique(x, return_inverse=True)[1] * 2,
    "unique along": lambda x: torch.unique(x, dim=0, return_counts=True)[0] * 2,
    "unique neighbours": lambda x: torch.unique_consecutive(x) * 2,
    "bincount": lambda x: torch.bincount(x.flatten().long(), minlength=8) * 2,
    "repeat_interleave": lambda x: x.repeat_interleave(x.sum(0).long(), dim=1) * 2,
    "synchronize": lambda x: (x * 2, torch.cuda.synchronize())[0],
    "a stream's": lambda x: (x * 2, torch.cuda.current_stream().synchronize())[0],
    "an event's": waits_for_an_event,
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


def wrong_shape() -> tuple[nn.Module, torch.Tensor]:
    return nn.Linear(4, 3), torch.empty(2, 3)


class WrongInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.view(2, 3).t().t())  # type: ignore[no-any-return]


def wrong_inside() -> tuple[nn.Module, torch.Tensor]:
    return WrongInside(), torch.empty(6)


def views() -> tuple[Any, torch.Tensor]:
    return torch.Tensor.t, torch.empty(2, 3)


def huge() -> tuple[nn.Module, torch.Tensor]:
    return nn.Linear(10**6, 10**6), torch.empty(10**9, 10**6)


def interrupted() -> Any:
    raise KeyboardInterrupt


def leaves() -> Any:
    raise SystemExit(0)


def leaves_at_once() -> Any:
    os._exit(0)


def talks() -> Any:
    for _ in range(50_000):
        print("x" * 1000)
    print("its last words")
    sys.stdout.flush()
    os._exit(5)


def starts_another() -> tuple[nn.Module, torch.Tensor]:
    """It leaves a process in a session of its own, whose parent has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(os.environ["LEFT"]).write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    while not Path(os.environ["LEFT"]).exists():
        time.sleep(0.01)
    return nn.Linear(3, 3), torch.empty(2, 3)


class Losses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.one(x).sum(), "aux": self.two(x)}


def losses() -> tuple[nn.Module, torch.Tensor]:
    return Losses(), torch.randn(8, 64)


def nothing() -> str:
    return "a model"


class Hostile:
    def __reduce__(self) -> Any:
        return (print, ("this was unpickled",))


def hostile() -> Any:
    return Hostile()


class Pads(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(nn.functional.pad(x, (0, 0, 0, 0)))


def pads_nothing() -> tuple[nn.Module, torch.Tensor]:
    return Pads(), torch.randn(64, 64)


class Attends(nn.Module):
    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=self.is_causal)


def causal() -> tuple[nn.Module, torch.Tensor]:
    return Attends(is_causal=True), torch.randn(4, 16, 2048, 128)


def to_all() -> tuple[nn.Module, torch.Tensor]:
    return Attends(is_causal=False), torch.randn(4, 16, 2048, 128)


class Joins(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return torch.cat([torch.empty(0, device=x.device, requires_grad=True), y], dim=-1)


def joins_nothing() -> tuple[nn.Module, torch.Tensor]:
    return Joins(), torch.randn(32, 64)


class Sets(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, 0] = 1
        x[2:, ..., -3:] = 0.5
        x[x > 0] = 2.0
        return x


def sets_numbers() -> tuple[nn.Module, torch.Tensor]:
    return Sets(), torch.randn(32, 64)
