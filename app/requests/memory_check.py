"""Whether a region can be measured at all: no job is queued for inputs that the GPU cannot hold."""

from __future__ import annotations

import math

from app.errors import Problem
from profiler.hardware import DEVICES, Device
from profiler.region.model import ITEMSIZE, Region

LARGEST_BYTES = max(device.memory_bytes for device in DEVICES)
"""Memory of the largest GPU of the table: the bound where the host has none, or one that is not known."""


def input_bytes(region: Region) -> int:
    """Bytes of all inputs together, for the binding that has the most."""
    return max(
        sum(
            math.prod(size if isinstance(size, int) else binding[size] for size in item.shape) * ITEMSIZE[item.dtype]
            for item in region.inputs
        )
        for binding in region.bindings
    )


def check_fits(text: str, device: Device | None) -> None:
    """Problem 422 where a region's inputs alone exceed the GPU's memory, of which outputs and checks need more.

    What the other tensors need is known when it is measured: a candidate that runs out of memory says so.
    """
    from profiler.region.language.text import parse

    needed, there = input_bytes(parse(text)), device.memory_bytes if device else LARGEST_BYTES
    if needed > there:
        name = device.name if device else "the largest GPU that is known"
        detail = f"The inputs are {needed / 1e9:,.0f} GB together; {name} has {there / 1e9:,.0f} GB."
        raise Problem(422, "region-too-large", "The region cannot be measured", detail)
