"""Loads a region's Helion source and makes it a candidate. For a child process only: Helion tunes in it.

Helion 1.5.1 is read here; it wants torch 2.9 and Triton 3.5 or newer (its README).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from kernels.codegen.helion.source import HelionSource, write
from kernels.codegen.index import Unsupported
from kernels.codegen.text.source import load_text
from profiler.region.graph.lowering import Graph

TUNING_S = 60
"""Seconds that Helion may search for the fastest configuration of one kernel. Its own full search takes about ten
minutes (vllm#46526)."""

SETTINGS: Mapping[str, str] = MappingProxyType({
    "HELION_AUTOTUNE_EFFORT": "quick",
    "HELION_AUTOTUNE_BUDGET_SECONDS": str(TUNING_S),
    "HELION_AUTOTUNE_PROGRESS_BAR": "0",
})  # fmt: skip
"""Set before its first kernel is made, unless the user has set them: what Helion reads when a kernel is declared."""


def build(graph: Graph) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The region's callable; raises Unsupported where there is no source, or no Helion to run it."""
    source = write(graph)
    if importlib.util.find_spec("helion") is None:
        raise Unsupported("helion is not installed here: pip install helion==1.5.0")
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if importlib.util.find_spec("sklearn") is None:  # which its own default search learns with
        os.environ.setdefault("HELION_AUTOTUNER", "PatternSearch")
    module = load_text(source.text, key_of(source))

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = module.region(*inputs)
        return result if isinstance(result, tuple) else (result,)

    return run


def key_of(source: HelionSource) -> str:
    """Of the text: equal in every process."""
    return hashlib.sha256(source.text.encode()).hexdigest()[:24]
