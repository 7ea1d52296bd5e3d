"""`python -m kernels.calibrate --minutes 5 --out FILE`: a recording of points of this host's GPU.

The folder of unfinished work is FILE.parts: the same command goes on where it was stopped. `tritonworthy calibrate`
makes an atlas of the same points. `--families generated,own,max-autotune` measures this project's kernels, generated
and hand-written, and torch.compile's autotuned mode beside its default one.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from kernels.calibrate import points
from kernels.calibrate.programs import KINDS, Kind, families
from kernels.calibrate.run import MOST_WORKERS, Listener, Progress, measure, plans
from kernels.calibrate.run_state import CalibrationError
from kernels.host import probe_host

WORKERS: dict[Kind, int] = {
    "eager": MOST_WORKERS, "compile": MOST_WORKERS, "generated": MOST_WORKERS, "own": 3, "max-autotune": 3,
}  # fmt: skip
"""Of each kind, on a host of 16 cores."""


def main() -> None:
    """Measure, and write one recording."""
    parser = argparse.ArgumentParser(prog="python -m kernels.calibrate", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--out", type=Path, required=True, help="the recording, .jsonl.gz")
    for kind, count in WORKERS.items():
        parser.add_argument(f"--{kind}", type=int, default=count, help=f"its workers, {count} unless said")
    parser.add_argument(
        "--families",
        default="eager,compile",
        help="which to measure: names of families or of groups, with commas; eager,compile unless said",
    )
    options = parser.parse_args()
    try:
        wanted = families(options.families.split(","))
    except ValueError as fault:
        parser.error(str(fault))
    workers = {kind: getattr(options, kind.replace("-", "_")) for kind in KINDS}
    host = probe_host()
    if host.gpu is None:
        parser.error("no GPU on this host: there is nothing to measure")
    folder = options.out.with_name(options.out.name + ".parts")
    listener = Listener(_tell, lambda text: print(text, flush=True))
    try:
        conditions, measured = measure(folder, host, options.minutes, plans(workers, wanted), listener)
    except CalibrationError as fault:
        parser.error(str(fault))
    points.write_recording(options.out, conditions, measured)
    shutil.rmtree(folder)
    print(f"{len(measured)} points of {conditions['device']} in {options.out}")


def _tell(progress: Progress) -> None:
    print(f"{sum(progress.points.values())} points, {progress.seconds_left:.0f} s left", flush=True)


if __name__ == "__main__":
    main()
