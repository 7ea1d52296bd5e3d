"""A whole step of each of the models that no run had before, as programs: `FILE.py:FUNCTION` is a module and no inputs.

The optimizer is in the step, and works on lists of tensors, as it does by default on a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
from torch import nn

from benchmarks.traces.applied_later import LATER
from benchmarks.traces.applied_latest import LATEST
from benchmarks.traces.applied_models import OPTIMIZERS, Made
from benchmarks.traces.applied_newest import NEWEST

SMALL = False
"""For a dry run."""


class WholeStep(nn.Module):
    """Its forward is the model's step, with backward and optimizer where it has them."""

    def __init__(self, made: Made) -> None:
        super().__init__()
        self.model, self.step = made

    def forward(self) -> Any:
        """Whatever the step gives."""
        with torch.enable_grad():
            return self.step(self.model)


def _whole(name: str) -> tuple[WholeStep, tuple[()]]:
    made = {**LATER, **LATEST, **NEWEST}[name](SMALL, "meta")
    for optimizer in OPTIMIZERS:
        for group in optimizer.param_groups:
            group["foreach"] = True
    return WholeStep(made), ()


def olmo_training() -> Any:
    """As applied_later has it."""
    return _whole("olmo training")


def starcoder_decoding() -> Any:
    """As applied_later has it."""
    return _whole("starcoder decoding")


def regnet_training() -> Any:
    """As applied_later has it."""
    return _whole("regnet training")


def joint_diffusion_sampling() -> Any:
    """As applied_later has it."""
    return _whole("joint diffusion sampling")


def cross_network_training() -> Any:
    """As applied_later has it."""
    return _whole("cross network training")


def pythia_training() -> Any:
    """As applied_latest has it."""
    return _whole("pythia training")


def qwen_decoding() -> Any:
    """As applied_latest has it."""
    return _whole("qwen decoding")


def mobilenet_training() -> Any:
    """As applied_latest has it."""
    return _whole("mobilenet training")


def single_stream_sampling() -> Any:
    """As applied_latest has it."""
    return _whole("single stream sampling")


def interest_network_training() -> Any:
    """As applied_latest has it."""
    return _whole("interest network training")


def cohere_training() -> Any:
    """As applied_newest has it."""
    return _whole("cohere training")


def gemma_decoding() -> Any:
    """As applied_newest has it."""
    return _whole("gemma decoding")


def repvgg_training() -> Any:
    """As applied_newest has it."""
    return _whole("repvgg training")


def cross_attention_sampling() -> Any:
    """As applied_newest has it."""
    return _whole("cross attention sampling")


def factorization_machine_training() -> Any:
    """As applied_newest has it."""
    return _whole("factorization machine training")
