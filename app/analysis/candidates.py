"""The names of everything that a validation may be asked to measure."""

from __future__ import annotations

from functools import cache


@cache
def known_names() -> tuple[str, ...]:
    """Every candidate's name, whatever the region: which of them fit one is for the measurement to say."""
    from kernels.baselines import MODES  # imports torch, as the next two do
    from kernels.candidates import GENERATED, HELION
    from kernels.hand_written import WRITTEN
    from kernels.libraries.catalogue import ENTRIES

    libraries = sorted({entry.candidate for entry in ENTRIES})
    return ("eager", *MODES, *(kernel.name for kernel in WRITTEN), GENERATED, HELION, *libraries)
