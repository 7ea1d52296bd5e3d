"""Whether the bound on errors accepts what is right and refuses what is wrong.

`python benchmarks/validation/bounds.py [--device cpu] [--compile] [--only REGION] [--part 0/1] [--seconds S]
[--out FILE]`

Each implementation of `bounds_right` and `bounds_wrong` is checked as a validation checks a candidate, on this host's
GPU or, with --device cpu, on its processor. A GPU also runs libraries' calls (`bounds_libraries`); --compile adds
torch.compile of each region that it is tried on. --part 1/4: the second of four shares of the regions. Prints the
table, writes it with --out after each row, and ends with 1 where one is judged wrongly.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402 (run as a file)
import torch  # noqa: E402

from benchmarks.validation.bounds_libraries import LIBRARIES  # noqa: E402
from benchmarks.validation.bounds_regions import REGIONS  # noqa: E402
from benchmarks.validation.bounds_right import COMPILED, ON_A_GPU, RIGHT, Build, compiled  # noqa: E402
from benchmarks.validation.bounds_wrong import WRONG  # noqa: E402
from kernels.measure.candidate.task import WrongOutputError  # noqa: E402
from kernels.measure.candidate.worker import Worker  # noqa: E402
from kernels.measure.messages import Case  # noqa: E402
from kernels.measure.planner import software  # noqa: E402
from kernels.measure.records import Record, judge_record  # noqa: E402
from profiler.region.language.text import parse  # noqa: E402

NOT_HERE = ("No available kernel", "not supported", "NotImplementedError", "Invalid backend")
PACKAGES = ("liger_kernel", "quack", "cutlass")
"""What need not be installed."""


class Unheard:
    """Where a candidate's process tells what it does."""

    def send(self, message: msgspec.Struct) -> None:
        """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Row:
    """One implementation. error: over eager's own or over what roundings explain, at most 2 passes; None: not found.

    verdict: correct, mismatch, or "not here" where this host cannot run it.
    """

    region: str
    implementation: str
    right: bool
    verdict: str
    error: float | None
    message: str
    seconds: float

    @property
    def judged_wrongly(self) -> bool:
        return self.verdict != "not here" and (self.verdict == "correct") != self.right


def checked(
    text: str, build: Build | None, device: str, seed: int = 3, thorough: bool = True
) -> tuple[list[Case], list[str]]:
    """The cases of an implementation (None: of eager), and which inputs it changes."""
    worker = Worker(Unheard())  # type: ignore[arg-type]
    worker.checker.device, worker.checker.seed, worker.checker.memory_bytes = device, seed, 2e9
    region = parse(text)

    def built(name: str, *_: object) -> object:
        from profiler.region.language.program import program

        module = program(region, {}, device).module
        return module if build is None else build(module)

    try:
        task = worker._build(built, "any", region, {})  # type: ignore[arg-type]
        worker._first_call(task)  # compiles, where it does
        return worker.checker.cases(task, thorough), task.mutated
    finally:
        torch.set_grad_enabled(True)


def row(region: str, name: str, build: Build, right: bool, eager: tuple[list[Case], list[str]], device: str) -> Row:
    """One implementation's verdict."""
    started = time.perf_counter()
    record = Record(name, "library")
    try:
        cases, mutated = checked(REGIONS[region], build, device)
        record.cases, record.mutated = [cases], [mutated]
        judge_record(record, [eager[0]], [eager[1]], [""])
    except WrongOutputError as fault:
        record.fail("mismatch", str(fault))
    except Exception as fault:  # a failure of any kind is a row
        here = not any(text in f"{type(fault).__name__}: {fault}" for text in NOT_HERE)
        if isinstance(fault, ModuleNotFoundError) and (fault.name or "").partition(".")[0] in PACKAGES:
            here = False
        record.fail("error" if here else "not here", f"{type(fault).__name__}: {str(fault)[:300]}")
    known = [e for e in record.errors if e is not None]
    return Row(
        region, name, right, record.status, max(known) if known else None, record.message,
        round(time.perf_counter() - started, 2),
    )  # fmt: skip


def table(
    device: str, with_compile: bool, only: str = "", alone: bool = False, part: tuple[int, int] = (0, 1)
) -> Iterator[Row]:
    """All rows, region by region. only: of regions with this in their name; alone: of the region of this name. part:
    (which, of how many) shares of the regions.
    """
    for number, (region, text) in enumerate(REGIONS.items()):
        if only not in region or (alone and only != region) or number % part[1] != part[0]:
            continue
        own = implementations(region, device, with_compile)
        if not own:
            continue
        eager = checked(text, None, device)
        for name, right, build in own:
            yield row(region, name, build, right, eager, device)


def implementations(region: str, device: str, with_compile: bool) -> list[tuple[str, bool, Build]]:
    """(name, whether it is right, it) of a region, the right ones first."""
    rights: Mapping[str, Build] = dict(RIGHT.get(region, {}))
    if device != "cpu" and region.startswith("attention") and "hand" not in region and "capped" not in region:
        rights = {**rights, **ON_A_GPU}
    if device != "cpu":
        rights = {**rights, **LIBRARIES.get(region, {})}
    if with_compile and region in COMPILED:
        rights = {**rights, "torch.compile": compiled}
    builds = ((True, rights), (False, WRONG.get(region, {})))
    return [(name, right, build) for right, named in builds for name, build in named.items()]


def share(text: str) -> tuple[int, int]:
    """WHICH/OF, which from 0 on."""
    which, of = (int(n) for n in text.split("/"))
    if not 0 <= which < of:
        raise ValueError(f"{text}: WHICH/OF, WHICH from 0 on and below OF")
    return which, of


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--only", default="", help="regions with this in their name")
    parser.add_argument("--part", type=share, default=(0, 1), metavar="WHICH/OF", help="a share of the regions")
    parser.add_argument("--seconds", type=float, default=math.inf, help="from when on no row is begun")
    parser.add_argument("--out", type=Path, help="where to write the table as JSON")
    arguments = parser.parse_args()
    name = torch.cuda.get_device_name(arguments.device) if arguments.device != "cpu" else "cpu"
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    whole, started = True, time.monotonic()
    for one in table(arguments.device, arguments.compile, arguments.only, part=arguments.part):
        rows.append(one)
        mark = "WRONGLY" if one.judged_wrongly else ""
        error = f"{one.error:10.3g}" if one.error is not None else " " * 10
        kind = "right" if one.right else "wrong"
        print(
            f"{mark:8}{one.region:26}{kind:6} {one.implementation:30}{one.verdict:10}{error}  {one.message[:90]}",
            flush=True,
        )
        whole = time.monotonic() - started < arguments.seconds
        if arguments.out:
            made = {"device": name, "software": software(), "rows": [asdict(r) for r in rows]}
            arguments.out.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if not whole:
            break
    if not whole:
        print(f"not all: {arguments.seconds:.0f} s are over")
    wrongly = [r for r in rows if r.judged_wrongly]
    for right, words in ((True, "right: {} of {} accepted"), (False, "wrong: {} of {} refused")):
        same = [r for r in rows if r.right == right and r.verdict != "not here"]
        print(words.format(sum(not r.judged_wrongly for r in same), len(same)))
    return 1 if wrongly else 0


if __name__ == "__main__":
    sys.exit(main())
