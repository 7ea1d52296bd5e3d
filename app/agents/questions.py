"""What the tools are asked, as the server sends it to its worker. Paths are relative to the server's folder."""

from __future__ import annotations

from typing import Literal, TypeAlias

from typing_extensions import TypedDict


class AdviseTrace(TypedDict):
    """Of `advise_trace`. device: to predict for, None for the trace's own; inductor: ask torch.compile's compiler."""

    tool: Literal["advise_trace"]
    path: str
    companion: str | None
    execution_trace: str | None
    device: str | None
    inductor: bool


class AdviseModule(TypedDict):
    """Of `advise_module`. program: FILE.py:FUNCTION, hf:CONFIG.json or def:DEFINITION.json; dtype, batch, sequence,
    sizes: as profiler.program.request.Request has them. budget_s: that recording may take, None: the usual limit."""

    tool: Literal["advise_module"]
    program: str
    device: str | None
    training: bool
    dtype: str | None
    batch: int | None
    sequence: int | None
    sizes: dict[str, int] | None
    inductor: bool
    budget_s: float | None


class RegionText(TypedDict):
    """A region's text: one of both."""

    path: str | None
    text: str | None


class AdviseRegion(RegionText):
    """Of `advise_region`. share: of the step, 0 to 1."""

    tool: Literal["advise_region"]
    device: str | None
    share: float | None
    step_time_us: float | None
    inductor: bool


class Validate(RegionText):
    """Of `validate`: a region's text, or region number `region` of a trace. kernel: FILE.py:FUNCTION."""

    tool: Literal["validate"]
    trace: str | None
    region: int | None
    kernel: str | None
    candidates: list[str] | None
    budget_s: float | None
    cpu: bool


class ExplainKernel(TypedDict):
    """Of `explain_kernel`. name: of a kernel, or part of it."""

    tool: Literal["explain_kernel"]
    path: str
    name: str


Question: TypeAlias = AdviseTrace | AdviseModule | AdviseRegion | Validate | ExplainKernel
