"""Whether Inductor chooses among a kernel's configurations by the kernel's time, on this host's GPU.

python -m benchmarks.operations.inductor_choices [--seconds 120] [--out FILE]

Its benchmark copies what a kernel writes over, in each call, between the two events: a kernel that is shorter than the
host takes for that is timed at the host's pace. Programs of the corpus's fit and development thirds are compiled
several times, as they are and with `inplace_buffers` off, where no kernel writes over its input; what each
configuration was timed at, which one was chosen, and what the program then takes are printed, and kept in the file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from app.accuracy.corpus.programs import Program as CorpusProgram
from app.accuracy.corpus.programs import load_corpus
from kernels.baselines import Runner, with_gradients
from kernels.calibrate.bench import Bench
from kernels.measure.turn import Turn
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import Region

Json = dict[str, Any]

MODES = (None, "max-autotune-no-cudagraphs")
RUNS = ((0, False), (0, True), (0, False), (1, False), (1, True), (0, False), (0, True))
"""Mode, and whether inplace_buffers is off, of each compilation. The first one tells whether there is a choice."""
MOST_BYTES = 4e8
REDUCING = ("reduce", "norm", "softmax")
"""In a program's structure: kernels of whole rows, of which the default mode compares several configurations."""
FIRST = ("made-reduction-0018", "made-reduction-0005")
"""Programs that a validation had shown far from what was predicted of them: no sample of what is usual."""


class Silent:
    """Nobody waits for the turn's messages."""

    def send(self, message: object) -> None: ...


def chosen_programs() -> list[CorpusProgram]:
    """Forward programs with reductions, by a hash of their names."""
    programs = [
        p
        for p in load_corpus().programs
        if p.third != "blind" and p.mode == "forward" and p.bytes_moved < MOST_BYTES
        and any(word in p.family for word in REDUCING)
    ]  # fmt: skip
    return sorted(programs, key=lambda p: (p.name not in FIRST, hashlib.sha256(p.name.encode()).hexdigest()))


def compiled(region: Region, mode: str | None, off: bool) -> Runner:
    """Under torch.compile, compiled anew."""
    torch._dynamo.reset()
    options: dict[str, Any] = {**(torch._inductor.list_mode_options(mode) if mode else {})}
    if off:
        options["inplace_buffers"] = False
    module = torch.compile(program(region, None, "cuda").module, options=options or None, dynamic=False, fullgraph=True)
    return with_gradients(module, region.requires_grad)


@contextmanager
def choices_told(told: list[Json]) -> Any:
    """Each comparison of a kernel's configurations: its name, how many arguments it writes over, times in µs."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    compare = CachingAutotuner.benchmark_all_configs

    def comparing(self: Any, *args: Any, **kwargs: Any) -> Any:
        timings = compare(self, *args, **kwargs)  # type: ignore[no-untyped-call]
        written = {_words(launcher.config): round(1e3 * ms, 1) for launcher, ms in timings.items()}
        told.append(
            {
                "kernel": str(self.fn.__name__), "written_over": len(self.mutated_arg_names or ()),
                "chosen": min(written, key=lambda words: written[words]), "timed_us": written,
            }
        )  # fmt: skip
        return timings

    with mock.patch.object(CachingAutotuner, "benchmark_all_configs", comparing):
        yield


def _words(config: Any) -> str:
    """XBLOCK 8, 2 warps."""
    blocks = ", ".join(f"{name} {value}" for name, value in config.kwargs.items())
    return f"{blocks}, {config.num_warps} warps"


def of_program(bench: Bench, item: CorpusProgram) -> Json:
    """All compilations of one program; one alone where no kernel that writes over its input has a choice."""
    region = parse(item.text)
    built = program(region, None, "cuda")
    runs: list[Json] = []
    for mode, off in RUNS:
        told: list[Json] = []
        with choices_told(told):
            call, values = bench.prepared(built, compiled(region, MODES[mode], off))
            call(*values)
            torch.cuda.synchronize()
        runs.append(
            {"mode": MODES[mode] or "default", "inplace_buffers": not off, **bench.timed(call, values), "choices": told}
        )
        if not any(is_by_chance(c) for c in runs[0]["choices"]):
            break
    return {"program": item.name, "runs": runs}


def row(answer: Json) -> str:
    """default 63.9 120.1 64.7, off 49.9 49.2; max-autotune 20.6, off 16.6 µs."""
    parts = []
    for mode in MODES:
        for inplace in (True, False):
            times = times_us(answer, mode, inplace)
            parts += [f"{(mode or 'default') if inplace else 'off'} {times}"] if times else []
    return f"{answer['program']:<26} {', '.join(parts)} µs"


def times_us(answer: Json, mode: str | None, inplace: bool) -> str:
    """What the program took in each compilation of the kind, in their order."""
    of = [r["cold_us"] for r in answer["runs"] if r["mode"] == (mode or "default") and r["inplace_buffers"] == inplace]
    return ", ".join(f"{us:.1f}" for us in of)


def table(hosts: Sequence[Json]) -> list[str]:
    """Of the programs in which a kernel of whole rows writes over its input and has a choice, as docs/oracle.md has
    them. hosts: what `measure` saved on each."""
    lines = [
        "| program | host | timed at, µs | default takes, µs | inplace_buffers off | max-autotune | off |",
        "|-|-|-|-|-|-|-|",
    ]
    for number, told in enumerate(hosts, 1):
        for answer in told["programs"]:
            choice = next((c for c in answer["runs"][0]["choices"] if is_by_chance(c)), None)
            if choice is None:
                continue
            timed = ", ".join(f"{name.split(',')[0]}: {us:.0f}" for name, us in choice["timed_us"].items())
            figures = [times_us(answer, mode, inplace) or "–" for mode in MODES for inplace in (True, False)]
            lines.append(f"| {answer['program']} | {number} | {timed} | {' | '.join(figures)} |")
    return lines


def is_by_chance(choice: Json) -> bool:
    """A kernel that holds whole rows, with several configurations, that writes over its input."""
    return bool(choice["kernel"].startswith("triton_per") and choice["written_over"] and len(choice["timed_us"]) > 1)


def measure(seconds: float, save: Callable[[Json], None]) -> None:
    """Program after program until the time is over."""
    import torch._inductor.config as inductor_config

    inductor_config.force_disable_caches = True
    bench = Bench(Turn(None, Silent()))
    ends = time.monotonic() + seconds
    told: Json = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(), "events_us": bench.events_us, "programs": [],
    }  # fmt: skip
    for item in chosen_programs():
        if time.monotonic() > ends:
            break
        try:
            answer = of_program(bench, item)
        except Exception as fault:
            answer = {"program": item.name, "failed": f"{type(fault).__name__}: {str(fault)[:200]}", "runs": []}
        told["programs"].append(answer)
        print(answer.get("failed") or row(answer), flush=True)
        save(told)


def _save(path: Path, told: Json) -> None:
    path.write_text(json.dumps(told, indent=1) + "\n")


def main(arguments: Sequence[str]) -> int:
    """2 where a GPU is needed and there is none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--out", type=Path, default=Path("inductor-choices.json"))
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of such a file; measures nothing")
    asked = parser.parse_args(arguments)
    if asked.table:
        print("\n".join(table([json.loads(asked.table.read_text())])))
        return 0
    if not torch.cuda.is_available():
        print("this needs a GPU", file=sys.stderr)
        return 2
    measure(asked.seconds, partial(_save, asked.out))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
