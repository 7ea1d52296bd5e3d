"""Times of programs on the current GPU, as a validation takes them: between device events, inputs in L2 and not."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest import mock

import torch

from kernels.baselines import compiled, with_gradients
from kernels.calibrate.points import CompiledTimes, Times
from kernels.measure.candidate.inputs import input_set, weight_scales
from kernels.measure.candidate.task import as_call
from kernels.measure.candidate.timing import Call, DeviceClock, Estimate, Flush, Rotation, cold_calls
from kernels.measure.turn import Turn
from profiler.oracle.inductor.pipeline import InductorOutput, collect_output
from profiler.oracle.inductor.wrapper import join, read_wrapper
from profiler.region.language.program import Program, program
from profiler.region.model import Region

PAIRS = 25
"""Of device events, to tell what they add."""

CALLS_MS = 2.5
"""Of device time for a program's timed calls of one kind, 3 to 9 of them."""

LONG_US = 20_000.0
"""Of one call, beyond which it is timed once: it varies little."""

BENCHMARK_MS = 10
"""For each configuration that Inductor compares: a quarter of what it takes by default. A minute brings more points."""

KEPT_BYTES = 2**30
"""Reserved memory above which a process gives it back before the next takes its turn."""


class Bench:
    """Times programs on the current GPU."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.clock = DeviceClock()
        with turn():
            self.flush = Flush(torch.cuda.get_device_properties(0).L2_cache_size, "cuda")
            torch.cuda.synchronize()
            self.events_us = around_nothing_us(self.clock)

    def eager(self, region: Region) -> Times:
        """cold_us, warm_us, host_us of the region's own program."""
        built = program(region, None, "cuda")
        runner = with_gradients(built.module, region.requires_grad)
        with self.running():
            call, values = self.prepared(built, runner)
            return self.timed(call, values)

    def compiled(self, region: Region, with_eager: bool, mode: str | None = None) -> CompiledTimes:
        """The same of torch.compile's, with the time of each kernel that Inductor wrote; eager's own where asked.

        mode: torch.compile's, None for its default.
        """
        output = InductorOutput()
        built = program(region, None, "cuda")
        runner = compiled(region, None, "cuda", mode)
        with self.running():
            call, values = self.prepared(built, runner)
        waited, started = self.turn.waited_s, time.perf_counter()
        with collect_output(output, build=True):
            call(*values)  # compiles; what is run takes the turn by itself
        seconds = time.perf_counter() - started - (self.turn.waited_s - waited)
        told: CompiledTimes = {"compile_s": round(seconds, 2)}
        with self.running():
            if with_eager:
                plain = with_gradients(built.module, region.requires_grad)
                told["eager"] = self.timed(self.prepared(built, plain)[0], values)
            told.update(cast(CompiledTimes, self.timed(call, values)))
            seen = self.observed(call, values)
        written = join(tuple(read_wrapper(w.text, w.stage, output.bytes_moved) for w in output.texts))
        told["kernels"] = [
            {"name": k.name, "source": k.source, "bytes_moved": k.bytes_moved, "stage": k.stage,
             "times_us": seen.get(k.name, [])}
            for k in written.kernels
        ]  # fmt: skip
        told["externs"] = [f"{e.name} x{e.calls} {e.stage}" for e in written.externs]
        return told

    @contextmanager
    def running(self) -> Iterator[None]:
        """In turn; what was run has ended, and large memory is given back, before the next has it."""
        with self.turn():
            try:
                yield
            finally:
                torch.cuda.synchronize()
                if torch.cuda.memory_reserved() > KEPT_BYTES:
                    torch.cuda.empty_cache()

    def prepared(self, built: Program, runner: Callable[..., Any]) -> tuple[Call, list[torch.Tensor]]:
        region = built.region
        sizes = region.bindings[0]
        values = input_set(region, sizes, "cuda", 0, scales=weight_scales(built.module))
        upstream: list[torch.Tensor | None] = []
        if region.requires_grad:
            for value, item in zip(values, region.inputs, strict=True):
                value.requires_grad_(item.requires_grad)
            upstream = [
                torch.randn(tuple(o.shape), device="cuda").to(o.dtype) if o.dtype.is_floating_point else None
                for o in built.outputs
            ]
        torch.cuda.synchronize()
        return as_call(runner, region, upstream), values

    def timed(self, call: Call, values: list[torch.Tensor]) -> Times:
        rotation = Rotation([values])
        for _ in range(2):
            call(*values)
        torch.cuda.synchronize()
        started = time.perf_counter()
        begin = self.clock.mark()
        call(*values)
        host_us = (time.perf_counter() - started) * 1e6
        end = self.clock.mark()
        self.clock.synchronize()
        device_us = max(1.0, self.clock.elapsed_us(begin, end))
        count = max(1 if device_us > LONG_US else 3, min(9, int(CALLS_MS * 1e3 / device_us)))
        estimate = Estimate(device_us, host_us)
        cold = cold_calls(call, rotation, count, estimate, self.clock, self.flush)
        warm = cold_calls(call, rotation, count, estimate, self.clock)
        rotation.last = None
        return {
            "cold_us": round(statistics.median(cold), 2),
            "warm_us": round(statistics.median(warm), 2),
            "host_us": round(host_us, 1),
        }

    def observed(self, call: Call, values: list[torch.Tensor], calls: int = 3) -> dict[str, list[float]]:
        """Kernel -> median time of each of its launches in one cold call, in order."""
        rounds: list[dict[str, list[tuple[Any, Any]]]] = []
        for _ in range(calls):
            marks: dict[str, list[tuple[Any, Any]]] = {}
            self.clock.sleep_us(4000)
            self.flush()
            with _marked(self.clock, marks):
                call(*values)
            self.clock.synchronize()
            rounds.append(marks)
        return {
            name: [
                round(statistics.median(self.clock.elapsed_us(*r[name][n]) for r in rounds), 2)
                for n in range(len(pairs))
            ]
            for name, pairs in rounds[0].items()
        }


def around_nothing_us(clock: DeviceClock) -> float:
    """What two device events with nothing between them read: that much of every measured time is theirs."""
    clock.sleep_us(4000)
    pairs = [(clock.mark(), clock.mark()) for _ in range(PAIRS)]
    clock.synchronize()
    return round(statistics.median(clock.elapsed_us(*pair) for pair in pairs), 2)


@contextmanager
def _marked(clock: DeviceClock, marks: dict[str, list[tuple[Any, Any]]]) -> Iterator[None]:
    """Device events around each launch of a kernel that Inductor wrote."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    run = CachingAutotuner.run

    @functools.wraps(run)
    def launched(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin = clock.mark()
        result = run(self, *args, **kwargs)  # type: ignore[no-untyped-call]
        marks.setdefault(str(self.fn.__name__), []).append((begin, clock.mark()))
        return result

    with mock.patch.object(CachingAutotuner, "run", launched):
        yield


def run_in_turn(turn: Turn) -> None:
    """A compiled graph runs, and picks its kernels' configurations, in its turn."""
    from torch._inductor.output_code import CompiledFxGraph

    run = CompiledFxGraph.__call__

    @functools.wraps(run)
    def running(self: Any, inputs: Any) -> Any:
        if turn.held:
            return run(self, inputs)
        with turn():
            result = run(self, inputs)
            torch.cuda.synchronize()
            return result

    CompiledFxGraph.__call__ = running  # type: ignore[method-assign]


def shorten_benchmarks() -> None:
    """Inductor compares configurations of a kernel for less long. To be called once, before anything is compiled."""
    from torch._inductor.runtime import benchmarking

    for name in ("TritonBenchmarker", "InductorBenchmarker"):
        owner: Any = getattr(benchmarking, name, None)
        if owner is not None and "benchmark_gpu" in vars(owner):
            owner.benchmark_gpu = functools.partialmethod(_benchmark_briefly, owner.benchmark_gpu)


def _benchmark_briefly(self: Any, benchmark: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return benchmark(self, *args, **{**kwargs, "rep": BENCHMARK_MS, "warmup": 2})
