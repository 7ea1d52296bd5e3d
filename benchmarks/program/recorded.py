"""Ten models: the trace that is predicted of each against the one that is recorded of it on a GPU (docs/module.md).

    python -m benchmarks.program.recorded --seconds 420 --out DIR [NAME ...]     on a host with a GPU
    python -m benchmarks.program.recorded --compare DIR [--anew]                 without one

The first predicts each model's step as `tritonworthy advise FILE:FUNCTION --save` does, all at once before anything is
timed, then runs each in a process of its own: timed without a profiler, recorded by `tritonworthy.capture`. After each
model results.json and recorded.zip (recorded-2.zip, ... where it would be larger than 15 MB) are written anew.

The second reads both traces of each model, compares regions and step times and prints the tables. --anew predicts once
more, by the code and the libraries that are installed here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.program.recorded_models import MODELS, TINY, Model, is_unread
from benchmarks.program.recorded_results import PACKED, PREDICTED, RESULTS, Failure, Results, Run

MODULE = "benchmarks.program.recorded"
ROOT = Path(__file__).resolve().parents[2]
MOST_PACKED_BYTES = 15_000_000
"""Of one archive."""
AT_ONCE = max(1, min(10, (os.cpu_count() or 1) // 2))
"""Predictions."""
PREDICTION_S, MODEL_S = 120.0, 90.0
"""At most, of one."""
DEFAULT_DEVICE = "H100"
NAMED = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"


def main(argv: Sequence[str] | None = None) -> int:
    """One of the two, or the part of one model in its process."""
    parser = argparse.ArgumentParser(description="predicted against recorded steps of ten models")
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of them")
    parser.add_argument("--seconds", type=float, default=420.0, help="in all")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="", help="to predict for; by default the host's")
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU, to try it out")
    parser.add_argument("--compare", type=Path, metavar="DIR")
    parser.add_argument("--anew", action="store_true", help="with --compare: predict once more, here")
    parser.add_argument("--only", choices=("read", "unread"), help="with --compare: one half of the models")
    parser.add_argument("--record", type=Path, metavar="FILE", help="with --compare: write what was compared")
    parser.add_argument("--part", choices=("run", "predict"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.names) - {m.name for m in MODELS}:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(m.name for m in MODELS)}")
    chosen = [m for m in MODELS if not arguments.names or m.name in arguments.names]
    if arguments.tiny:
        os.environ[TINY] = "1"
    if arguments.compare is not None:
        from benchmarks.program.recorded_compare import compare

        if arguments.only:
            chosen = [m for m in chosen if is_unread(m.name) == (arguments.only == "unread")]

        return compare(arguments.compare, chosen, arguments.device, arguments.record, anew=arguments.anew)
    if arguments.out is None:
        parser.error("--out is wanted")
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.part == "run":
        return run_part(chosen[0], arguments.out)
    if arguments.part == "predict":
        from benchmarks.program.recorded_prediction import predict

        return predict(chosen[0], arguments.out, arguments.device)
    return record_all(chosen, arguments.out, arguments.seconds, arguments.device)


def run_part(model: Model, folder: Path) -> int:
    """Run one here: its traces and run.json in the folder."""
    from benchmarks.program.recorded_run import run

    (folder / f"{model.name}.run.json").write_bytes(msgspec.json.encode(run(model, folder)))
    return 0


def record_all(models: Sequence[Model], out: Path, seconds: float, device_name: str) -> int:
    """Predict all, run all, as long as there is time."""
    began = time.monotonic()
    named = subprocess.run([sys.executable, "-c", NAMED], capture_output=True, text=True, check=True).stdout.strip()
    results = Results(named)
    with TemporaryDirectory(prefix="tritonworthy-") as temporary:
        folder = Path(temporary)
        told_device = device_name or named or DEFAULT_DEVICE
        with ThreadPoolExecutor(AT_ONCE) as pool:
            said = pool.map(lambda m: _part("predict", m, folder, PREDICTION_S, told_device), models)
            results.failures += [Failure(m.name, "prediction", s) for m, s in zip(models, said, strict=True) if s]
        print(f"{named or 'no GPU'}: predicted after {time.monotonic() - began:.0f} s", flush=True)
        _write(results, folder, out, began)
        for model in models:
            left_s = seconds - (time.monotonic() - began)
            if left_s < 20:
                results.left.append(model.name)
                continue
            failure = _part("run", model, folder, min(MODEL_S, left_s), told_device)
            if failure:
                results.failures.append(Failure(model.name, "run", failure))
            else:
                run = msgspec.json.decode((folder / f"{model.name}.run.json").read_bytes(), type=Run)
                results.runs.append(run)
                print(line_of(run), flush=True)
            _write(results, folder, out, began)
    for failed in results.failures:
        print(f"{failed.name}: no {failed.part}: {failed.what.splitlines()[-1][:300]}")
    print(f"{len(results.runs)} of {len(models)} run in {results.seconds:.0f} s; left: {results.left or 'none'}")
    return 0 if len(results.runs) == len(models) else 1


def line_of(run: Run) -> str:
    """One model in a line."""
    cost = run.overhead
    bare, by_clock, waited, around, plain, stacks = (
        f"{us / 1e3:7.2f}" if us is not None else "      -"
        for us in (run.events_us, run.wall_us, run.waited_us, cost.around_us, cost.plain_us, cost.stacks_us)
    )
    return (
        f"{run.name:24} {bare} ms by events, {by_clock} by the clock, {waited} waited for; in capture {around},"
        f" recorded {plain} and {stacks}, writing {cost.writing_s:5.2f} s ({run.seconds:.0f} s) {run.problem}"
    )


def _part(part: str, model: Model, folder: Path, most_s: float, device_name: str) -> str:
    """One model in a process of its own; what it said last where it failed, else ""."""
    command = [sys.executable, "-m", MODULE, model.name, "--part", part, "--out", str(folder), "--device", device_name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=most_s, cwd=ROOT, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {most_s:.0f} s"
    return "" if done.returncode == 0 else (done.stderr.strip() or f"ended with {done.returncode}")[-2000:]


def _write(results: Results, folder: Path, out: Path, began: float) -> None:
    """results.json, and the traces so far in as few archives as their size allows."""
    results.seconds = round(time.monotonic() - began, 1)
    _replace(out / RESULTS, msgspec.json.format(msgspec.json.encode(results), indent=1))
    wanted = sorted(folder.glob(f"*.{PREDICTED}.json.gz"))
    for run in results.runs:
        names = {run.trace, run.plain} - {""}
        wanted += sorted(folder / name for name in names)
    archives: list[list[Path]] = [[]]
    size = 0
    for path in wanted:
        size += path.stat().st_size
        if size > MOST_PACKED_BYTES and archives[-1]:
            archives.append([])
            size = path.stat().st_size
        archives[-1].append(path)
    for number, paths in enumerate(archives, 1):
        target = out / (PACKED if number == 1 else PACKED.replace(".", f"-{number}."))
        partial = target.with_suffix(".partial")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
            for path in paths:
                archive.write(path, path.name)
        partial.replace(target)


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_suffix(".partial")
    partial.write_bytes(data)
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
