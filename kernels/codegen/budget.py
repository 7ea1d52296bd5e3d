"""How much work the generator does for one region before it gives up: advice waits for its answer."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.codegen.index import Unsupported

MAX_WORK = 2_000
"""Values asked for, operations looked at and kernels written, each by its weight, for all of a region."""
ONE_KERNEL = 10
"""Weight of one kernel's text."""


class TooLong(Unsupported):
    """The work is spent. Trying a smaller kernel does not help, so nothing but the caller catches it."""


@dataclass(slots=True)
class Budget:
    """What is left of the work for one region."""

    left: int = MAX_WORK

    def spend(self, work: int = 1) -> None:
        """Raises TooLong where less is left."""
        self.left -= work
        if self.left < 0:
            raise TooLong("too long: its kernels would take too much work to write")
