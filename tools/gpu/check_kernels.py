"""Every operation of kernels/ on this machine's GPU against float64: `python tools/gpu/check_kernels.py [NAME ...]`.

1. Its odd cases in every form of input. 2. With --large, the cases that are timed; with --beyond, both ends of one of
more than 2^31 elements. 3. With --soak N, N calls on random sizes, dtypes, forms and variants, by several processes.
4. With --sanitize N, N such calls of every operation under compute-sanitizer's memcheck, without torch's allocator
cache, so that an access beyond a tensor is one beyond an allocation.
Each operation runs in processes of its own, since a fault poisons a process's CUDA context. Exit code 1 where
anything disagrees. Prints a line for each as it is done, and writes check_kernels.json to $OUT (or the working folder)
after each. Changes no setting of the GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import queue
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 (run as a file)
import triton  # noqa: E402

from kernels import tuning  # noqa: E402
from kernels.agreement import disagreement, unchanged  # noqa: E402
from kernels.operations import operation, operations  # noqa: E402
from kernels.spec import Case, Maker, Operation, outputs_of  # noqa: E402
from tools.gpu.visible import visible_gpus  # noqa: E402 (run as a file)

Task = tuple[str, str, int, int]
"""Operation, part, how many calls, seed."""
REFUSED = "refused: "
"""A clear error: right for a random case that the operation does not take, wrong for one of its own."""
SAME = 5
"""Random calls with the same sizes: other numbers, forms and variants, most of them compiled already."""
REFUSALS = 4
"""Random cases that may be refused for each call: of 3 groups that have to divide the channels, 2 of 3 are."""
ENDS = 40
"""Entries at each end of a case of more than 2^31 elements that are compared."""
SANITIZED = 99
SANITIZER = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", str(SANITIZED))
MOST_BYTES = 40e9
"""A case whose inputs in float64 would need more is not checked here."""


def try_case(op: Operation, case: Case, form: str, seed: int = 0) -> str:
    """What is wrong with one call; "" where nothing is."""
    try:
        arguments = op.inputs(case, Maker(device="cuda", seed=seed, form=form))
    except ValueError as said:  # of a window that fits nowhere, as a random case may have
        return f"{REFUSED}{said}"
    kept = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    try:
        got = op.run(*arguments)
        torch.cuda.synchronize()
    except (ValueError, TypeError) as said:
        return f"{REFUSED}{said}"
    except Exception as fault:  # whatever it is, it is the finding
        return f"{type(fault).__name__}: {str(fault)[:300]}"
    for before, after in zip(kept, arguments, strict=True):
        if isinstance(before, torch.Tensor) and not unchanged(before, after):
            return "an input was changed"
    return disagreement(op, got, arguments)


def check_ends(op: Operation, case: Case) -> str:
    """What is wrong with the first and the last ENDS entries of a case that is too large to be checked whole.

    Entries along the first axis of the outputs, which is that of the first input where the operation says nothing else
    (`deciding`).
    """
    arguments = op.inputs(case, Maker(device="cuda", seed=3))
    got = outputs_of(op.run(*arguments))
    long = arguments[0].shape[0] if op.deciding is None else got[0].shape[0]
    if max(t.numel() for t in (*arguments, *got) if isinstance(t, torch.Tensor)) <= 1 << 31:
        return "no tensor has more than 2^31 elements"

    def cut(x: Any, part: slice) -> Any:
        return x[part].clone() if isinstance(x, torch.Tensor) and x.dim() and x.shape[0] == long else x

    for part in (slice(0, ENDS), slice(long - ENDS, long)):
        some = tuple(cut(a, part) for a in arguments) if op.deciding is None else op.deciding(arguments, part)
        plain = outputs_of(op.reference(*some))
        # An output over all entries says nothing of these: the reference's stands in for it.
        mine = tuple(cut(o, part) if o.dim() and o.shape[0] == long else p for o, p in zip(got, plain, strict=True))
        if all(m is p for m, p in zip(mine, plain, strict=True)):
            return "no output is along the first axis"
        fault = disagreement(op, mine, some)
        if fault:
            return f"entries {part.start} to {part.stop}: {fault}"
    return ""


def vary(op: Operation, case: Case, dice: random.Random) -> Case:
    """A neighbour of a case: sizes from half to twice, those in `fixed` as they are.

    Of a tuple each entry is a size of its own, so that shapes and lists of sizes vary too. What does not fit together
    is refused, with a clear error.
    """

    def other(name: str, value: Any) -> Any:
        if name in op.fixed:
            return value
        if isinstance(value, tuple):
            return tuple(other(name, v) for v in value)
        if isinstance(value, bool) or not isinstance(value, int) or dice.random() < 0.3:
            return value
        return max(1, int(value * dice.uniform(0.5, 2.0)))

    return dataclasses.replace(case, sizes=tuple((k, other(k, v)) for k, v in case.sizes))


def any_variant(dice: random.Random) -> None:
    """Tuning is replaced by chance, so that every variant that fits meets every kind of input."""

    def pick(self: Any, key: Any, space: Any, launch: Any, *arguments: Any, uncopied: Any = ()) -> tuning.Variant:
        device = next(a.device for a in arguments if isinstance(a, torch.Tensor))
        return dice.choice(tuning.fitting(list(space() if callable(space) else space), tuning.limits_of(device)))

    tuning.Tuner.pick = pick  # type: ignore[method-assign]


def child(name: str, part: str, count: int, seed: int, seconds: float) -> dict[str, Any]:
    """One operation, one part: how many calls, and what was wrong."""
    op = operation(name)
    faults: list[str] = []
    calls = refused = 0
    began = time.monotonic()
    dice = random.Random(f"{name} {seed}")
    plan: list[tuple[Case, str]] = []
    random_case = op.checks[0]
    if part == "checks":
        plan = [(c, f) for c in op.checks for f in op.forms]
    elif part == "large":
        plan = [(c, "plain") for c in op.cases if op.cost(c).bytes * 8 / c.itemsize < MOST_BYTES]
    elif part == "beyond" and op.beyond is not None:
        for case in (op.beyond, *op.also_beyond):
            calls += 1
            fault = check_ends(op, case)
            faults += [f"{case}: {fault}"] if fault else []
            torch.cuda.empty_cache()
    chance = part in ("soak", "sanitize")
    if chance:
        any_variant(dice)
    while plan or (chance and calls < count):
        if time.monotonic() - began > seconds:
            break
        if plan:
            case, form = plan.pop(0)
        else:
            if calls % SAME == 0:
                random_case = vary(op, dice.choice(op.checks), dice)
            case, form = random_case, dice.choice(op.forms)
        fault = try_case(op, case, form, seed + calls)
        if fault.startswith(REFUSED) and chance:
            refused += 1
            random_case = vary(op, dice.choice(op.checks), dice)
            if refused > REFUSALS * count:
                faults.append(f"{refused} random cases refused, the last: {case}: {fault}")
                break
            continue
        calls += 1
        if fault:
            faults.append(f"{case} {form}: {fault}")
            if "CUDA" in fault or "illegal" in fault or len(faults) > 20:
                break
    return {"operation": name, "part": part, "calls": calls, "faults": faults, "seconds": time.monotonic() - began}


def start(task: Task, seconds: float) -> dict[str, Any]:
    """`child` in a process of its own, on one of the GPUs."""
    name, part, *_ = task
    command = [sys.executable, __file__, "--child", json.dumps([*task, seconds])]
    environment = dict(os.environ)
    if part == "sanitize":
        command = [*SANITIZER, *command]
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    gpu = gpus.get()
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds + 60,
            env={**environment, "CUDA_VISIBLE_DEVICES": gpu},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"operation": name, "part": part, "calls": 0, "faults": ["process: hangs"], "seconds": seconds}
    finally:
        gpus.put(gpu)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if lines:
        answer: dict[str, Any] = json.loads(lines[-1])
        if done.returncode == SANITIZED:
            said = [line.strip("= ") for line in done.stdout.splitlines() if line.startswith("=========")]
            answer["faults"] += [f"sanitizer: {'; '.join(filter(None, said[1:6]))[:400]}"]
        return answer
    fault = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"operation": name, "part": part, "calls": 0, "faults": [f"process: {fault[:400]}"], "seconds": 0.0}


gpus: queue.SimpleQueue[str] = queue.SimpleQueue()
"""A place for each process that may run at once."""


def show(r: dict[str, Any]) -> None:
    """A line, and the first faults."""
    print(f"{r['operation']:28} {r['part']:7} {r['calls']:5} calls {r['seconds']:6.1f} s  {len(r['faults'])} wrong")
    for fault in r["faults"][:4]:
        print(f"    {fault[:300]}")
    sys.stdout.flush()


def keep(results: list[dict[str, Any]]) -> int:
    """Write check_kernels.json; how much was wrong."""
    wrong = sum(len(r["faults"]) for r in results)
    record = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "date": time.strftime("%Y-%m-%d"), "calls": sum(r["calls"] for r in results), "wrong": wrong,
        "results": results,
    }  # fmt: skip
    (Path(os.environ.get("OUT", ".")) / "check_kernels.json").write_text(json.dumps(record, indent=1))
    return wrong


def main() -> int:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="operations (default: all)")
    parser.add_argument("--large", action="store_true", help="the timed cases too")
    parser.add_argument("--beyond", action="store_true", help="a case of more than 2^31 elements too")
    parser.add_argument("--soak", type=int, default=0, help="random calls, over all operations")
    parser.add_argument("--sanitize", type=int, default=0, help="random calls of each operation under memcheck")
    parser.add_argument("--without-checks", action="store_true", help="only what else is asked for")
    parser.add_argument("--seconds", type=float, default=200.0, help="the most that one process may take")
    parser.add_argument("--workers", type=int, default=8, help="processes a GPU at once (--large, --beyond: one)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*json.loads(arguments.child))))
        return 0
    names = arguments.names or [o.name for o in operations()]
    tasks: list[Task] = [(n, "checks", 0, 1) for n in names]
    if arguments.soak:
        each = -(-arguments.soak // len(names))
        tasks += [(n, "soak", each, 1000) for n in names]
    if arguments.sanitize:
        tasks += [(n, "sanitize", arguments.sanitize, 2000) for n in names]
    if arguments.without_checks:
        tasks = [t for t in tasks if t[1] != "checks"]
    alone: list[Task] = [(n, "large", 0, 7) for n in names if arguments.large]
    alone += [(n, "beyond", 0, 7) for n in names if arguments.beyond and operation(n).beyond is not None]
    results: list[dict[str, Any]] = []
    wrong = 0
    for some, places in ((tasks, arguments.workers), (alone, 1)):
        while not gpus.empty():
            gpus.get()
        for i in range(places * len(visible_gpus())):
            gpus.put(visible_gpus()[i % len(visible_gpus())])
        with ThreadPoolExecutor(gpus.qsize()) as pool:
            for done in as_completed([pool.submit(start, task, arguments.seconds) for task in some]):
                results.append(done.result())
                show(results[-1])
                wrong = keep(results)  # a run that is ended has what it came to
    print(f"{sum(r['calls'] for r in results)} calls, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
