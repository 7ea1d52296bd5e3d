"""One model in a process of its own, a child of benchmarks/validation/step.py: `step_child.py JSON`, which prints a
line of JSON.

With "record" in the task it writes a trace of the model's steps. Else it puts the winners back: builds each from its
region, checks the model's output against float64, and times eager and the replaced models in turns.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402 (run as a file)
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.traces.recording import record  # noqa: E402
from benchmarks.validation import placement  # noqa: E402
from benchmarks.validation.blocks import Function, Model, make  # noqa: E402
from kernels import candidates as registry  # noqa: E402
from kernels.measure import conditions, stats  # noqa: E402
from kernels.measure.candidate.correctness import compare  # noqa: E402
from kernels.measure.candidate.reference import Reference  # noqa: E402
from kernels.measure.candidate.timing import Call, Clock, DeviceClock, Estimate, Rotation, back_to_back, cold_calls  # noqa: E402
from kernels.measure.candidate.timing import warm as warm_up  # noqa: E402
from kernels.measure.judge import judge  # noqa: E402
from kernels.measure.messages import Case  # noqa: E402
from kernels.measure.model import to_json  # noqa: E402
from kernels.measure.planner import software  # noqa: E402
from profiler.region.language.text import parse  # noqa: E402

Json = dict[str, Any]
EAGER, TOGETHER = "eager", "together"


class HostClock:
    """Marks of the host's clock: for the dry run on the CPU alone."""

    def mark(self) -> float:
        return time.perf_counter()

    def elapsed_us(self, first: float, second: float) -> float:
        return (second - first) * 1e6

    def synchronize(self) -> None:
        pass

    def sleep_us(self, duration_us: float) -> None:
        pass


@dataclass(slots=True)
class Winner:
    """A candidate in its place. why: the reason where it could not be put there."""

    name: str
    part: str = ""
    function: Function | None = None
    missing: int = 0  # outputs that the part gives and the region does not
    why: str = ""


def winners(model: Model, inputs: Sequence[Tensor], wanted: Sequence[Json], device: str) -> list[Winner]:
    """Each asked-for winner, built for every combination of shapes that its region has in the model."""
    called = placement.calls(model, inputs)
    signatures = Counter(call.part for call in called)
    placed = []
    for item in wanted:
        winner = Winner(item["candidate"])
        placed.append(winner)
        region = parse(item["text"])
        runners = []
        for sizes in item["bindings"]:
            fit = placement.fit(region, sizes, called, device)
            if fit is None:
                winner.why = f"no part of the model computes the region at {sizes}" if sizes else "no part computes it"
                break
            if fit.missing and not model.parts[fit.call.part].alone:
                winner.why = f"the region lacks outputs of the part {fit.call.part}"
                break
            # All are built before any is called: building one for torch.compile resets Dynamo.
            try:
                runners.append((fit, winner.name, registry.build(winner.name, region, sizes, device)))
            except Exception as fault:  # a candidate's own, of any kind
                winner.why = repr(fault)[:400]
                break
        parts = {fit.call.part for fit, _, _ in runners}
        if len(parts) > 1:
            winner.why = f"several parts compute it: {', '.join(sorted(parts))}"
        if not winner.why:
            (winner.part,) = parts
            winner.missing = runners[0][0].missing
            winner.function = placement.replacement(model.parts[winner.part], runners, signatures[winner.part])
    return placed


def variants(placed_winners: Sequence[Winner]) -> dict[str, Mapping[str, Function]]:
    """What to measure: eager, each winner alone under its number, all of them together where there are several."""
    placed = {str(n): {w.part: w.function} for n, w in enumerate(placed_winners) if w.function is not None}
    together = {part: function for one in placed.values() for part, function in one.items()}
    several = len(together) == len(placed) > 1  # two winners of one part cannot both be there
    return {EAGER: {}, **placed, **({TOGETHER: together} if several else {})}


def checks(
    name: str, small: bool, device: str, model: Model, inputs: Sequence[Tensor], tried: Mapping[str, Any]
) -> Json:
    """For each variant, whether its output is as near to float64 as the judge demands of a candidate."""
    wide, _ = make(name, small, device)
    wide.double()
    outputs = [t.double() if t.is_floating_point() else t for t in inputs]
    reference = Reference((wide(*outputs),), {}, "float64")
    del wide, outputs
    cases: dict[str, list[Case]] = {}
    verdicts: Json = {}
    for variant, functions in tried.items():
        model.place(functions)
        try:
            errors = compare([model(*inputs)], reference)
        except Exception as fault:  # a candidate's own, of any kind: it costs this variant alone
            if variant == EAGER:
                raise
            verdicts[variant] = {"ok": False, "error": None, "error_vs_eager": None, "message": repr(fault)[:400]}
            continue
        cases[variant] = [Case("normal", reference.precision, errors)]
        verdict = judge(cases[variant], cases[EAGER])
        verdicts[variant] = {"ok": verdict.ok, "error": errors[0].error, "error_vs_eager": verdict.error_vs_eager,
                             "message": verdict.message}  # fmt: skip
    return verdicts


def time_steps(model: Model, inputs: Sequence[Tensor], tried: Mapping[str, Any], task: Json, clock: Clock) -> Json:
    """Device and wall time of a step, variants in turns, in another order each round."""

    def step(*values: Tensor) -> tuple[Tensor, ...]:
        return (model(*values),)

    call: Call = step
    rotation = Rotation([inputs])
    estimates: dict[str, Estimate] = {}
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in tried}
    for name, functions in tried.items():
        model.place(functions)
        estimates[name] = warm_up(call, rotation, task["warm_ms"], clock)
    order = list(tried)
    shuffled = random.Random(0)
    for _ in range(task["rounds"]):
        shuffled.shuffle(order)
        for name in order:
            model.place(tried[name])
            model(*inputs)
            clock.synchronize()
            device, wall = times[name]
            device.append(float(np.median(cold_calls(call, rotation, task["calls"], estimates[name], clock))))
            wall.append(back_to_back(call, rotation, task["calls"], clock).wall_us)
    rotation.last = None
    return {name: _figures(times[name], times[EAGER]) for name in tried}


def _figures(own: tuple[list[float], list[float]], eager: tuple[list[float], list[float]]) -> Json:
    """Medians over the rounds, and how many times as fast as eager, rounds in pairs."""
    figures: Json = {}
    for kind, mine, base in zip(("device", "wall"), own, eager, strict=True):
        values, reference = np.array(mine), np.array(base)
        figures[f"{kind}_us"] = to_json(stats.interval(values))
        figures[f"{kind}_speedup"] = to_json(stats.ratio(reference, values))
    return figures


def place(task: Json) -> Json:
    """The winners in their places: how near the output is, and what a step takes."""
    device, small = task["device"], task["small"]
    on_gpu = device != "cpu"
    model, inputs = make(task["model"], small, device)
    placed_winners = winners(model, inputs, task["winners"], device)
    tried = variants(placed_winners)
    gc.collect()
    with torch.no_grad():
        begun = time.monotonic()
        agreement = checks(task["model"], small, device, model, inputs, tried)
        # A wrong step is not worth timing, nor is one that a wrong one is part of.
        wrong = {name for name in tried if name != EAGER and not agreement[name]["ok"]}
        tried = {name: v for name, v in tried.items() if name not in (wrong | {TOGETHER} if wrong else wrong)}
        gc.collect()
        if on_gpu:
            torch.cuda.empty_cache()
        ready_s = time.monotonic() - begun
        before = conditions.read(0) if on_gpu else {}
        times = time_steps(model, inputs, tried, task, DeviceClock() if on_gpu else HostClock())
        after = conditions.read(0) if on_gpu else {}
    return {
        "device": torch.cuda.get_device_name() if on_gpu else None,
        "software": software(),
        "conditions": {"before": before, "after": after, "rounds": task["rounds"], "calls": task["calls"]},
        "placed": [
            {"candidate": w.name, "part": w.part, "missing_outputs": w.missing, "why": w.why} for w in placed_winners
        ],
        "checks": agreement,
        "times": times,
        "first_call_s": round(ready_s, 1),
    }


def main() -> None:
    """Command line."""
    task: Json = json.loads(sys.argv[1])
    if task["device"] == "cpu":
        torch.set_num_threads(1)  # threads that wait for a core of a busy host are slow now and then
    if "record" in task:
        model, inputs = make(task["model"], task["small"], task["device"])
        record(model, inputs, task["device"], Path(task["record"]))
        print(json.dumps({"recorded": task["record"]}))
        return
    print(json.dumps(place(task)))


if __name__ == "__main__":
    main()
