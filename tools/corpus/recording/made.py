"""What a row's maker gives: a model on its device and the call that is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tools.corpus.recording.rows import Row

Call = Callable[[], Any]


@dataclass(frozen=True)
class Place:
    """Where and how large: tiny is for a dry run on the CPU."""

    device: str
    tiny: bool

    def batch(self, row: Row) -> int:
        return min(row.batch, 2) if self.tiny else row.batch


@dataclass(frozen=True)
class Made:
    """A model, and its call: the outputs, or the loss where it trains."""

    model: Any
    call: Call


DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "autocast": "float32"}


def loss_of(output: Any) -> Any:
    """The model's own loss; without one the mean of the squares of its first floating output."""
    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    return tensors_of(output)[0].float().square().mean()


def tensors_of(output: Any) -> list[Any]:
    """The floating tensors of a model's output, in order."""
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    parts = output.values() if hasattr(output, "values") else output if isinstance(output, list | tuple) else ()
    return [t for part in parts for t in tensors_of(part)]
