"""What a region costs on a device: bytes, FLOPs and launches, as written, fused, and ideally fused."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

Bound = Literal["memory", "compute"]


class Traffic(TypedDict):
    """Bytes; read and written are null where only their sum is known."""

    bytes_read: int | None
    bytes_written: int | None
    bytes_moved: int


class Count(Traffic):
    """Bytes, FLOPs and launches of one call."""

    flops: int
    launches: int


class CostOperation(Count):
    """One aten operation. line: of the region's text, from 1; 0 where it is of none."""

    name: str
    label: str
    kind: str
    line: int


class CostKernel(Traffic):
    """One kernel and the operations that are fused into it. flops: null for a kernel of Inductor's."""

    label: str
    kind: str
    operations: list[str]
    flops: int | None


class Saving(TypedDict):
    """What fusing would save, and how that is counted."""

    name: str
    title: str
    bytes_before: int
    bytes_after: int
    share_saved: float
    launches_before: int
    launches_after: int
    counting: str


class Dram(TypedDict):
    """What reaches the memory, as far as the L2 does not hold it. fused: null where Inductor's kernels are others."""

    unfused: Traffic
    fused: Traffic | None
    counting: str


class Ceilings(TypedDict):
    """The rates of a device that the floor is made of; measured, or the datasheet's."""

    copy_bytes_per_s: float
    matmul_flops_per_s: float
    vector_flops_per_s: float
    measured: bool
    source: str


class Cost(TypedDict):
    """What one call of the region costs on `device`. floor_us: the least time that it can take there."""

    unfused: Count
    fused: Count
    ideal: Count
    operations: list[CostOperation]
    kernels: list[CostKernel]
    savings: list[Saving]
    intensity: float
    matmul_dtype: str | None
    limit_dtype: str | None
    gemm_flops: int
    bound: Bound
    floor_us: float
    floor_counting: str
    intensity_counting: str
    dram: Dram
    device: str
    ceilings: Ceilings
