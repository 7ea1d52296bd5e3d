"""What an advice was issued on, kept with its region: the same advice can be issued again, with more known. Torch-free.

What follows from the region's text (its cost, its libraries) is computed again; what does not is here: how the region
is used, what its trace saw, and what the user asked for. The thresholds are the server's, whenever it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from app.objects.region import StoredInputs
from profiler.region.model import Workload
from profiler.trace.analyze.compile_blockers import CompileBlocker

VERSION = 1
"""Of the stored form. A program reads its own alone and takes any other for nothing: what is asked again then goes by
what is shown."""


MAX_KERNEL_NAMES, MAX_NAME = 12, 160
"""How many of a region's kernels its advice goes by, and the longest part of a name."""


def kept_names(kernel_names: Sequence[str]) -> tuple[str, ...]:
    """Of a region's kernels those whose names its advice is issued on."""
    return tuple(name[:MAX_NAME] for name in kernel_names[:MAX_KERNEL_NAMES])


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What a trace says of a region that its text does not: fields of RegionFacts. None where the trace is silent.

    title: as the trace's report names the region, "" for the title of its operations. optimizer_class: of an
    optimizer's step, as its annotation names it. kernel_names: of its kernels, the most launched first.
    library_call: of a custom operation, whose it is and what it computes. share_predicted: the step is predicted,
    not recorded. tf32_is_on: most of the step's f32 products run in TF32.
    """

    title: str = ""
    gpu_idle_share: float | None = None
    mean_kernel_us: float | None = None
    launches: float | None = None
    compiled: bool | None = None
    optimizer: bool | None = None
    already_tuned: bool | None = None
    communication: bool | None = None
    obstacles: tuple[CompileBlocker, ...] = ()
    optimizer_class: str = ""
    kernel_names: tuple[str, ...] = ()
    library_call: str = ""
    share_predicted: bool | None = None
    tf32_is_on: bool | None = None

    def known(self) -> dict[str, Any]:
        """The fields that are known, by the name that RegionFacts has for them: keywords, each of its field's type."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value not in (None, "", ())}


@dataclass(frozen=True, slots=True)
class AdviceInputs:
    """How a region is used, where, and what its trace saw.

    device: by its name in the table, for which the region was analyzed and on which its times were observed; None for
    the host's. target: the device that the advice is for where that is another one. notes: what the advice says of
    where it is from. workload without bindings: those of the text.
    """

    device: str | None = None
    workload: Workload = field(default_factory=Workload)
    observed: TraceFacts = field(default_factory=TraceFacts)
    objective: str = "time"
    notes: tuple[str, ...] = ()
    target: str | None = None
    version: int = VERSION


def to_stored(inputs: AdviceInputs) -> StoredInputs:
    """The inputs as JSON, for the store. When each blocker was met is left out: no advice says it."""
    observed = inputs.observed
    blockers = tuple(replace(blocker, at=()) for blocker in observed.obstacles)
    stored: StoredInputs = msgspec.to_builtins(replace(inputs, observed=replace(observed, obstacles=blockers)))
    return stored


def from_stored(stored: object) -> AdviceInputs | None:
    """Inputs that `to_stored` wrote; None for nothing, for another version's and for what cannot be read."""
    if not isinstance(stored, dict) or stored.get("version") != VERSION:
        return None
    try:
        return msgspec.convert(stored, AdviceInputs)
    except msgspec.ValidationError:
        return None
