"""How many tensors a recorded operation gives and how many rounds it takes, from its arguments and before it runs.

Anybody can write a trace: one `aten::unsafe_split` of 2^30 rows would give 2^30 tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from profiler.region.limits import MAX_ITEMS

MAX_ROUNDS = 64
"""Of one operation that is made of itself: differences of differences."""


def is_bounded(schema: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether the call gives at most MAX_ITEMS tensors in at most MAX_ROUNDS rounds.

    arguments: by the schema's names, tensors on meta. A list whose length the arguments do not tell is not bounded.
    """
    number = results(schema, arguments)
    return number is not None and number <= MAX_ITEMS and _rounds(schema, arguments) <= MAX_ROUNDS


def results(schema: Any, arguments: Mapping[str, Any]) -> int | None:
    """Tensors that the call gives, or a bound on them; None where the arguments do not tell."""
    if not any(str(r.type) == "List[Tensor]" for r in schema.returns):
        return len(schema.returns)
    size = _size(arguments)
    for name in ("split_size", "split_sizes"):
        given = arguments.get(name)
        if isinstance(given, list):
            return len(given)
        if isinstance(given, int):
            return max(1, -(-size // given)) if given > 0 else 1
    chunks, sections, indices = (arguments.get(n) for n in ("chunks", "sections", "indices"))
    if isinstance(chunks, int):
        return min(chunks, size) if size else chunks  # nothing is cut into as many pieces as are asked for
    if isinstance(sections, int):
        return sections
    if isinstance(indices, list):
        return len(indices) + 1
    if schema.name == "aten::unbind":
        return size
    if schema.name == "aten::where":
        return arguments["condition"].dim() if isinstance(arguments.get("condition"), torch.Tensor) else None
    lists = [v for v in arguments.values() if isinstance(v, list) and all(isinstance(t, torch.Tensor) for t in v)]
    return sum(map(len, lists)) if any(lists) else None


def _size(arguments: Mapping[str, Any]) -> int:
    """The tensor's size along the dimension that is named, else along the first; 0 where torch will refuse it."""
    tensor, dim = arguments.get("self"), arguments.get("dim", 0)
    if not isinstance(tensor, torch.Tensor) or not isinstance(dim, int) or not -tensor.dim() <= dim < tensor.dim():
        return 0
    return int(tensor.shape[dim])


def _rounds(schema: Any, arguments: Mapping[str, Any]) -> int:
    number = arguments.get("n") if schema.name == "aten::diff" else 1
    return number if isinstance(number, int) else 1
