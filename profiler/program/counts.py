"""How many tokens each of a router's experts gets under an even spread: numbers, and what is computed of them alone.

They are kept as tensors on the host, beside those without memory. Pure functions of calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from profiler.program.routing import MOST_EXPERTS, Routed
from profiler.region.graph.tracing import tensors_in

MOST_KEPT = 4 * MOST_EXPERTS
"""Values that are kept of one tensor."""


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """values: on the host. routed: of whose choice they follow."""

    values: torch.Tensor
    routed: Routed

    def said(self) -> str:
        """The assumption in words."""
        with torch._C._DisableTorchDispatch():
            ends = (self.values.min().item(), self.values.max().item()) if self.values.numel() else ()
        span = dict.fromkeys(str(v) if isinstance(v, bool) else f"{v:,}" for v in ends)
        return f"{self.routed.spread()}: {' to '.join(span) or 'none'}"


def counted(name: str, routed: Routed, args: Sequence[Any], result: Any) -> Counts | None:
    """Of a call on what is routed so: how often each expert was picked, or one of them; None for another result."""
    total = _TOTALS[name](routed, args, result) if name in _TOTALS and isinstance(result, torch.Tensor) else None
    if total is None or result.dim() > 1:
        return None
    experts = routed.experts if result.dim() else 1
    if result.numel() < experts:
        return None
    whole = [total * (n + 1) // experts - total * n // experts for n in range(experts)]
    values = torch.tensor([*whole, *[0] * (result.numel() - experts)], dtype=result.dtype, device="cpu")
    return Counts(values.reshape(result.shape), routed)


def computed(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], known: Mapping[torch.Tensor, Counts]) -> Any:
    """What a call gives whose tensors are all known; None for another."""
    tensors = list(tensors_in((args, kwargs)))
    if not tensors or func.namespace != "aten" or func._schema.name.startswith(_WITHOUT_VALUES):
        return None
    if not all(t in known or t.device.type == "cpu" for t in tensors) or not any(t in known for t in tensors):
        return None

    def on_host(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value in known:
            return known[value].values
        return torch.device("cpu") if isinstance(value, torch.device) else value

    try:
        return func(*tree_map(on_host, tuple(args)), **tree_map(on_host, dict(kwargs)))
    except (NotImplementedError, RuntimeError, TypeError):
        return None


_WITHOUT_VALUES = ("aten::empty", "aten::new_empty", "aten::rand", "aten::_local_scalar_dense")


def _picks(routed: Routed, args: Sequence[Any], result: torch.Tensor) -> int | None:
    """Numbers of experts, each counted once: by bincount without weights, by histc in as many parts."""
    weighted = len(args) > 1 and isinstance(args[1], torch.Tensor)
    return None if weighted or routed.density is not None else args[0].numel()


def _bins(routed: Routed, args: Sequence[Any], result: torch.Tensor) -> int | None:
    return _picks(routed, args, result) if result.numel() in (routed.experts, routed.experts + 1) else None


def _added(routed: Routed, args: Sequence[Any], result: torch.Tensor) -> int | None:
    """Whole numbers, which are ones, added up where the numbers of experts say."""
    counts = routed.density is None and not result.is_floating_point() and result.dim() == 1
    return int(args[2].numel()) if counts else None


def _true(routed: Routed, args: Sequence[Any], result: torch.Tensor) -> int | None:
    """Of a mask: all of it, or what is true for each expert. One more than the experts is for padding, and empty.

    Density 1: what was added up before.
    """
    parts = result.numel() if result.dim() else routed.experts
    if routed.density is None or routed.density >= 1 or parts not in (routed.experts, routed.experts + 1):
        return None
    elements: int = args[0].numel() // parts * routed.experts if result.dim() else args[0].numel()
    return round(routed.density * elements)


_TOTALS = {
    "bincount": _picks,
    "histc": _bins,
    "scatter_add": _added,
    "scatter_add_": _added,
    "index_add": _added,
    "index_add_": _added,
    "sum": _true,
}
"""How many picks a call counts; None where it counts something else."""
