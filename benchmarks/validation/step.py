"""The winner put back in its place: whether a model's step gains what was claimed. On a host with a GPU:

    python benchmarks/validation/step.py [MODEL ...] [--regions 3] [--seconds 300] [--without compile-max-autotune]
    [--out FILE]

For each model of benchmarks/validation/blocks.py: a child records a trace of its step; the trace is reported on as any
other; the
regions predicted to save the most are validated; another child puts each winner, built as the validation built it, in
the place of its region, checks the model's output against float64, and measures the step in turns with eager. Prints
the step's claimed speed-up next to the one measured, and writes a record. Changes no setting of the GPU.

    python benchmarks/validation/step.py --device cpu --small

goes the same way at tiny sizes without a GPU, by the host's clock and with Triton's interpreter: it shows that the way
is open, and its times say nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from app.objects.task import ValidateTask  # noqa: E402
from kernels.measure.processes.processes import ForkServer  # noqa: E402
from kernels.measure.session import open_fork_server  # noqa: E402
from tools.records.step_record import (  # noqa: E402 (run as a file)
    CLOCKS,
    busy_share,
    choose_regions,
    claim_speedup,
    first_correct,
    lines,
    model_of,
    winner_of,
)

Json = dict[str, Any]

CHILD = Path(__file__).resolve().parent / "step_child.py"
MODELS = ("handrolled", "llama", "vit", "llama-eager-attention")
CHILD_S = 120.0
LEAST_S = 15.0
"""No validation is begun with less time left than this."""
PLACING_S = 30.0
"""Of a model's time, kept for putting the winners back."""
PROFILED = ("step_time_us", "gpu_busy_share", "kernels", "steps", "linked_share", "device")


class ChildError(RuntimeError):
    """A child that ended without an answer."""


def ask(task: Json, seconds: float) -> Json:
    """What a child of benchmarks/validation/step_child.py answers. ChildError where it does not, in time."""
    environment = dict(os.environ)
    if task["device"] == "cpu":
        environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    child = subprocess.Popen(
        [sys.executable, str(CHILD), json.dumps(task)], cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        told, noise = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ChildError(f"no answer within {seconds:.0f} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    answers = [line for line in told.splitlines() if line.startswith("{")]
    if child.returncode or not answers:
        raise ChildError(f"the child ended with {child.returncode}: {noise.strip()[-1500:]}")
    answer: Json = json.loads(answers[-1])
    return answer


def region_of(
    region: Json, profiled: Json, options: argparse.Namespace, ends: float, fork_server: ForkServer | None = None
) -> Json:
    """A region of the trace, validated: its winner, and what that claims of the step."""
    from app.analysis.validate import validate_region

    shares = {"wall": region["share_of_step"] or 0.0, "device": busy_share(region, profiled)}
    row: Json = {
        "name": region["name"], "text": region["text"], "calls_per_step": region["calls_per_step"],
        "bindings": [shape["binding"] for shape in region["shapes"]],
        "time_us_per_step": region["time_us_per_step"], "winner": None, "ratio": None, "outcome": None, "why": "",
        "placed_as": None, "candidates": {}, "seconds": None,
        "advice": {key: region["advice"][key] for key in ("tool", "mode", "step_speedup")},
        **{by: {"share": shares[by], "claimed": None} for by in CLOCKS},
    }  # fmt: skip
    left = ends - time.monotonic()
    if left < LEAST_S:
        return row | {"why": "no time left to validate it"}
    request = {
        "region": region["text"], "shapes": region["shapes"], "share_of_step": region["share_of_step"],
        "advice_before": region["advice"], "budget_s": min(options.budget, left),
        "device": "cpu" if options.device == "cpu" else None, "candidates": _candidates(options.without),
    }  # fmt: skip
    begun = time.monotonic()
    validation: Any = validate_region(cast("ValidateTask", request), fork_server=fork_server)
    row |= {
        "outcome": validation["outcome"], "seconds": round(time.monotonic() - begun, 1),
        "candidates": {
            c["name"]: {"status": c["status"], "time_us": c["time_us"], "ratio": c["ratio_to_eager"]}
            for c in validation["candidates"] if c["status"] not in ("not_installed", "unsupported", "not_run")
        },
        "decided_by": validation["conditions"].get("decided_by"),
    }  # fmt: skip
    if options.device == "cpu":
        return row | {"winner": first_correct(validation), "why": "not timed: a dry run"}
    row["winner"] = winner_of(validation, region["share_of_step"])
    if row["winner"] is None:
        return row | {"why": validation["reason"]}
    ratio = next(c["ratio_to_eager"] for c in validation["candidates"] if c["name"] == row["winner"])
    row["ratio"] = ratio or {"median": 1.0, "low": 1.0, "high": 1.0}
    for by in CLOCKS:
        row[by]["claimed"] = claim_speedup([shares[by]], [row["ratio"]])
    return row | ({"why": "left as it is"} if row["winner"] == "eager" else {})


def _candidates(without: Sequence[str]) -> list[str] | None:
    from app.analysis.candidates import known_names

    return [name for name in known_names() if name not in without] if without else None


def measure(
    name: str, options: argparse.Namespace, folder: Path, ends: float, fork_server: ForkServer
) -> tuple[Json, Json]:
    """One model's part of the record, and what its child said of the machine."""
    from app.trace_report.report import report

    task: Json = {"model": name, "small": options.small, "device": options.device}
    path = folder / f"{name}.json.gz"
    ask({**task, "record": str(path)}, CHILD_S)
    trace_report: Any = report(path, name)
    profiled = {key: trace_report[key] for key in PROFILED}
    rows = []
    for region in choose_regions(trace_report["regions"], options.regions):
        row = region_of(region, profiled, options, ends - PLACING_S, fork_server)
        print(f"{name}: {row['name']}: {row['winner']} {row['ratio'] or ''} {row['why']}", file=sys.stderr, flush=True)
        rows.append(row)
    winners = [row for row in rows if row["winner"] not in (None, "eager")]
    for number, row in enumerate(winners):
        row["placed_as"] = number
    task |= {
        "winners": [{"text": r["text"], "candidate": r["winner"], "bindings": r["bindings"]} for r in winners],
        "rounds": options.rounds, "calls": options.calls, "warm_ms": 200.0 if options.device != "cpu" else 1.0,
    }  # fmt: skip
    placed = ask(task, CHILD_S)
    return model_of(name, profiled, rows, placed), placed


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes")
    parser.add_argument("--regions", type=int, default=3, help="of each model, at most")
    parser.add_argument("--seconds", type=float, default=300.0, help="for everything; each model gets its part")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for one validation, at most")
    parser.add_argument("--without", nargs="*", default=[], metavar="CANDIDATE", help="not to be measured")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=3, help="timed steps in one round")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    names = options.models or list(MODELS)
    if unknown := set(names) - set(MODELS):
        parser.error(f"no model of the name {', '.join(sorted(unknown))}: there are {', '.join(MODELS)}")
    begun = time.monotonic()
    record: Json = {"device": None, "date": datetime.date.today().isoformat(), "software": {},
                    "dry": options.device == "cpu", "models": []}  # fmt: skip
    failed = 0
    device = "cpu" if options.device == "cpu" else None
    with tempfile.TemporaryDirectory(prefix="tritonworthy-step-") as folder, open_fork_server(device) as fork_server:
        for number, name in enumerate(names):
            ends, started = begun + options.seconds * (number + 1) / len(names), time.monotonic()
            try:
                model, said = measure(name, options, Path(folder), ends, fork_server)
            except ChildError as fault:
                failed += 1
                print(f"{name}: {fault}", file=sys.stderr)
                continue
            record["models"].append({**model, "seconds": round(time.monotonic() - started, 1)})
            record |= {"device": said["device"], "software": said["software"]}
            if options.out is not None:  # after each model: a host that goes away takes only the last one with it
                options.out.write_text(json.dumps(record, indent=1) + "\n")
    print("\n".join(lines(record)))
    print(f"\n{time.monotonic() - begun:.0f} s", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
