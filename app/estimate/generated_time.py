"""Generated time: µs of this project's generated kernels with the calls that stay, by the device's atlas."""

from __future__ import annotations

from app.atlas import price
from app.atlas.price import Total
from app.atlas.shipped import basis_of
from app.estimate.eager_time import atlas_prices, operation_times
from app.estimate.facts import RegionFacts
from app.estimate.rates import Rates
from profiler.hardware import Device


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
    return price.generated(code.launches, calls, basis.atlas, device)
