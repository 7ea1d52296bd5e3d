"""Softmax over the last axis, whichever kernel computes it: the result as torch has it, arguments, and traffic."""

from __future__ import annotations

import torch

from kernels.spec import Case, Cost, Maker, wide


def reference(x: torch.Tensor, widen: bool = False) -> torch.Tensor:
    """Softmax over the last axis as torch has it."""
    return torch.softmax(wide(x) if widen else x, -1)


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, bool]:
    """Arguments to try it on."""
    return make.normal((c["rows"], c["columns"]), c.torch_dtype, scale=3.0), bool(c.get("widen", False))


def cost(c: Case) -> Cost:
    """Read and written once."""
    return Cost(bytes=c["rows"] * c["columns"] * (c.itemsize + (4 if c.get("widen") else c.itemsize)))
