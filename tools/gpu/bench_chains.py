"""Generated pointwise kernels against torch.compile, on chains that move 256 MB or more: the ratio of their times.

python tools/gpu/bench_chains.py [--chains 10] [--seconds 500] [--json OUT] [NAME ...]

Random chains by seed (tools/gpu/random_chains.py), a broadcast, several outputs, and two reductions for comparison.
Both
are checked against float64 first; then they take turns, and the medians of their rounds are compared. A ratio below 1
means that the generated kernel is the faster one. Exit status 1 where one is wrong or fails.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
from triton.testing import do_bench

from kernels.agreement import fault_of
from kernels.candidates import build
from kernels.measure.candidate.inputs import input_set
from kernels.measure.candidate.reference import reference
from profiler.region.graph.cost import cost
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import Region
from tools.gpu.random_chains import chain_of_seed

LEAST_BYTES = 256e6
ROUNDS, WARMUP_MS, REPEAT_MS = 7, 10, 60
FIXED = {
    "broadcast": "x: bf16[8192, 16384]\nr: bf16[8192, 1]\nb: bf16[16384]\ny = torch.tanh(x * r + b)\nreturn y\n",
    "several outputs": "x: bf16[8192, 8192]\nw: bf16[8192, 8192]\n"
    "h = x + w\ny = F.silu(h)\nz = h * h\nreturn h, y, z\n",
    "transposed": "x: bf16[8192, 8192]\nw: bf16[8192, 8192]\ny = gelu(x.transpose(0, 1)) * w\nreturn y\n",
    "dropout": "x: bf16[8192, 16384]\ny = F.dropout(gelu(x), 0.1)\nreturn y\n",
    "column sums": "x: bf16[65536, 4096]\ny = (x.float() * x).sum(0)\nreturn y\n",
    "softmax over the first axis": "x: bf16[1024, 131072]\ny = torch.softmax(x, 0)\nreturn y\n",
}
UNJUDGED = frozenset({"dropout"})
"""Random: held to its share of zeros alone."""


def cases(chains: int) -> Iterator[tuple[str, str]]:
    """(name, region's text): the fixed ones, then seeds whose chains move enough."""
    yield from FIXED.items()
    yielded = seed = 0
    while yielded < chains:
        text = chain_of_seed(seed, "huge")
        if cost(lower(parse(text))).ideal.bytes_moved >= LEAST_BYTES:
            yielded += 1
            yield f"chain {seed}", text
        seed += 1


def describe_fault(region: Region, inputs: list[torch.Tensor], got: tuple[torch.Tensor, ...], name: str) -> str:
    """What is wrong with outputs; "" where nothing is."""
    module = program(region, {}, "cuda").module
    plain = module(*inputs)
    if name in UNJUDGED:
        shares = [[float((t == 0).float().mean()) for t in side] for side in (got, plain)]
        return "" if all(abs(a - b) < 1e-3 for a, b in zip(*shares, strict=True)) else f"shares of zeros {shares}"
    exact = reference(module, inputs, [False] * len(inputs), [None] * len(plain)).outputs
    faults = [fault_of(*triple) for triple in zip(got, plain, exact, strict=True)]
    return next((f for f in faults if f), "")


def measure(name: str, text: str) -> dict[str, Any]:
    """Both candidates' times of one case, in µs, and their ratio."""
    region = parse(text)
    moved = cost(lower(region, {}, "cuda")).ideal.bytes_moved
    inputs = input_set(region, {}, "cuda", 0)
    calls = {name_: build(name_, region, {}, "cuda") for name_ in ("triton:generated", "compile")}
    wrong = {c: describe_fault(region, inputs, call(*inputs), name) for c, call in calls.items()}
    torch.cuda.empty_cache()
    times: dict[str, list[float]] = {c: [] for c in calls}
    for turn in range(ROUNDS):
        for c in sorted(calls, reverse=bool(turn % 2)):
            taken = do_bench(lambda c=c: calls[c](*inputs), warmup=WARMUP_MS, rep=REPEAT_MS, return_mode="median")
            times[c].append(taken * 1e3)
    medians = {c: statistics.median(t) for c, t in times.items()}
    ratios = [a / b for a, b in zip(times["triton:generated"], times["compile"], strict=True)]
    return {
        "case": name, "text": text, "bytes": moved, "generated_us": medians["triton:generated"],
        "compile_us": medians["compile"], "ratio": statistics.median(ratios), "ratio_low": min(ratios),
        "ratio_high": max(ratios), "wrong": wrong["triton:generated"], "compile_wrong": wrong["compile"],
        "tuned": list_tried_configurations(),
    }  # fmt: skip


def list_tried_configurations() -> dict[str, dict[str, float]]:
    """µs of every configuration that the generated kernels of this process tried."""
    times_us: dict[str, dict[str, float]] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("tritonworthy_kernel_"):
            for kernel in vars(module).values():
                if times := getattr(kernel, "configs_timings", None):
                    times_us[kernel.base_fn.__name__] = {str(c): round(t[0] * 1e3, 1) for c, t in times.items()}
            del sys.modules[name]
    return times_us


def main(arguments: list[str]) -> int:
    """Runs the cases, prints a table; 1 where a generated kernel is wrong or fails."""
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    reader.add_argument("names", nargs="*")
    reader.add_argument("--chains", type=int, default=10)
    reader.add_argument("--seconds", type=float, default=500.0)
    reader.add_argument("--json", type=Path)
    asked = reader.parse_args(arguments)
    ends = time.monotonic() + asked.seconds
    rows: list[dict[str, Any]] = []
    print(f"{'case':30}{'MB':>7}{'generated':>11}{'compile':>11}{'TB/s':>7}{'ratio':>8}   lowest, highest of {ROUNDS}")
    for name, text in cases(asked.chains):
        if asked.names and name not in asked.names:
            continue
        if time.monotonic() > ends:
            print(f"stopped after {asked.seconds:.0f} s, before {name}")
            break
        try:
            row = measure(name, text)
        except Exception as failure:  # one case's failure is a row of the table
            row = {"case": name, "text": text, "failed": repr(failure)[:500]}
            print(f"{name:30} {row['failed']}", flush=True)
        else:
            speed = row["bytes"] / row["generated_us"] / 1e6
            print(
                f"{name:30}{row['bytes'] / 1e6:7.0f}{row['generated_us']:11.1f}{row['compile_us']:11.1f}{speed:7.2f}"
                f"{row['ratio']:8.3f}   {row['ratio_low']:.3f}, {row['ratio_high']:.3f} {row['wrong']}", flush=True
            )  # fmt: skip
        rows.append(row)
        torch.cuda.empty_cache()
    for title, wanted in (("random chains", True), ("all", False)):
        ratios = [r["ratio"] for r in rows if "ratio" in r and (r["case"].startswith("chain") or not wanted)]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            print(f"{title}: geomean {mean:.3f}, worst {max(ratios):.3f} of {len(ratios)}")
    if asked.json:
        about = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__}
        asked.json.write_text(json.dumps({**about, "rows": rows}, indent=1))
    return int(any(r.get("wrong") or "failed" in r for r in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
