"""Helion's language as its documentation has it, run tile by tile on the CPU: what a source computes, without Helion.

A tile is a slice of so many indices as `block` says, the last one shorter; `hl.dot` multiplies in f32 and adds. What a
source uses beyond that raises AttributeError.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch


def _tiles(size: int, block: int) -> list[slice]:
    return [slice(start, min(start + block, size)) for start in range(0, size, block)]


def modules(block: int) -> dict[str, ModuleType]:
    """`helion` and `helion.language` for tiles of this many indices."""
    helion, language = ModuleType("helion"), ModuleType("helion.language")

    def kernel(**_: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return lambda function: function

    def tile(sizes: int | Sequence[int]) -> Iterator[Any]:
        if isinstance(sizes, int):
            yield from _tiles(sizes, block)
        else:
            yield from itertools.product(*(_tiles(s, block) for s in sizes))

    def zeros(tiles: Sequence[slice], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros([t.stop - t.start for t in tiles], dtype=dtype)

    def dot(a: torch.Tensor, b: torch.Tensor, acc: torch.Tensor) -> torch.Tensor:
        return acc + a.float() @ b.float()

    for name, made in (("tile", tile), ("zeros", zeros), ("dot", dot)):
        setattr(language, name, made)
    setattr(helion, "kernel", kernel)  # noqa: B010 - a module made here has no such attribute to assign to
    setattr(helion, "language", language)  # noqa: B010
    return {"helion": helion, "helion.language": language}


def run(text: str, values: Sequence[torch.Tensor], block: int) -> tuple[torch.Tensor, ...]:
    """What the source's function returns for these inputs."""
    kept = {name: sys.modules.get(name) for name in ("helion", "helion.language")}
    sys.modules.update(modules(block))
    try:
        space: dict[str, Any] = {}
        exec(compile(text, "region_in_helion.py", "exec"), space)  # noqa: S102 - a source made here
        result = space["region"](*values)
    finally:
        for name, module in kept.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return result if isinstance(result, tuple) else (result,)
