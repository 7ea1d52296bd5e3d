"""One row of the benchmark: all candidates for one case, checked, then timed in turns. A child of
benchmarks/operations/kernels.py: `kernel_rows.py JSON`, where JSON is {"items": [[operation, number of the case], ...],
"wanted": [...], "rounds": n, "prepare": bool}; prints a line of JSON for each item, as soon as it is done.

With "prepare" nothing is timed: everything is compiled, so that the binaries are on disk when another child measures.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 (run as a file)

from benchmarks.operations.kernel_peers import RIVALS, peers_of  # noqa: E402
from benchmarks.operations.kernel_table import OURS  # noqa: E402
from benchmarks.operations.peer_builders import NotHereError  # noqa: E402
from kernels import tuning  # noqa: E402
from kernels.agreement import disagreement  # noqa: E402
from kernels.measure import stats  # noqa: E402
from kernels.measure.candidate.timing import DeviceClock, Flush, Rotation, cold_calls, warm  # noqa: E402
from kernels.operations import operation  # noqa: E402
from kernels.spec import Case, Maker, Operation, outputs_of  # noqa: E402

ROUND_MS = 12.0
FEWEST, MOST = 4, 40
"""Calls of one candidate in one round."""
L2_BYTES = 64e6
EXACT_BYTES = 7e8
"""Our result is held to float64 up to this many bytes of a case; beyond it `tools/gpu/check_kernels.py --large`
does."""
MOST_STEPS = 128
"""Of a recurrence, whose loop torch.compile unrolls: 128 take it most of a minute."""
UNROLLED = ("linear_recurrence", "gated_linear_attention", "selective_scan_backward")
"""Begins the names of operations whose reference is a loop that is not unrolled within a row's time."""
SLOW_US = 1e5
"""A call that takes longer is timed once in a round."""
SPENT = 75
"""Exit status of a process whose CUDA context a candidate has spoilt: the row that says so is written, and the next is
for another process."""
CLOSE = 5e-2
"""Relative distance from the reference's result beyond which a candidate computes something else."""

Call = Callable[..., Any]


class SpoiltError(RuntimeError):
    """A candidate has spoilt the CUDA context; its name and what CUDA said."""


def compile_reference(reference: Call, mode: str | None) -> Call:
    """torch.compile of the reference with static shapes."""
    torch._dynamo.reset()
    return torch.compile(reference, mode=mode, dynamic=False)


def candidates(op: Operation, case: Case, wanted: set[str]) -> dict[str, Call | str]:
    """By name; a text says why there is none."""
    made: dict[str, Call | str] = {OURS: op.run}
    plain = RIVALS.get(op.name, op.reference)
    if "eager" in wanted:
        made["eager"] = plain
    for name, mode in (("compile", None), ("max-autotune", "max-autotune-no-cudagraphs")):
        if name in wanted:
            unrolled = case.get("t", 0) > MOST_STEPS and op.name.startswith(UNROLLED)
            made[name] = (
                f"its loop of {case['t']} steps is not unrolled here" if unrolled else compile_reference(plain, mode)
            )
    if "peers" in wanted:
        for name, build in peers_of(op.name).items():
            try:
                made[name] = build(case)
            except NotHereError as why:
                made[name] = str(why)
    return made


def distance(got: Any, wanted: tuple[torch.Tensor, ...]) -> float:
    """The largest relative 2-norm distance of a floating output. Infinite where an output is missing, has another
    number of elements, fewer or more bits, or NaN where the reference has none. Integers are indices, which ties may
    change: of a peer they are not looked at."""
    mine = outputs_of(got)
    if len(mine) < len(wanted):
        return math.inf
    farthest = 0.0
    for a, b in zip(mine, wanted, strict=False):
        if not b.dtype.is_floating_point or not b.numel():
            continue
        if a.numel() != b.numel() or a.dtype.itemsize != b.dtype.itemsize:
            return math.inf
        a, b = a.reshape(b.shape).float(), b.float()  # 8-bit floats have no arithmetic of their own
        known = ~torch.isnan(b) & (a != b)  # the mean of an empty segment is not, its largest is minus infinity
        size = float(torch.linalg.vector_norm(torch.where(b.isfinite(), b, 0.0))) or 1.0
        step = float(torch.linalg.vector_norm(torch.where(known, a - b, 0.0))) / size
        farthest = math.inf if math.isnan(step) else max(farthest, step)
    return farthest


def first_call(call: Call, arguments: tuple[Any, ...]) -> tuple[Any, float]:
    """(result, seconds), compilation and tuning included."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    got = call(*arguments)
    torch.cuda.synchronize()
    return got, time.perf_counter() - began


def measure(op: Operation, case: Case, wanted: set[str], rounds: int) -> dict[str, Any]:
    """One row of the record. Times in µs."""
    arguments = op.inputs(case, Maker(device="cuda", seed=11))
    cost = op.cost(case)
    row: dict[str, Any] = {
        "operation": op.name, "case": str(case), "peer_row": case.peer, "region": case.region, "bytes": cost.bytes,
        "flops": cost.flops, "candidates": {}, "chosen": {},
    }  # fmt: skip
    plain = outputs_of(op.reference(*arguments))
    ready: dict[str, Call] = {}
    for name, call in candidates(op, case, wanted).items():
        entry: dict[str, Any] = {}
        row["candidates"][name] = entry
        if isinstance(call, str):
            entry["reason"] = call
            continue
        try:
            with tuning.watched() as picks:
                got, entry["first_call_s"] = first_call(call, arguments)
            if name == OURS:
                row["chosen"] = describe_tuning(op, picks)
            entry["distance"] = distance(got, plain) if name == OURS or op.name not in RIVALS else 0.0
            if name == OURS and cost.bytes <= EXACT_BYTES:
                entry["fault"] = disagreement(op, got, arguments)
            del got
        except torch.AcceleratorError as fault:  # nothing runs in this process any more
            raise SpoiltError(f"{name}: {fault}") from fault
        except Exception as fault:  # a library that does not take the case
            entry["reason"] = f"{type(fault).__name__}: {str(fault)[:200]}"
            continue
        if entry["distance"] > CLOSE:
            entry["reason"] = f"computes something else: relative distance {entry['distance']:.2g}"
            continue
        ready[name] = call
    del plain
    torch.cuda.empty_cache()
    for name, times in time_candidates(ready, arguments, rounds).items():
        row["candidates"][name] |= times
    return row


def prepare(op: Operation, case: Case, wanted: set[str]) -> dict[str, Any]:
    """Run each candidate once, ours in every variant: how many variants, and the seconds they took to compile.

    What fails here is left to the measurement to tell.
    """
    arguments = op.inputs(case, Maker(device="cuda", seed=11))
    seconds, variants = 0.0, 0

    def compile_all(
        self: tuning.Tuner, key: Any, space: Any, launch: Callable[..., None], *operands: Any, uncopied: Any = ()
    ) -> tuning.Variant:
        nonlocal variants
        device = next(a.device for a in operands if isinstance(a, torch.Tensor))
        fitting = tuning.fitting(list(space() if callable(space) else space), tuning.limits_of(device))
        runs = None
        for variant in fitting:
            try:
                launch(variant, *operands)
                torch.cuda.synchronize()
            except (*tuning.REFUSALS, RuntimeError):
                continue
            runs, variants = runs or variant, variants + 1
        if runs is None:
            raise RuntimeError("no variant runs")
        return runs

    tuning.Tuner.pick = compile_all  # type: ignore[method-assign]
    for name, call in candidates(op, case, wanted - {"eager"}).items():
        try:
            if not isinstance(call, str):
                spent = first_call(call, arguments)[1]
                seconds = spent if name == OURS else seconds
        except Exception:
            continue
    return {"variants": variants, "compile_s": seconds}


def time_candidates(ready: dict[str, Call], arguments: tuple[Any, ...], rounds: int) -> dict[str, dict[str, float]]:
    """Median and interval of each candidate over rounds in which all take turns."""
    clock = DeviceClock()
    calls: dict[str, Call] = {n: (lambda *a, c=c: outputs_of(c(*a))) for n, c in ready.items()}
    sets = [arguments]
    flush = Flush(L2_BYTES, "cuda")
    plans: dict[str, tuple[Rotation, Any, int]] = {}
    for name, call in calls.items():
        rotation = Rotation(sets)
        estimate = warm(call, rotation, 20.0, clock)
        count = max(FEWEST, min(MOST, int(ROUND_MS * 1e3 / estimate.device_us)))
        count = 1 if estimate.device_us > SLOW_US else count
        plans[name] = (rotation, estimate, count)
        rotation.last = None
    samples: dict[str, list[list[float]]] = {n: [] for n in calls}
    names = list(calls)
    for i in range(rounds if names else 0):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            rotation, estimate, count = plans[name]
            samples[name].append(cold_calls(calls[name], rotation, count, estimate, clock, flush))
            rotation.last = None
    figures: dict[str, dict[str, float]] = {}
    ours = stats.medians(samples[OURS]) if OURS in samples else None
    for name, of in samples.items():
        medians = stats.medians(of)
        span = stats.interval(medians)
        figures[name] = {"median_us": span.median, "low_us": span.low, "high_us": span.high}
        if ours is not None and name != OURS:
            ratio = stats.ratio(medians, ours)
            figures[name] |= {"over_ours": ratio.median, "over_ours_low": ratio.low, "over_ours_high": ratio.high}
    return figures


def describe_tuning(op: Operation, picks: Sequence[tuning.Pick]) -> dict[str, Any]:
    """What our tuner gave a call with these picks, among how many, and how long that took, in this call or before.

    A gradient's tuner is another of the same file.
    """
    name = "backward_tuner" if op.name.endswith("_backward") else "tuner"
    module = sys.modules[op.run.__module__]
    tuner = getattr(module, name, getattr(module, "tuner", None))
    mine = [pick for pick in picks if tuner is not None and pick.tuner == tuner.name]
    if tuner is None or not mine:
        return {}
    key = (mine[-1].key, tuning.placed(mine[-1].arguments))
    return {
        "variant": str(mine[-1].chosen),
        "tuning_s": tuner.seconds.get(key, 0.0),
        "tried_us": dict(tuner.times_us.get(key, {})),
    }


def main() -> int:
    """Measure the items one after another; what cannot be measured is a row that says why."""
    task = json.loads(sys.argv[1])
    for name, number in task["items"]:
        op = operation(name)
        case = op.cases[number]
        began = time.monotonic()
        spoilt = False
        try:
            if task.get("prepare"):
                row = {"operation": name, "case": str(case), **prepare(op, case, set(task["wanted"]))}
            else:
                row = measure(op, case, set(task["wanted"]), task["rounds"])
        except Exception as fault:  # out of memory, or ours does not run at all: part of the record
            spoilt = isinstance(fault, (SpoiltError, torch.AcceleratorError))
            reason = f"{type(fault).__name__}: {fault}"[:300]
            row = {"operation": name, "case": str(case), "candidates": {}, "left_out": reason}
        row["seconds"] = time.monotonic() - began
        print(json.dumps(row), flush=True)
        if spoilt:
            return SPENT
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
