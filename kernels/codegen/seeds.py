"""Where the seed of a call comes from."""

from __future__ import annotations

import torch


def draw_seed() -> int:
    """A seed from PyTorch's default generator on the CPU: torch.manual_seed repeats it, no GPU is waited for."""
    return int(torch.randint(0, 2**31 - 1, ()).item())
