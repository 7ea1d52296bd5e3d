"""One process of a calibration: draws programs, runs them on the GPU in its turn, writes their times.

`python -m kernels.calibrate.worker FAMILIES FIRST STEP UNTIL FILE TURN`: programs FIRST, FIRST + STEP, ... until that
Unix time. Programs are built and compiled at any time; only runs take the turn that all workers share.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

import torch

from kernels.calibrate import points
from kernels.calibrate.bench import Bench, run_in_turn, shorten_benchmarks
from kernels.calibrate.points import CompiledTimes, Point, Times
from kernels.calibrate.programs import FUSED, draw, pick
from kernels.measure.turn import Turn, exclusive_autotuning
from profiler.region.language.text import parse
from profiler.region.model import Region

EAGER_EVERY = 3
"""Of so many compiled programs one is run by eager as well: what the times of single operations add up to."""


class Timing(Protocol):
    """What measures: a Bench, or what stands for it where there is no GPU."""

    def eager(self, region: Region) -> Times: ...
    def compiled(self, region: Region, with_eager: bool) -> CompiledTimes: ...


class _Silent:
    def send(self, message: object) -> None:
        """Nobody waits for messages of a calibration's worker."""


def measure(bench: Timing, family: str, number: int) -> Point:
    """One program with its times, or with the reason why it has none."""
    text = draw(family, number)
    point = Point(family=family, number=number, mode="compile" if family in FUSED else "eager", text=text)
    try:
        region = parse(text)
        if family in FUSED:
            point.update(cast(Point, bench.compiled(region, number % EAGER_EVERY == 0)))
        else:
            point.update(cast(Point, bench.eager(region)))
    except torch.cuda.OutOfMemoryError:
        point["failed"] = "out of memory"
        torch.cuda.empty_cache()
    except Exception as fault:
        point["failed"] = f"{type(fault).__name__}: {str(fault).splitlines()[0][:200] if str(fault) else ''}"
    return point


def work(bench: Timing, families: Sequence[str], first: int, step: int, until: float, path: Path) -> None:
    """Measure and append, one number after the other. What the file has is not measured again, nor tried again where it
    ended the process: its line is written before it begins."""
    done = {(p["family"], p["number"]) for p in points.read(path)}
    number = first
    while time.time() < until:
        family = pick(families, number)
        if (family, number) not in done:
            points.append(path, Point(family=family, number=number, mode="", text="", failed=points.UNFINISHED))
            points.append(path, measure(bench, family, number))
        number += step
        with suppress(Exception):
            torch._dynamo.reset()


def main(arguments: list[str]) -> None:
    """One worker, until its time is over. arguments: as the module's command line has them."""
    families, first, step, until, file, turn_file = arguments
    import torch._inductor.config as inductor_config

    inductor_config.compile_threads = 1
    inductor_config.force_disable_caches = True
    turn = Turn(turn_file, _Silent())
    shorten_benchmarks()
    exclusive_autotuning(turn)
    run_in_turn(turn)
    work(Bench(turn), families.split(","), int(first), int(step), float(until), Path(file))


if __name__ == "__main__":
    main(sys.argv[1:])
