"""`python -m kernels.calibrate --minutes 5 --out FILE`: measure points on this host's GPU.

Workers that end (a CUDA fault costs a process) are started again behind the program that ended them. The folder of
unfinished work is FILE.parts: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import triton

from kernels.calibrate import points
from kernels.calibrate.programs import EAGER, FUSED

GRACE_S = 45.0
"""For a program that is being compiled when the time is over."""


@dataclass(frozen=True)
class Plan:
    """One worker: programs `first`, `first + step`, ... of its families."""

    name: str
    families: tuple[str, ...]
    first: int
    step: int


def plans(eager: int, compiling: int) -> list[Plan]:
    """So many workers for single operations, and so many that compile."""
    return [Plan(f"eager-{n}", tuple(EAGER), n, eager) for n in range(eager)] + [
        Plan(f"fused-{n}", tuple(FUSED), n, compiling) for n in range(compiling)
    ]


def start(plan: Plan, folder: Path, until: float) -> subprocess.Popen[bytes]:
    """The worker's process. It appends to the folder's file of its name."""
    work = [",".join(plan.families), plan.first, plan.step, until, folder / f"{plan.name}.jsonl", folder / "turn.lock"]
    command = [sys.executable, "-m", "kernels.calibrate.worker", *map(str, work)]
    with (folder / f"{plan.name}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def run(wanted: list[Plan], folder: Path, until: float) -> None:
    """All workers until that Unix time, with a line every half minute."""
    running = {plan: start(plan, folder, until) for plan in wanted}
    told = time.time()
    while running:
        time.sleep(0.5)
        if time.time() > told + 30:
            told = time.time()
            print(f"{len(measured(folder))} points, {max(0, until - told):.0f} s left", flush=True)
        for plan, process in list(running.items()):
            if process.poll() is None:
                if time.time() > until + GRACE_S:
                    process.kill()
                continue
            del running[plan]
            if process.returncode and time.time() < until - 10:
                print(f"{plan.name} ended with {process.returncode} and is started again", flush=True)
                running[plan] = start(plan, folder, until)


def measured(folder: Path) -> list[points.Point]:
    """All that the workers of a folder have finished."""
    return points.finished(p for path in sorted(folder.glob("*.jsonl")) for p in points.read(path))


def main() -> None:
    """Measure, and write one recording."""
    parser = argparse.ArgumentParser(prog="python -m kernels.calibrate", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--out", type=Path, required=True, help="the recording, .jsonl.gz")
    parser.add_argument("--eager", type=int, default=8, help="workers for single operations")
    parser.add_argument("--compiling", type=int, default=8, help="workers that compile")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no GPU on this host: there is nothing to measure")
    folder = options.out.with_name(options.out.name + ".parts")
    folder.mkdir(parents=True, exist_ok=True)
    run(plans(options.eager, options.compiling), folder, time.time() + 60 * options.minutes)
    conditions = points.Conditions(
        device=torch.cuda.get_device_name(),
        torch=torch.__version__,
        triton=triton.__version__,
        date=datetime.date.today().isoformat(),
        minutes=options.minutes,
    )
    all_points = measured(folder)
    points.write_recording(options.out, conditions, all_points)
    print(f"{len(all_points)} points of {conditions['device']} in {options.out}")


if __name__ == "__main__":
    main()
