"""A Triton kernel, and what the compiler makes of it for one GPU."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from app.objects.landscape import Constant
from app.objects.oracle import OracleKernel


class Finding(TypedDict):
    """One decision of the compiler, with the lines of the kernel's source that show it."""

    subject: str
    text: str
    lines: list[int]


class Tally(TypedDict):
    """How many instructions of one kind and width there are. bits: that one thread moves with each."""

    kind: str
    bits: int | None
    count: int


class SourceLine(TypedDict):
    """One line of the kernel's source and the instructions that came of it; number 0: those without a line."""

    number: int
    text: str
    tallies: list[Tally]


class MatrixInstruction(TypedDict):
    """A matrix instruction, with its shape and types where the listing names them."""

    instruction: str
    shape: str
    types: str
    count: int
    line: int


class Buffer(TypedDict):
    """Shared memory that a pipelined loop fills ahead: `copies` tiles of one shape and element type."""

    copies: int
    shape: list[int]
    dtype: str
    line: int


class Machine(TypedDict):
    """A kernel compiled for one GPU. texts: ttir, ttgir, llir, ptx, sass. Null: the target's tools do not tell.

    registers, stack_bytes: of a thread. spill_bytes, spill_load_bytes: stored and loaded for want of registers. blocks,
    occupancy: what a processor holds at once, and the share of its threads that it is; limited_by: what runs out first.
    cut: the full length in characters of the texts that were cut. config: which of `configs` configurations.
    """

    target: str
    kernel: str
    num_warps: int
    num_stages: int
    block_warps: int
    constants: list[list[Constant]]
    registers: int | None
    stack_bytes: int | None
    spill_bytes: int | None
    spill_load_bytes: int | None
    shared_bytes: int
    blocks: int | None
    occupancy: float | None
    limited_by: str
    lines: list[SourceLine]
    matrix: list[MatrixInstruction]
    buffers: list[Buffer]
    warp_specialized: bool
    config: int
    configs: int
    source: str
    triton: str
    took_s: float
    texts: dict[str, str]
    cut: dict[str, int]
    findings: NotRequired[list[Finding]]


class Kernel(TypedDict):
    """One of Inductor's kernels, and what Triton's compiler decides about it for the region's GPU."""

    region_id: str
    key: str
    mode: str
    device: str
    arch: str
    kernel: OracleKernel
    machine: Machine
    findings: list[Finding]


class OwnKernel(TypedDict):
    """The Triton kernel that this app has for a region. candidate: "" where there is none, and `reason` says why.

    call: what the user writes. others: further Triton candidates that would do.
    """

    candidate: str
    call: str
    source: str
    others: list[str]
    reason: str


class Machines(TypedDict):
    """The kernels that one call of a candidate launches."""

    kernels: list[Machine]


class OwnMachines(TypedDict):
    """What the compiler makes of each kernel that one call of a candidate launches, with its findings."""

    candidate: str
    device: str
    arch: str
    kernels: list[Machine]
