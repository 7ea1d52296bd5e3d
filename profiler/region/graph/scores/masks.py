"""Code of one score and its place as a function, and what of the scores a mask of positions keeps."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from typing import Any

import torch

from profiler.region.graph.scores.text import COLUMN, ROW

Tensor = torch.Tensor
Modifier = Callable[..., Any]
SCORE_MOD, MASK_MOD = f"score_mod(score, b, h, {ROW}, {COLUMN})", f"mask_mod(b, h, {ROW}, {COLUMN})"


@dataclass(frozen=True, slots=True)
class Sizes:
    """batch, heads of queries, heads of keys and values, rows, columns."""

    batch: int
    heads: int
    groups: int
    rows: int
    columns: int


@functools.lru_cache(maxsize=256)
def function(head: str, code: str, tensors: tuple[str, ...]) -> Callable[..., Modifier]:
    """What makes the function of the tensors that its code reads.

    The code is `rules`': indices, numbers, `tensor0` and operations of fixed tables, nothing that a text says.
    """
    name = head.partition("(")[0]
    text = f"def made({', '.join(tensors)}):\n    def {head}:\n        return {code}\n    return {name}\n"
    loader = _Generated(f"import torch\n\n\n{text}")
    called = f"tritonworthy_{name}_{sha256(text.encode()).hexdigest()[:16]}"
    module = module_from_spec(ModuleSpec(called, loader))
    sys.modules[called] = module  # Dynamo looks a function's module up by its name
    loader.exec_module(module)
    made: Callable[..., Modifier] = module.made
    return made


class _Generated(InspectLoader):
    """A module of generated code, as the kernels' files are, without a file."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get_source(self, fullname: str) -> str:
        """Its code."""
        return self.text


MOST_ROWS = 512
BLOCK = 128
"""Rows and columns of FlexAttention's blocks."""


def kept_at(code: str, batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """A mask of positions at these places, spread to all of them."""
    kept: Tensor = function(MASK_MOD, code, ())()(batch, head, row, column)
    return kept | torch.zeros_like(batch + head + row + column, dtype=torch.bool)


def _sampled(sizes: Sizes) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Some heads and rows, as far from each other, and every column."""
    rows = torch.linspace(0, sizes.rows - 1, min(MOST_ROWS, sizes.rows), dtype=torch.float64).round().long()
    heads = torch.linspace(0, sizes.heads - 1, min(4, sizes.heads)).long()
    return torch.zeros(1, 1, 1, 1).long(), heads.view(-1, 1, 1), rows.view(-1, 1), torch.arange(sizes.columns)


@functools.lru_cache(maxsize=256)
def hides_rows(code: str, sizes: Sizes) -> bool:
    """Some row is hidden as a whole. What is left of its softmax goes by how low the numbers are that hide it."""
    batch, head, row, column = _sampled(sizes)
    ends = torch.cat((row.flatten(), torch.arange(min(BLOCK, sizes.rows)), torch.arange(sizes.rows)[-BLOCK:]))
    return not bool(kept_at(code, batch, head, ends.view(-1, 1), column).any(-1).all())


@functools.lru_cache(maxsize=256)
def kept_share(code: str, sizes: Sizes, block: int = 1) -> float:
    """Share of the scores that a mask of positions keeps; of blocks of so many columns and rows that hold one."""
    if not code:
        return 1.0
    batch, head, row, column = _sampled(sizes)
    if block > 1:
        starts = torch.arange(0, sizes.rows, block)
        if len(starts) > 32:
            starts = starts[torch.linspace(0, len(starts) - 1, 32).long()]
        row = (starts[:, None] + torch.linspace(0, block - 1, min(8, block)).long()).clamp(max=sizes.rows - 1)
        kept = kept_at(code, batch[..., None], head[..., None], row[..., None], column)
        spare = -sizes.columns % block
        kept = torch.nn.functional.pad(kept.any(-2), (0, spare))
        kept = kept.view(*kept.shape[:-1], -1, block).any(-1)
        return float(kept.float().mean())
    return float(kept_at(code, batch, head, row, column).float().mean())
