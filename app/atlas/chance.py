"""Chance: kernels of which Inductor takes one of several configurations by a time that is not theirs.

Its benchmark copies what a kernel writes over, between the two events, in each call: the host takes 100 to 500 µs for
that, and a kernel that is shorter is timed at the host's pace (docs/oracle.md, "Where Inductor chooses by chance"). The
same program then takes one time in one compilation and another in the next.
"""

from __future__ import annotations

import math

from profiler.oracle.model import PERSISTENT
from profiler.oracle.traits_model import KernelTraits

DEVIATION = 0.25
"""Standard deviation of the logarithm of time that the choice adds. Each recorded kernel of this kind predicted by all
others of its atlas: 157 of an H200 are off by a deviation of 0.34 and 162 of an H100 by 0.36; 68 % and 69 % were inside
the 80 % interval without it, and 82 % and 80 % are with it."""
SELDOM, SLOW = 0.1, 2.2
"""Of these kernels 9 % and 10 % took more than 1.6 times what the others say, 2.05 and 2.32 times in the geometric
mean; of kernels of the same sizes that write over nothing 4 %."""
TAIL = 1.0 + SELDOM * (SLOW - 1.0)
SHORTEST, LONGEST = 8, 128
"""Elements of a row. Of shorter rows every configuration is about as fast, and of longer ones there are few: recorded
kernels of either are off by 0.1 to 0.2, as others are."""


def chosen_by_chance(traits: KernelTraits) -> bool:
    """Whole rows of neighbours held in registers, with an argument that is written over."""
    columns = math.prod(size for axis, size in traits.sizes if axis.startswith("r"))
    outer = str(traits.reduction_hint or "").startswith("OUTER")
    return traits.kind == PERSISTENT and bool(traits.mutated) and not outer and SHORTEST <= columns <= LONGEST
