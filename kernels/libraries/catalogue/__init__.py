"""The catalogue: 75 operations, and the calls and conditions that cover them, one file a family.

Adding a call is one Entry here, for which `python -m tools.docs.library_table` writes the page; a form written by hand
that nothing recognises yet is one Recipe in `kernels.libraries.patterns.recipes`. Torch-free.
"""

from __future__ import annotations

from kernels.libraries.catalogue import (
    attention,
    convolution,
    gemm,
    indexing,
    losses,
    norms,
    pointwise,
    quantised,
    runtime,
    sequences,
)
from kernels.libraries.model import COMPILE, Entry, Operation

_FAMILIES = (gemm, quantised, attention, norms, losses, pointwise, indexing, sequences, convolution, runtime)

OPERATIONS: tuple[Operation, ...] = tuple(
    sorted((o for family in _FAMILIES for o in family.OPERATIONS), key=lambda o: o.row)
)
"""The rows, in order."""

_ALL: tuple[Entry, ...] = tuple(e for family in _FAMILIES for e in family.ENTRIES)
ENTRIES: tuple[Entry, ...] = tuple(e for e in _ALL if e.candidate != COMPILE)
"""Library calls: torch's before others in each family."""
COMPILED: tuple[Entry, ...] = tuple(e for e in _ALL if e.candidate == COMPILE)
"""When torch.compile covers an operation."""
