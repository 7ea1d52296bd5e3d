"""µs of each operation of a recorded step on a device, by the same rules as eager's time of a region."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.atlas.shipped import Launched, prices_of
from app.estimate.eager_time import operation_us, weighed
from app.estimate.rates import FITTED, Rates
from app.estimate.region_features import operation_facts
from app.program.reads import is_copy
from profiler.hardware import Device
from profiler.program.model import Call, Program
from profiler.region.graph.cost import operation_cost
from profiler.region.graph.operation import Operation


@dataclass(frozen=True, slots=True)
class Prices:
    """times_us: call -> µs, of calls that launch a kernel. known: share of it that the atlas has points for."""

    times_us: dict[int, float]
    known: float


def prices(program: Program, device: Device, rates: Rates = FITTED) -> Prices:
    """Each operation behind the one before it, with what that left in L2."""
    operations = {
        index: _in_causal_order(call, call.operation)
        for index, call in enumerate(program.calls)
        if call.operation is not None and not is_copy(call) and not _is_of_nothing(call.operation)
    }
    costs = {index: cost for index, operation in operations.items() if (cost := operation_cost(operation)).launches}
    operations = {index: operations[index] for index in costs}
    known = prices_of(Launched(tuple(operations.values())), device, rates.scaled)
    times_us, said_us = {}, 0.0
    for index, operation in operations.items():
        time_us = operation_us(costs[index], operation_facts(operation), device, rates)
        if operation.name in known:
            time_us = weighed(time_us, *known[operation.name])
            said_us += time_us
        times_us[index] = time_us
    total_us = sum(times_us.values())
    return Prices(times_us, said_us / total_us if total_us else 0.0)


CAUSAL = {
    "flash_attention": 4, "efficient_attention": 6, "cudnn_attention": 6, "flash_attention_backward": 11,
    "efficient_attention_backward": 11, "cudnn_attention_backward": 14,
}  # fmt: skip
"""Calls of attention with the place of `is_causal` among their arguments."""


def _in_causal_order(call: Call, operation: Operation) -> Operation:
    """Attention that leaves out what lies ahead with half of the FLOPs, as regions count it; torch counts all of it."""
    place = CAUSAL.get(call.name.rpartition("_scaled_dot_product_")[2], len(call.signature.concrete))
    if call.signature.concrete[place : place + 1] != ("True",):
        return operation
    return replace(operation, flops=operation.flops // 2)


def _is_of_nothing(operation: Operation) -> bool:
    """All that it writes has no elements: torch launches nothing for it."""
    written = (*operation.writes, *operation.mutated)
    return bool(written) and not any(tensor.elements for tensor in written)
