"""Random programs over the generator's newer operations, on a GPU: `python -m tools.fuzz.new_operations --count 20
--out FILE`.

Each program of `operation_families` and `scatter_and_product_families` is run by `triton:generated` in a process of
its own, held to float64, and timed against torch.compile in its default mode: both warm, without CUDA graphs, in turns,
each call with a cold cache, one program at a time. Printed and written: the median ratio by family, every loss and
every error. Exits 1 where a result is wrong or a process failed. `--device cpu` checks alone, small programs in
Triton's interpreter (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tools.fuzz.claims import claimed
from tools.fuzz.scatter_and_product_families import ALL, program_of_seed

if TYPE_CHECKING:
    from kernels.codegen.text.source import Source

Programs = list[tuple[str, int]]
"""Families and seeds."""
RIGHT, REFUSED, WRONG, ERROR = "right", "refused", "wrong", "error"
ROUNDS = 40
"""Calls of each that are timed."""
LOSS = 1.1
"""Times torch.compile's time from which a program is a loss."""
PROGRAM_S = 120.0
FEW_STEPS, STEPS = 4, 1e-3
"""Elements, and the share of all, that may be on the next step."""
WARM_IMPORTS = (
    "torch", "torch._dynamo", "torch._inductor.compile_fx", "triton", "triton.language",
    "kernels.codegen.generated", "kernels.measure.candidate.inputs", "kernels.measure.candidate.reference",
)  # fmt: skip
FLUSH_BYTES = 256 << 20
"""More than any L2 cache holds: written before each timed call, which hides the host's part of the call as well."""


@dataclass
class Outcome:
    """What became of one program. ratio: the generated kernels' median time over torch.compile's.

    seconds: what each phase took on the clock, waiting for the GPU among them.
    """

    family: str
    seed: int
    text: str
    status: str
    message: str = ""
    kernels: int = 0
    kept: list[str] = field(default_factory=list)
    generated_us: float | None = None
    compiled_us: float | None = None
    ratio: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def examine(family: str, seed: int, device: str, lock: str) -> Outcome:
    """One program: lowered, generated, checked, timed. In a process of its own."""
    import torch

    from kernels.codegen.generated import generate
    from kernels.codegen.index import Unsupported
    from kernels.measure.candidate.inputs import input_set
    from kernels.measure.candidate.reference import reference
    from profiler.region.graph.lowering import lower
    from profiler.region.language.program import program
    from profiler.region.language.text import parse

    text = program_of_seed(family, seed, "small" if device == "cpu" else "large")
    outcome = Outcome(family, seed, text, ERROR)
    watch = _Watch(outcome.seconds)
    region = parse(text)
    built = program(region, {}, device)
    inputs = input_set(region, {}, device, seed)
    try:
        made = generate(lower(region, {}, device))
    except Unsupported as why:
        outcome.status, outcome.message = REFUSED, str(why)
        return outcome
    outcome.kernels, outcome.kept = len(made.sources), list(made.kept)
    watch.lap("generate")
    compiled: Callable[..., Any] | None = None
    with torch.no_grad():
        if device != "cpu":
            compiled = torch.compile(built.module, dynamic=False, fullgraph=True)
            compiled(*inputs)
            torch.cuda.synchronize()
            watch.lap("torch.compile")
            precompile(made.sources)
            watch.lap("triton")
        with turn(lock):
            watch.lap("wait")
            got = made.module(*inputs)
            watch.lap("tune")
            plain = built.module(*inputs)
            exact = reference(built.module, inputs, [False] * len(inputs), [None] * len(plain))
            wrong = fault(got, plain, exact)
            outcome.status, outcome.message = (WRONG, wrong) if wrong else (RIGHT, "")
            del exact
            watch.lap("check")
            if compiled is not None:
                times = timed([made.module, compiled], inputs)
                outcome.generated_us, outcome.compiled_us = times
                outcome.ratio = times[0] / times[1]
                watch.lap("time")
    return outcome


class _Watch:
    """What passed from lap to lap."""

    def __init__(self, laps: dict[str, float]) -> None:
        self.laps = laps
        self.last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name], self.last = round(now - self.last, 2), now


def fault(got: Sequence[Any], plain: Sequence[Any], exact: Any) -> str:
    """What is wrong with the results; "" where nothing is. Indices are held to what they point at."""
    import torch

    from kernels.agreement import fault_of, pointed

    for number, (mine, there) in enumerate(zip(got, plain, strict=True)):
        if (mine.shape, mine.dtype) != (there.shape, there.dtype):
            return f"output {number}: {mine.dtype}{[*mine.shape]}, not {there.dtype}{[*there.shape]}"
        wanted = exact.outputs[number]
        selected = exact.selected.get(number)
        if selected is not None:
            values, dim, _ = selected
            mine, wanted = pointed(mine, values, dim), pointed(wanted, values, dim)
            if mine is None or wanted is None or not torch.equal(mine.nan_to_num(), wanted.nan_to_num()):
                return f"output {number}: indices of other values"
            continue
        if mine.dtype in (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2):
            wrong = fault_in_steps(mine, wanted)
        else:
            wrong = fault_of(mine, there, wanted)
        if wrong:
            return f"output {number}: {wrong}"
    return ""


def fault_in_steps(got: Any, wanted: Any) -> str:
    """Of a quantised result: a few elements may be on the step next to theirs, whose border they are at."""
    import torch

    exact = wanted.to(got.dtype)
    if got.dtype != torch.int8:
        mine, right = (t.view(torch.uint8).to(torch.int32) for t in (got, exact))
        mine, right = (torch.where(t > 127, 128 - t, t) for t in (mine, right))  # in the order of the numbers
    else:
        mine, right = got.to(torch.int32), exact.to(torch.int32)
    off = (mine - right).abs()
    beyond, near = int((off > 1).sum()), int((off == 1).sum())
    if beyond or near > FEW_STEPS + off.numel() * STEPS:
        return f"{beyond} of {off.numel()} elements more than a step off, {near} by one"
    return ""


@contextmanager
def turn(path: str) -> Iterator[None]:
    """The GPU for this process alone."""
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def timed(calls: Sequence[Callable[..., Any]], inputs: Sequence[Any]) -> list[float]:
    """Median µs of each on the device, in turns, each with a cold cache."""
    import torch

    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        for _ in range(3):
            call(*inputs)
    events: list[list[tuple[Any, Any]]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for place, call in enumerate(calls):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            flush.zero_()
            torch.cuda._sleep(100_000)  # type: ignore[no-untyped-call]
            start.record()
            call(*inputs)
            end.record()
            events[place].append((start, end))
        torch.cuda.synchronize()
    for place, pairs in enumerate(events):
        times[place] = [1000.0 * start.elapsed_time(end) for start, end in pairs]
    return [statistics.median(each) for each in times]


# processes


def _child(results: Connection, family: str, seed: int, device: str, lock: str) -> None:
    try:
        outcome = examine(family, seed, device, lock)
    except BaseException as error:  # a program's failure is a row of the table
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error}"[:400] + f" at {Path(where.filename).name}:{where.lineno}"
        text = program_of_seed(family, seed, "small" if device == "cpu" else "large")
        outcome = Outcome(family, seed, text, ERROR, message)
    results.send(asdict(outcome))
    results.close()
    os._exit(0)  # nothing is cleaned up: a context that a kernel broke would hang in it


def preload(device: str) -> None:
    """What every child needs, imported once, before they are forked. No CUDA context is made."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    for name in WARM_IMPORTS if device != "cpu" else WARM_IMPORTS[-3:]:
        importlib.import_module(name)
    from kernels.codegen.generated import generate
    from profiler.region.graph.lowering import lower
    from profiler.region.language.text import parse

    generate(lower(parse("x: f32[4, 8]\nreturn torch.softmax(x * 2, -1)\n")))


def precompile(sources: Sequence[Source]) -> None:
    """Compiles every configuration, which takes no GPU: the turn on it is then for timing alone."""
    import torch

    from kernels.codegen.expressions.ops import TORCH_DTYPES
    from kernels.codegen.text.source import load

    for source in sources:
        tuned = getattr(load(source), source.kernel, None)
        if tuned is None:
            continue  # of nothing: there is no kernel
        arguments = [getattr(torch, TORCH_DTYPES[n].removeprefix("torch.")) for n in source.arguments]
        seed = [0] if source.seeded else []
        for config in tuned.configs:
            with suppress(Exception):  # what does not compile is told by the call
                tuned.fn.warmup(*arguments, *seed, grid=(1,), **dict(source.options), **config.all_kwargs())


def run(
    programs: Sequence[tuple[str, int]], device: str, processes: int, ends: float, claims: Path | None = None
) -> Iterator[Outcome]:
    """The outcome of each program, as they come. ends: of time.monotonic(), from when on none is started. claims: the
    folder of all runs that share the programs.
    """
    context = multiprocessing.get_context("fork")
    handle, lock = tempfile.mkstemp(prefix="tritonworthy-turn-")
    os.close(handle)
    waiting = list(programs)[::-1]
    running: dict[Connection, tuple[Any, str, int, float]] = {}
    while waiting or running:
        while waiting and len(running) < processes and time.monotonic() < ends:
            family, seed = waiting.pop()
            if not claimed(claims, f"{family} {seed}"):
                continue
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(theirs, family, seed, device, lock))
            process.start()
            theirs.close()
            running[ours] = (process, family, seed, time.monotonic() + PROGRAM_S)
        if not running:
            return  # their time is over, or other runs have the rest
        for ready in wait(list(running), timeout=1.0):
            assert isinstance(ready, Connection)
            process, family, seed, _ = running.pop(ready)
            try:
                yield Outcome(**ready.recv())
            except EOFError:
                process.join()
                text = program_of_seed(family, seed, "small" if device == "cpu" else "large")
                yield Outcome(family, seed, text, ERROR, f"the process ended with {process.exitcode}")
            process.join()
        for connection, (process, family, seed, limit) in list(running.items()):
            if time.monotonic() > limit:
                process.kill()
                process.join()
                del running[connection]
                text = program_of_seed(family, seed, "small" if device == "cpu" else "large")
                yield Outcome(family, seed, text, ERROR, f"no answer in {PROGRAM_S:.0f} s")


def drawn(families: Sequence[str], first: int, count: int, size: str, known: Collection[str] = ()) -> Programs:
    """So many programs of each family, from a seed on, families in turn. Programs that were drawn before, under another
    seed or known, are left out.
    """
    seen = set(known)
    by_family: list[list[tuple[str, int]]] = []
    for family in families:
        own: list[tuple[str, int]] = []
        for seed in range(first, first + 20 * count):
            text = program_of_seed(family, seed, size)
            if text not in seen and len(own) < count:
                seen.add(text)
                own.append((family, seed))
        by_family.append(own)
    return [program for turn_of in zip_longest(*by_family) for program in turn_of if program is not None]


def table(rows: Sequence[Outcome]) -> str:
    """Counts and the median ratio by family, then what is wrong and what is lost."""
    lines = [f"{'family':12}{'right':>7}{'refused':>9}{'wrong':>7}{'error':>7}{'kernels':>9}{'median':>8}{'worst':>7}"]
    for family in dict.fromkeys(r.family for r in rows):
        own = [r for r in rows if r.family == family]
        counts = Counter(r.status for r in own)
        ratios = [r.ratio for r in own if r.ratio is not None and r.status == RIGHT]
        median = f"{statistics.median(ratios):8.2f}{max(ratios):7.2f}" if ratios else ""
        lines.append(
            f"{family:12}{counts[RIGHT]:7}{counts[REFUSED]:9}{counts[WRONG]:7}{counts[ERROR]:7}"
            f"{sum(r.kernels for r in own):9}{median}"
        )
    other = sorted((r for r in rows if r.status != RIGHT), key=lambda r: (r.status, r.family, r.seed))
    lines += [f"{row.status}: {row.family} {row.seed}: {row.message[:150]}" for row in other]
    losses = [r for r in rows if r.status == RIGHT and r.ratio is not None and r.ratio > LOSS]
    for row in sorted(losses, key=lambda r: -(r.ratio or 0.0)):
        calls = f"; aten: {', '.join(row.kept)}" if row.kept else ""
        lines.append(
            f"loss {row.ratio:.2f}: {row.family} {row.seed}: {row.generated_us:.1f} µs, torch.compile "
            f"{row.compiled_us:.1f}; {row.kernels} kernels{calls}"
        )
    return "\n".join(lines)


def write(path: Path | None, rows: Sequence[Outcome], where: Mapping[str, str] = MappingProxyType({})) -> None:
    """The rows so far: a run that is ended leaves what it has."""
    if path is not None:
        written = {**where, "rounds": ROUNDS, "programs": [asdict(r) for r in rows]}
        path.write_text(json.dumps(written, indent=1) + "\n")


def about(device: str) -> dict[str, str]:
    """Where it ran."""
    import torch
    import triton

    gpu = "" if device == "cpu" else torch.cuda.get_device_name(0)
    return {"gpu": gpu, "torch": torch.__version__, "triton": triton.__version__}


def texts_of(body: dict[str, Any]) -> set[str]:
    """Of what a run wrote, or of a record of several."""
    return {p["text"] for run in body.get("runs", [body]) for p in run["programs"]}


def main(arguments: Sequence[str]) -> int:
    """The command."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--family", nargs="+", choices=[*ALL], default=[*ALL])
    reader.add_argument("--count", type=int, default=20, help="programs of each family, no two the same")
    reader.add_argument("--only", nargs="+", metavar="FAMILY:SEED", help="these programs and no others")
    reader.add_argument("--first", type=int, default=0, help="the first seed")
    reader.add_argument("--without", nargs="+", type=Path, default=[], help="records whose programs are not run again")
    reader.add_argument("--claims", type=Path, help="a folder for all runs that share these programs, one a GPU")
    reader.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    reader.add_argument("--seconds", type=float, default=3600.0, help="from when on no program is started")
    reader.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    reader.add_argument("--out", type=Path)
    asked = reader.parse_args(arguments)
    if asked.out is not None:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    size = "small" if asked.device == "cpu" else "large"
    known = {text for file in asked.without for text in texts_of(json.loads(file.read_text(encoding="utf-8")))}
    programs = drawn(asked.family, asked.first, asked.count, size, known)
    if asked.only:
        programs = [(family, int(seed)) for family, _, seed in (p.partition(":") for p in asked.only)]
    preload(asked.device)
    rows: list[Outcome] = []
    for row in run(programs, asked.device, asked.processes, started + asked.seconds, asked.claims):
        rows.append(row)
        write(asked.out, rows)
    rows.sort(key=lambda r: (asked.family.index(r.family), r.seed))
    print(table(rows))
    print(f"{len(rows)} of {len(programs)} programs in {time.monotonic() - started:.0f} s", flush=True)
    laps = dict.fromkeys(name for r in rows for name in r.seconds)
    print("mean seconds:", {n: round(statistics.mean(r.seconds.get(n, 0.0) for r in rows), 2) for n in laps})
    write(asked.out, rows, about(asked.device))
    return int(any(r.status in (WRONG, ERROR) for r in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
