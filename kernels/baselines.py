"""What every validation compares with: the region as it stands, and torch.compile in its modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from profiler.region.language.program import program
from profiler.region.model import Region

Runner = Callable[..., tuple[torch.Tensor, ...]]

MODES: Mapping[str, str | None] = {
    "compile": None,
    "compile-max-autotune": "max-autotune-no-cudagraphs",
    "compile-reduce-overhead": "reduce-overhead",
}
"""Candidate -> torch.compile's mode; None is its default."""

GRAPHED = frozenset({"compile-reduce-overhead"})
"""Candidates that replay CUDA graphs: the next call overwrites the outputs of the last one."""

CALLS: Mapping[str, str] = {
    "eager": "region(*inputs)",
    "compile": "torch.compile(region)",
    "compile-max-autotune": 'torch.compile(region, mode="max-autotune-no-cudagraphs")',
    "compile-reduce-overhead": 'torch.compile(region, mode="reduce-overhead")',
}


def with_gradients(module: Callable[..., Any], requires_grad: bool) -> Runner:
    """module under no_grad where nothing requires a gradient; else as it is, for autograd to record.

    The outputs are those of the region; gradients are the caller's to ask for.
    """

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.set_grad_enabled(requires_grad):
            return tuple(module(*inputs))

    return run


def eager(region: Region, binding: Mapping[str, int] | None, device: str) -> Runner:
    """The region's own program, operation by operation."""
    return with_gradients(program(region, binding, device).module, region.requires_grad)


def compiled(region: Region, binding: Mapping[str, int] | None, device: str, mode: str | None) -> Runner:
    """The region's program under torch.compile, sizes fixed; compiles at the first call.

    In mode reduce-overhead outputs lie in the graph's own memory, which the next call overwrites: clone what is kept.
    """
    torch._dynamo.reset()
    module = torch.compile(program(region, binding, device).module, mode=mode, dynamic=False, fullgraph=True)
    runner = with_gradients(module, region.requires_grad)
    return _stepping(runner) if mode == "reduce-overhead" else runner


def _stepping(runner: Runner) -> Runner:
    """Each call is a step of its own: CUDA graphs may overwrite the last one's outputs, whoever still holds them."""

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return runner(*inputs)

    return run
