"""Bytes that a region moves under torch.compile, by what the oracle says of it."""

from __future__ import annotations

from collections.abc import Iterable

from profiler.oracle.model import SDPA_REPLACED, Prediction
from profiler.region.graph.cost_model import Cost, KernelCost


def predicted_bytes(
    cost: Cost, prediction: Prediction, attention: frozenset[str] = frozenset(), attention_bytes: int = 0
) -> int:
    """Bytes of the generated kernels by Inductor's own count, and of the calls left to libraries by ours.

    attention: operations written by hand that one attention call replaces, where it does; attention_bytes: what that
    call moves, its inputs and output. Where Inductor gives no count, our fusion rules' stands.
    """
    if prediction.bytes_moved is None:
        return cost.fused.bytes_moved
    replaced = replaces_attention(prediction)
    left = sum(k.bytes_moved for k in libraries(cost, attention if replaced else frozenset()))
    return prediction.bytes_moved + left + (attention_bytes if replaced else 0)


def replaces_attention(prediction: Prediction) -> bool:
    """Whether Inductor puts one attention call in the place of what was written."""
    return any(r.name == SDPA_REPLACED for r in prediction.replaced)


def libraries(cost: Cost, attention: frozenset[str]) -> Iterable[KernelCost]:
    """Calls that no kernel is generated for, without what the attention call replaces."""
    return (k for k in cost.kernels if k.kind != "fused" and not attention.issuperset(k.operations))
