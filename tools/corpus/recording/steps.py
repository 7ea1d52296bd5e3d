"""What is recorded of a model: one forward, or one whole training step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tools.corpus.recording.made import Call, Made
from tools.corpus.recording.rows import Row


def step_of(row: Row, made: Made, device: str) -> Call:
    """What is recorded: one forward, or one whole training step."""

    def amp() -> Any:
        return torch.autocast(device, torch.bfloat16) if row.dtype == "autocast" else contextlib.nullcontext()

    if row.mode != "train":
        made.model.eval()

        def infer() -> None:
            with torch.no_grad(), amp():
                made.call()

        return infer
    made.model.train()
    parameters = [p for p in made.model.parameters() if p.requires_grad]
    optimizer = optimizer_of(row.optimizer, parameters)

    def train() -> None:
        with amp():
            loss = made.call()
        loss.backward()
        optimizer()
        for p in parameters:
            p.grad = None

    return train


def optimizer_of(name: str, parameters: Sequence[Any]) -> Call:
    """A step of AdamW (foreach or fused), SGD with momentum, or Lion."""
    if name == "lion":
        return lion(parameters)
    makers: dict[str, Callable[[], Any]] = {
        "adamw": lambda: torch.optim.AdamW(parameters, 1e-4, weight_decay=0.1),
        "adamw_fused": lambda: torch.optim.AdamW(parameters, 1e-4, weight_decay=0.1, fused=True),
        "sgd": lambda: torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=1e-4),
    }
    return makers[name]().step  # type: ignore[no-any-return]


def lion(parameters: Sequence[Any]) -> Call:
    """By hand, one parameter at a time."""
    moments = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step() -> None:
        for p, m in zip(parameters, moments, strict=True):
            if p.grad is None:
                continue
            p.mul_(1.0 - 1e-4 * 0.1)
            p.add_(torch.sign(m * 0.9 + p.grad * 0.1), alpha=-1e-4)
            m.mul_(0.99).add_(p.grad, alpha=0.01)

    return step
