"""Generated time: µs of this project's generated kernels with the calls that stay, by the device's atlas."""

from __future__ import annotations

import math

from app.atlas import price
from app.atlas.atlas import Atlas, Price
from app.atlas.operation_items import operation_item
from app.atlas.price import Total
from app.atlas.shipped import basis_of
from app.estimate.eager_time import atlas_prices, operation_times
from app.estimate.facts import RegionFacts
from app.estimate.fused_time import bytes_us
from app.estimate.rates import Rates
from kernels.codegen.index import contiguous_strides
from kernels.codegen.traits_model import LaidOut
from profiler.hardware import Device
from profiler.region import op_kinds
from profiler.region.graph.operation import Operation, Tensor
from profiler.region.model import ITEMSIZE


def generated_total(facts: RegionFacts, device: Device, rates: Rates) -> Total | None:
    """At the heaviest binding. None where nothing is generated, where the atlas has no such kernels, and where a call
    that stays is none of the region's operations."""
    shape, code = facts.heaviest, facts.generated
    basis = basis_of(device, rates.scaled) if rates.atlas else None
    if shape is None or code is None or basis is None:
        return None
    times, known = operation_times(shape, device, rates), atlas_prices(shape, device, rates)
    if any(name not in times for name in code.calls):
        return None
    calls = [(name, times[name], known[name][0] if name in known else None) for name in code.calls]
    copies = [_copied(gradient, basis.atlas, device, rates) for gradient in code.laid_out]
    return price.generated(code.launches, [*calls, *copies], basis.atlas, device)


def _copied(gradient: LaidOut, atlas: Atlas, device: Device, rates: Rates) -> tuple[str, float, Price | None]:
    """(name, µs, price) of the copy of a gradient: by the atlas's copies, else by its bytes."""
    size = math.prod(gradient.shape) * ITEMSIZE.get(gradient.dtype, 4)
    given = Tensor(gradient.shape, contiguous_strides(gradient.shape), gradient.dtype, 0, size)
    made = Tensor(gradient.shape, gradient.strides, gradient.dtype, 1, size)
    copy = Operation("gradient", COPY, "copy", op_kinds.COPY, (), (given,), (made,), 0, 0)
    item = operation_item(copy)
    known = None if item is None else atlas.price(item, device)
    if known is not None:
        return "a gradient's copy", known.cold_us, known
    return "a gradient's copy", rates.times.eager_kernel + bytes_us(2 * size, rates.eager.strided_copy, device), None


COPY = "aten.clone.default"
