"""The kernels with a file of their own, compiled for GPUs that are not here: registers, spills, occupancy, refusals."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.spec import Build, Operation
from profiler.oracle.compiler.machine_code import DEFAULT_STAGES, CompileError, compile_for

TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950")
"""A100, H100 and H200, B200, RTX 50 and RTX PRO 6000, MI300, MI350."""


@dataclass(frozen=True, slots=True)
class Built:
    """One kernel on one target. registers: 32-bit, a thread. refused: why it does not compile there, or ""."""

    operation: str
    variant: str
    target: str
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    refused: str = ""


def build(operation: Operation, item: Build, target: str) -> Built:
    """Compile one variant for one target; nothing is launched."""
    name = str(item.variant)
    if target in item.without:
        return Built(operation.name, name, target, refused=item.without[target])
    try:
        made = compile_for(
            item.variant.kernel,
            item.signature,
            dict(item.variant.constants),
            target,
            item.variant.warps,
            item.variant.stages or DEFAULT_STAGES,
            divisible=item.divisible,
            options=dict(item.variant.options),
        )
    except CompileError as fault:
        return Built(operation.name, name, target, refused=f"{fault}"[:300])
    return Built(
        operation.name, name, target, made.registers, made.spill_bytes, made.shared_bytes,
        round(made.occupancy, 3) if made.occupancy is not None else None,
    )  # fmt: skip
