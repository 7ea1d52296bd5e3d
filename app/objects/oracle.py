"""What torch.compile makes of a region, as Inductor says."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.objects.common import Binding

Stage = Literal["forward", "backward"]


class OracleKernel(TypedDict):
    """One Triton kernel that Inductor would write. calls: launches in one call of the region.

    source: left out of lists. lines: of the region's text, from 1.
    """

    name: str
    kind: str
    calls: int
    bytes_moved: int | None
    operations: list[str]
    source: NotRequired[str]
    stage: Stage
    lines: list[int]


class OracleExtern(TypedDict):
    """A call that Inductor leaves to a library."""

    name: str
    calls: int
    stage: Stage


class OracleReplaced(TypedDict):
    """What Inductor puts in the place of what was written."""

    name: str
    because: str


class OraclePrediction(TypedDict):
    """What torch.compile makes of the region in one mode. unavailable: why there is none; then the rest is empty.

    assumed: what Inductor would decide by timing. symbolic: sizes stayed symbolic. took_s: seconds of the answer.
    """

    device: str
    mode: str
    binding: Binding
    training: bool
    kernels: list[OracleKernel]
    externs: list[OracleExtern]
    replaced: list[OracleReplaced]
    assumed: list[str]
    symbolic: bool
    how: str
    torch: str
    triton: str
    took_s: float
    unavailable: str
    launches: int
    bytes_moved: int | None


class Recompiles(TypedDict):
    """How torch.compile meets sizes that vary, in the order of `bindings`.

    served: for each binding the number of the graph that it runs, from 0. limit: after how many graphs torch.compile
    gives up and runs eagerly. because: why there is no symbolic graph.
    """

    bindings: list[Binding]
    served: list[int]
    graphs: int
    limit: int
    because: str
    symbolic: OraclePrediction | None
    recompiled: int
    gives_up: bool
