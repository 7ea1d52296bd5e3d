"""What another device would let this host call, and what of block formats none runs. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from app.estimate.facts import Cover
from profiler.hardware import Device

if TYPE_CHECKING:
    from kernels.host import Host

BLOCK_DTYPES = frozenset({"f8e8m0", "f4e2m1x2"})
"""Of block formats' numbers and scales: which calls take them is a matter of the GPU alone."""
BLOCK_CALL = "library:torch.nn.functional.scaled_mm.mx"
UNRUNNABLE = " does not run this product on "
"""The note on a call that the device lacks has it: the shell prints that note too."""


def as_host(host: Host, device: Device) -> Host:
    """This host's packages with another GPU: what could be called there, if they were installed there too.

    A GPU that is not NVIDIA's has none of CUDA's capabilities: what needs one does not run there.
    """
    numbers = re.fullmatch(r"sm_(\d+)(\d)", device.arch)
    capability = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    return replace(host, gpu=device.name, capability=capability)


def unrunnable_notes(covers: Iterable[Cover], device: Device) -> tuple[str, ...]:
    """A note where a product of block formats does not run on the device as it is written, and what does, if any."""
    known = tuple(covers)
    written = next((c for c in known if c.candidate == BLOCK_CALL and not c.covers), None)
    if written is None:
        return ()
    lacks = "; ".join(text for text, holds in written.conditions if holds is False)
    others = [c.candidate.removeprefix("library:") for c in known if c.covers and c.operations >= written.operations]
    instead = f"{' and '.join(others)} would" if others else "no call is known that does"
    return (
        f"torch._scaled_mm does not run this product on {device.name} ({device.arch}): it needs {lacks}; {instead}",
    )
