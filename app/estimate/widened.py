"""Widened: what calls cost that take logits as the text widens them, where others read them as they are. Pure.

`F.cross_entropy(x.float(), t)` of logits in 16 bits: the library is given a copy in f32, reads that, and with gradients
writes its gradient in f32, which is converted back. The region's fewest bytes hold none of it.
"""

from __future__ import annotations

from typing import NamedTuple

from app.estimate.eager_time import operation_times
from app.estimate.facts import ShapeFacts
from app.estimate.rates import Rates
from profiler.hardware import Device
from profiler.region.graph.operation import Operation

CALLS = frozenset({
    "torch.nn.functional.cross_entropy", "liger_kernel.cross_entropy", "flag_gems.cross_entropy_loss",
})  # fmt: skip
"""Those of the losses whose result has the logits' dtype; quack's and flash_attn's is f32 whatever they read."""


class Widening(NamedTuple):
    """time_us: of the conversions next to the call. forward, backward: bytes that the call moves besides."""

    time_us: float = 0.0
    forward: int = 0
    backward: int = 0


NONE = Widening()


def widening(
    shape: ShapeFacts, device: Device, call: str, rates: Rates, part: frozenset[str] | None = None
) -> Widening:
    """What the call costs besides its fewest bytes, where the text widens what it takes; nothing elsewhere.

    8192 x 128256 bf16, forward and backward, widened: flag_gems 9.9 ms, F.cross_entropy 13.5 (H200), for fewest bytes
    that take 1.0.

    call: as `call_time` has it. part: operations that the call replaces, None for all.
    """
    if call not in CALLS or shape.launched is None:
        return NONE
    trained = shape.halves is not None
    launched = shape.launched.operations
    forward = [o for o in launched if (part is None or o.name in part) and not (trained and o.line == 0)]
    cast = max((o for o in forward if _grown(o) > 0), key=_grown, default=None)
    if cast is None:
        return NONE
    times, grown = operation_times(shape, device, rates), _grown(cast)
    there = times.get(cast.name, 0.0)
    if not trained:
        return Widening(there, grown)
    back = next((times[o.name] for o in launched if o.line == 0 and _grown(o) == -grown and o.name in times), there)
    return Widening(there + back, grown, 2 * grown)


def _grown(operation: Operation) -> int:
    """Bytes by which a conversion's result is longer than what it reads; 0 of other operations."""
    if "_to_copy" not in operation.target or not operation.reads or not operation.writes:
        return 0
    return operation.writes[0].bytes - operation.reads[0].bytes
