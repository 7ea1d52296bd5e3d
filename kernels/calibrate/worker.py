"""One process of a calibration: draws programs, runs them on the GPU in its turn, writes their times.

`python -m kernels.calibrate.worker WORK`, WORK a `Work` as JSON: until its time is over, or its standard input ends,
which is the starting process's to hold open. Programs are built and compiled at any time; only runs take the turn that
all workers share.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

import msgspec
import torch

from kernels.calibrate import points
from kernels.calibrate.bench import run_in_turn, shorten_benchmarks
from kernels.calibrate.kernel_bench import KernelBench, compile_before_timing, shorten_tuning
from kernels.calibrate.points import CandidateTimes, CompiledTimes, GeneratedTimes, Point, Times
from kernels.calibrate.programs import count, draw, kind_of
from kernels.calibrate.shares import Share, Work, programs
from kernels.measure.candidate.worker import compile_in_parallel
from kernels.measure.request import cores
from kernels.measure.turn import Turn, exclusive_autotuning
from profiler.region.graph.lowering import without_grad
from profiler.region.language.text import parse
from profiler.region.model import Region

EAGER_EVERY = 3
"""Of so many compiled programs one is run by eager as well: what the times of single operations add up to."""


COMPILING = 4
"""Processes that compile for a worker whose kernels are tuned, at most: a product has tens of configurations."""


class Timing(Protocol):
    """What measures: a KernelBench, or what stands for it where there is no GPU. events_us: what two events around
    nothing read."""

    events_us: float

    def eager(self, region: Region) -> Times: ...
    def compiled(self, region: Region, with_eager: bool) -> CompiledTimes: ...
    def generated(self, region: Region) -> GeneratedTimes: ...
    def own(self, region: Region) -> CandidateTimes: ...
    def autotuned(self, region: Region) -> CompiledTimes: ...


BROKEN = 3
"""The exit status of a worker whose program broke the GPU's context: nothing more can be measured in it."""


def broken() -> bool:
    """Whether this process can use the GPU no more: an index out of bounds takes the context with it."""
    if not torch.cuda.is_available():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


class _Silent:
    def send(self, message: object) -> None:
        """Nobody waits for messages of a calibration's worker."""


def measure(bench: Timing, family: str, number: int) -> Point:
    """One program with its times, or with the reason why it has none."""
    text, kind = draw(family, number), kind_of(family)
    point = Point(family=family, number=number, mode=kind, text=text, events_us=bench.events_us)
    try:
        region = parse(text)
        if kind == "compile":
            point.update(cast(Point, bench.compiled(region, number % EAGER_EVERY == 0)))
        elif kind == "generated":
            point.update(cast(Point, bench.generated(region)))
        elif kind == "own":
            point.update(cast(Point, bench.own(region)))
        elif kind == "max-autotune":
            point.update(cast(Point, bench.autotuned(region)))
        else:
            point.update(cast(Point, bench.eager(region)))
            if region.requires_grad:
                point["forward"] = bench.eager(without_grad(region))
    except torch.cuda.OutOfMemoryError:
        point["failed"] = "out of memory"
        torch.cuda.empty_cache()
    except Exception as fault:
        point["failed"] = f"{type(fault).__name__}: {str(fault).splitlines()[0][:200] if str(fault) else ''}"
    return point


def work(bench: Timing, shares: Sequence[Share], until: float, path: Path) -> None:
    """Measure and append, one program after the other. What the folder has is not measured again, nor tried again where
    it ended a process: its line is written before it begins."""
    done = {(p["family"], p["number"]) for p in points.read_folder(path.parent)}
    for family, number in programs(shares, count):
        if time.time() >= until:
            return
        if (family, number) in done:
            continue
        points.append(path, Point(family=family, number=number, mode="", text="", failed=points.UNFINISHED))
        points.append(path, measure(bench, family, number))
        if broken():
            sys.exit(BROKEN)
        with suppress(Exception):
            torch._dynamo.reset()


def end_with_the_starter() -> None:
    """This process ends with its standard input, whose other end is the starter's: also where that one is killed."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(arguments: list[str]) -> None:
    """One worker, until its time is over. arguments: as the module's command line has them."""
    end_with_the_starter()
    told = msgspec.json.decode(arguments[0], type=Work)
    import torch._inductor.config as inductor_config

    inductor_config.compile_threads = 1
    inductor_config.force_disable_caches = True
    if any(kind_of(share.family) == "max-autotune" for share in told.shares):
        compile_in_parallel(min(COMPILING, cores()))  # before CUDA starts in this process
    turn = Turn(told.turn, _Silent())
    shorten_benchmarks()
    shorten_tuning()
    exclusive_autotuning(turn)
    compile_before_timing(turn)
    run_in_turn(turn)
    work(KernelBench(turn), told.shares, told.until, Path(told.file))


if __name__ == "__main__":
    main(sys.argv[1:])
