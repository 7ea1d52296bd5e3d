"""Times of this project's kernels, generated and hand-written, and of torch.compile's autotuned mode, on this GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import msgspec
import torch

from kernels import tuning
from kernels.baselines import MODES, with_gradients
from kernels.calibrate.bench import Bench
from kernels.calibrate.points import CandidateTimes, CompiledTimes, GeneratedTimes
from kernels.candidates import build, hand_written
from kernels.codegen.generated import Generated, Kernel, Trained, made
from kernels.codegen.index import Unsupported
from kernels.measure.candidate.timing import Call
from kernels.measure.turn import Turn
from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph, lower, written_alone
from profiler.region.graph.patterns import match
from profiler.region.language.program import program
from profiler.region.model import Region

TUNED_KINDS = op_kinds.MATRIX_KINDS | {
    op_kinds.REDUCTION, op_kinds.SOFTMAX, op_kinds.NORMALISATION, op_kinds.SCAN,
}  # fmt: skip
"""Operations of which max-autotune compares more than the default mode does."""
MOST_ALONE = 24
"""Kernels of one program that are timed one by one."""
WARMUP_MS, REPEAT_MS = 2.0, 8.0
"""Of each configuration that our own kernels compare: a fifth of what a validation gives them."""
TRITON_WARMUP_MS, TRITON_REPEAT_MS = 3, 10
"""The same of generated ones."""


class KernelBench(Bench):
    """A Bench of more candidates than eager and torch.compile's default mode."""

    def generated(self, region: Region) -> GeneratedTimes:
        """Of `triton:generated`, and of each of its kernels alone. Raises Unsupported where there is none."""
        kernels = made(lower(region, None, "cuda"))
        runner = with_gradients(_callable(kernels), region.requires_grad)
        built = program(region, None, "cuda")
        with self.running():
            call, values = self.prepared(built, runner)
            call(*values)  # tuned in turn; for compiling the turn is given up (`compile_before_timing`)
            launched = _launched(call, values)
            told: GeneratedTimes = {**self.timed(call, values), "generated": [], "kept": list(kernels.kept)}
            for kernel, given in launched[:MOST_ALONE]:
                traits = kernel.source.traits
                if traits is None:
                    continue
                with torch.no_grad():
                    alone = self.timed(kernel, given)
                told["generated"].append(
                    {"name": kernel.source.kernel, "traits": msgspec.structs.asdict(traits), **alone}
                )
        return told

    def own(self, region: Region) -> CandidateTimes:
        """Of eager, and of each of this project's kernels that takes the whole region. Raises Unsupported where none
        does."""
        graph = lower(region, None, "cuda")
        names = whole_kernels(graph)
        if not names:
            raise Unsupported("no kernel of its own takes it whole")
        told: CandidateTimes = {**self.eager(region), "candidates": {}}
        built = program(region, None, "cuda")
        for name in names:
            runner = build(name, region, None, "cuda")
            with self.running():  # its first launches too; for compiling it is given up (`compile_before_timing`)
                call, values = self.prepared(built, runner)
                call(*values)
                told["candidates"][name] = self.timed(call, values)
        return told

    def autotuned(self, region: Region) -> CompiledTimes:
        """Of max-autotune without CUDA graphs, with those of the default mode and of eager. Raises Unsupported where
        nothing is tuned."""
        if not any(o.kind in TUNED_KINDS for o in lower(region, None, "cuda").operations):
            raise Unsupported("nothing in it is tuned")
        default = self.compiled(region, with_eager=True)
        told = self.compiled(region, with_eager=False, mode=MODES["compile-max-autotune"])
        told["default"] = default
        return told


def whole_kernels(graph: Graph) -> list[str]:
    """Names of this project's kernels, as candidates, that take all of a region."""
    plain = written_alone(graph)
    return [c.name for c in hand_written(plain, match(plain)) if c.available and c.part is None]


def _callable(kernels: Generated | Trained) -> Callable[..., Any]:
    return kernels.module if isinstance(kernels, Generated) else kernels


def _launched(call: Call, values: list[torch.Tensor]) -> list[tuple[Kernel, list[Any]]]:
    """Each generated kernel with the arguments that it had in one call, in order."""
    seen: list[tuple[Kernel, list[Any]]] = []
    launch = Kernel.__call__

    def launched(self: Kernel, *given: Any) -> Any:
        seen.append((self, [g.detach() if isinstance(g, torch.Tensor) else g for g in given]))
        return launch(self, *given)

    with mock.patch.object(Kernel, "__call__", launched):
        call(*values)
    return seen


def shorten_tuning() -> None:
    """Configurations of this project's kernels are compared for less long, and compiled before it is their turn. To be
    called once, before `exclusive_autotuning`."""
    import triton.testing

    tuning.WARMUP_MS, tuning.REPEAT_MS = WARMUP_MS, REPEAT_MS
    bench = triton.testing.do_bench

    @functools.wraps(bench)
    def briefly(fn: Callable[[], Any], **kwargs: Any) -> Any:
        return bench(fn, **{**kwargs, "warmup": TRITON_WARMUP_MS, "rep": TRITON_REPEAT_MS})

    triton.testing.do_bench = briefly


def compile_before_timing(turn: Turn) -> None:
    """Kernels are launched and compared in turn, and compiled without it: others measure meanwhile. To be called once,
    behind `exclusive_autotuning`.

    By Triton's internals: a version that compiles elsewhere keeps the turn for that long.
    """
    from triton.runtime.jit import JITFunction

    cold_us, compiles = tuning.cold_us, getattr(JITFunction, "_do_compile", None)

    def timed(call: Callable[[], None]) -> float:
        with turn():
            call()  # compiled before it is timed
            torch.cuda.synchronize()
            return cold_us(call)

    tuning.cold_us = timed
    if compiles is None:
        return

    @functools.wraps(compiles)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if not turn.held:
            return compiles(*args, **kwargs)
        torch.cuda.synchronize()  # what was launched in turn has ended when another has it
        with turn.released():
            return compiles(*args, **kwargs)

    JITFunction._do_compile = compiled
