"""What `kernels.kernel_listing` says of a region, as data. No torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One kernel of a listing. lines: of the region's text, from 1, that it computes."""

    name: str
    source: str
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Own:
    """candidate: its fixed name, "" where there is none and `reason` says why. call: what the user writes.

    source: the kernel's text; of a kernel with a file of its own the jit functions that its tuner chooses among.
    others: further Triton candidates that would do. parts: the source by kernel, all of it where it is one file.
    """

    candidate: str = ""
    call: str = ""
    source: str = ""
    others: tuple[str, ...] = ()
    reason: str = ""
    parts: tuple[Part, ...] = ()
