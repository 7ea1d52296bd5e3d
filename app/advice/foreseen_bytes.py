"""Bytes that a region moves under torch.compile, by what the oracle says of it."""

from __future__ import annotations

from profiler.oracle.model import SDPA_REPLACED, Prediction
from profiler.region.cost_model import Cost


def foreseen_bytes(cost: Cost, prediction: Prediction) -> int:
    """Bytes of the generated kernels by Inductor's own count, and of the calls left to libraries by ours.

    Attention that is replaced moves the fewest bytes; where Inductor gives no count, our fusion rules' stands.
    """
    if any(r.name == SDPA_REPLACED for r in prediction.replaced):
        return cost.ideal.bytes_moved
    if prediction.bytes_moved is None:
        return cost.fused.bytes_moved
    return prediction.bytes_moved + sum(k.bytes_moved for k in cost.kernels if k.kind != "fused")
