"""The least time that the host takes for a step once torch.compile made its model: no step is shorter than that.

    least = guards and autograd's engine + compiled launches x one launch + the optimizer's + launches elsewhere + waits

Of eager steps the trace tells how long the host takes from launch to launch. A compiled model has fewer launches, and
each may take longer: Inductor's wrapper is Python that allocates, looks at strides and calls the launcher.
Pure functions; times in µs of one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from app.estimate.rates import FITTED

LAUNCH_US: Mapping[Literal["low", "mid", "high"], float] = {"low": 34.0, "mid": 26.0, "high": 21.0}
"""One launch (kernel, copy or set of memory) of a compiled backward, with all that its wrapper does in between, by the
end of a prediction: "low" saves least. Backwards of six compiled models on H200s, without a profiler: time in which the
thread that launches forward stood still, over the launches of a recorded backward, 21.6 to 33.7 µs, median 25.8
(`in_steps` of tests/records/applied-h200.json; a test holds this to it). Forward the corpus's fit third has 25.6 µs
(`python -m tools.corpus.fit_host`: kernel)."""


OF_EAGER = 2.0
"""How many times as long as an eager launch of the same model a compiled one takes at most: 0.7 to 2.0 times in those
six, by their eager steps without the profiler. So a host that is faster than those takes less."""


def compiled_host_us(launches: float, trained: bool, eager_us: float, end: Literal["low", "mid", "high"]) -> float:
    """What the host takes for one call of a compiled model with so many launches, in µs. trained: forward and backward
    together, with autograd's engine; the launches are those of both. eager_us: from one eager launch to the next."""
    each_us = min(LAUNCH_US[end], OF_EAGER * max(0.0, eager_us))
    return (FITTED.host.trained if trained else FITTED.host.compiled) + each_us * max(0.0, launches)
