"""The process that compiles one kernel's points for a GPU that is not here. Nothing is launched, nothing is timed.

The candidate is called on tensors without memory; what it would launch is handed to Triton's compiler instead.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as HopperDescriptor
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels import tuning
from kernels.measure.candidate.worker import serve
from kernels.measure.landscape.grid import Cell, cells, key_of
from kernels.measure.landscape.messages import (
    CompileRequest,
    Machine,
    Open,
    Opened,
    PointResult,
    RunPoint,
    compile_request,
)
from kernels.measure.landscape.tuned_kernels import TunedKernel, tuned_kernels
from kernels.measure.landscape.worker import MOST_REASON, NothingTunedError
from kernels.measure.processes.channel import Channel
from kernels.ops.matmul import gemm
from kernels.tuning import Limits, Variant
from profiler.oracle.compiler.machine import Machine as Compiled
from profiler.oracle.compiler.machine_code import DEFAULT_STAGES, CompileError, compile_for, multiples_of_16
from profiler.oracle.compiler.targets import TARGETS
from profiler.region.language.program import program
from profiler.region.language.text import parse

DIVISIBLE = 16
NO_MEMORY = "meta"
TMA_FROM = 90
MOST_REGISTERS = 255
TYPES: Mapping[torch.dtype, str] = {
    torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16",
    torch.float8_e4m3fn: "fp8e4nv", torch.float8_e5m2: "fp8e5", torch.int64: "i64", torch.int32: "i32",
    torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "i1",
}  # fmt: skip
"""Triton's names of element types."""


class Draft:
    """State between commands: open, then point for each."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.target = ""
        self.cells: dict[str, Cell] = {}

    def open(self, request: Open) -> Opened:
        """List the points of the candidate's kernel of the most bytes."""
        self.target = request.target or ""
        limits = limits_of(self.target)
        torch.set_grad_enabled(False)
        region = parse(request.region)
        build = importlib.import_module(request.registry).build
        call = build(request.candidate, region, dict(request.sizes), NO_MEMORY)
        fakes = program(region, request.sizes, NO_MEMORY).inputs
        given = [torch.empty_strided(tuple(f.shape), f.stride(), dtype=f.dtype, device=NO_MEMORY) for f in fakes]
        with unlaunched(self.target):
            kernels = tuned_kernels(call, given)
        if not kernels:
            raise NothingTunedError("it has no kernel that is tuned: nothing was chosen for these sizes")
        self.kernel: TunedKernel = kernels[0]
        listed = cells(
            self.kernel.variants, self.kernel.chosen, self.kernel.arguments, limits, self.kernel.more, request.points
        )
        self.cells = {key_of(c.variant): c for c in listed}
        return Opened(self.kernel.name, [k.name for k in kernels[1:]], None, [c.point for c in listed])

    def point(self, request: RunPoint) -> PointResult:
        """Compile one."""
        variant = self.cells[request.key].variant
        with unlaunched(self.target) as asked:
            self.kernel.run(variant)
        function, arguments, options = _of(asked, variant)
        try:
            made = compiled(function, arguments, options, self.target)
        except CompileError as fault:
            return PointResult("refused", str(fault)[:MOST_REASON])
        return PointResult(
            "compiled", machine=Machine(made.registers, made.spill_bytes, made.shared_bytes, made.occupancy)
        )


def limits_of(target: str) -> Limits:
    """What a program may have on this target."""
    known = TARGETS[target]
    return Limits(known.shared_block_bytes, MOST_REGISTERS if known.backend == "cuda" else 512, known.registers)


Launch = tuple[Any, tuple[Any, ...], Mapping[str, Any]]
"""A jit function with the arguments and options that Triton was asked to launch it with."""


@contextlib.contextmanager
def unlaunched(target: str) -> Iterator[list[Launch]]:
    """Triton functions return at once; yields what they were asked to run with. Tuners take their first variant."""
    asked: list[Launch] = []
    capability = TARGETS[target].capability
    tma = isinstance(capability, int) and capability >= TMA_FROM

    def run(function: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> None:
        asked.append((function, args, kwargs))

    def tuned(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        tuner.best_config = tuner.configs[0]
        return tuner.fn.run(*args, **kwargs, **tuner.best_config.all_kwargs())

    def first(tuner: Any, full: Any, key: Any, variants: Any, *rest: Any) -> Variant:
        return variants[0]  # type: ignore[no-any-return]

    changes: tuple[tuple[Any, str, Any], ...] = (
        (JITFunction, "run", run), (Autotuner, "run", tuned), (tuning.Tuner, "_remembered", first),
        (gemm, "has_tma", lambda device: tma),
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        for owner, name, instead in changes:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, instead)
        yield asked


def _of(asked: list[Launch], variant: Variant) -> Launch:
    """The launch of the variant's own kernel; the first where that is not known."""
    return next((one for one in asked if one[0] is variant.kernel), asked[0])


SETTINGS = frozenset({"num_warps", "num_stages", "num_ctas", "debug"})
"""Of a launch what is told to the compiler by itself, or left as it is."""


def compiled(function: Any, arguments: tuple[Any, ...], options: Mapping[str, Any], target: str) -> Compiled:
    """Compile a function for what it would be launched with, specialised as Triton's launcher specialises."""
    names = list(function.arg_names)
    given = {**dict(zip(names, arguments, strict=False)), **{k: v for k, v in options.items() if k in names}}
    signature: dict[str, str] = {}
    constants: dict[str, object] = {}
    divisible: list[str] = []
    constexprs = {p.name for p in function.params if p.is_constexpr}
    unspecialized = {p.name for p in function.params if p.do_not_specialize}
    for name, value in given.items():
        kind = "" if name in constexprs else type_of(value)
        if not kind and value == 1 and name in unspecialized:
            kind = "i32"
        if not kind:
            constants[name] = value
            continue
        signature[name] = kind
        if name not in unspecialized and (kind.startswith("*") or (isinstance(value, int) and value % DIVISIBLE == 0)):
            divisible.append(name)
    more = {k: v for k, v in options.items() if k not in names and k not in SETTINGS and v is not None}
    return compile_for(
        function, signature, constants, target, options.get("num_warps", 4),
        options.get("num_stages") or DEFAULT_STAGES, attributes=multiples_of_16(names, divisible),
        options=more,
    )  # fmt: skip


def type_of(value: Any) -> str:
    """An argument's type as Triton writes it; "" for what the launcher takes as a constant: 1 and None."""
    if isinstance(value, torch.Tensor):
        return f"*{TYPES[value.dtype]}"
    if isinstance(value, TensorDescriptor):
        block = ",".join(map(str, value.block_shape))
        return f"tensordesc<{TYPES[value.base.dtype]}[{block}]>"
    if isinstance(value, HopperDescriptor):
        return f"tensordesc<{TYPES[value.base.dtype]}{list(value.block_shape)},{value.layout!r}>"
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "" if value == 1 else "i32" if -(2**31) <= value < 2**31 else "i64"
    return "fp32" if isinstance(value, float) else ""


def main(channel: Channel) -> None:
    """Answer commands until the parent closes the channel."""
    draft = Draft(channel)

    def answer(request: CompileRequest) -> Opened | PointResult:
        return draft.open(request) if isinstance(request, Open) else draft.point(request)

    serve(channel, compile_request, answer)
