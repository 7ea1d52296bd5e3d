"""What `kernels.kernel_listing` says of a region, as data. No torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Own:
    """candidate: its fixed name, "" where there is none and `reason` says why. call: what the user writes.

    source: the kernel's text; of a kernel with a file of its own the jit functions that its tuner chooses among.
    others: further Triton candidates that would do.
    """

    candidate: str = ""
    call: str = ""
    source: str = ""
    others: tuple[str, ...] = ()
    reason: str = ""
