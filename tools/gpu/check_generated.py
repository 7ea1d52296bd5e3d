"""Random chains through the kernel generator on this machine's GPU, each against float64.

python tools/gpu/check_generated.py [--chains 200] [--seconds 400] [--first 0] [--json OUT]

The chains are those that the tests run in Triton's interpreter, by seed; each at a small size with odd tails and at one
over 1 MB. Right: within twice eager's own error, or within what a validation allows (eager can be lucky). Refused: with
the reason. Exit status 1 where one is wrong or fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch

from kernels.agreement import fault_of
from kernels.codegen.generated import generate
from kernels.codegen.index import Unsupported
from kernels.measure.candidate.correctness import compare
from kernels.measure.candidate.inputs import input_set
from kernels.measure.candidate.reference import Reference, reference
from kernels.measure.candidate.room import rooms
from kernels.measure.judge import judge
from kernels.measure.messages import Case
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tools.gpu.random_chains import FAMILIES, chain_of_seed

RIGHT, REFUSED, WRONG, ERROR = "right", "refused", "wrong", "error"


def verdict(text: str, device: str, seed: int = 0) -> dict[str, Any]:
    """What became of one region: {"status", "message", "kernels"}. Nothing is raised but by the region's own text."""
    region = parse(text)
    built = program(region, {}, device)
    inputs = input_set(region, {}, device, seed)
    before = [x.clone() for x in inputs]
    with torch.no_grad():
        plain = built.module(*inputs)
    exact = reference(built.module, inputs, [False] * len(inputs), [None] * len(plain))
    graph = lower(region, {}, device)
    try:
        made = generate(graph)
    except Unsupported as why:
        return {"status": REFUSED, "message": str(why), "kernels": 0}
    result: dict[str, Any] = {"status": RIGHT, "message": "", "kernels": len(made.sources)}
    try:
        got = made.module(*inputs)
        if device != "cpu":
            torch.cuda.synchronize()
    except Exception as fault:  # one chain's failure is a row of the table
        return {**result, "status": ERROR, "message": repr(fault)[:500]}
    faults = []
    for number, (mine, there, wanted, said) in enumerate(
        zip(got, plain, exact.outputs, graph.output_tensors, strict=True)
    ):
        if (mine.shape, mine.dtype, mine.stride()) != (there.shape, there.dtype, said.stride):
            laid_out = f"{mine.dtype}{[*mine.shape]} with strides {mine.stride()}"
            return {**result, "status": WRONG, "message": f"output {number}: {laid_out}"}
        if wrong := fault_of(mine, there, wanted):
            faults.append(f"output {number}: {wrong}")
    if faults and not within_roundings(built.module, inputs, exact, got, plain, seed):
        return {**result, "status": WRONG, "message": faults[0]}
    if not all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True)):
        return {**result, "status": WRONG, "message": "an input was changed"}
    return result


def within_roundings(
    module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor], exact: Reference, got: Sequence[torch.Tensor],
    plain: Sequence[torch.Tensor], seed: int,
) -> bool:  # fmt: skip
    """Whether a validation takes the results: several runs of the program with roundings by chance say how far right
    ones may lie from float64. A mean that is taken off what it is the mean of leaves little but roundings, and eager's
    may be a tenth of the usual ones."""
    room = rooms(module, inputs, [False] * len(inputs), [None] * len(plain), exact, seed)
    mine, eager = (Case("normal", exact.precision, compare(outputs, exact, rooms=room)) for outputs in (got, plain))
    return judge([mine], [eager]).ok


def main(arguments: list[str]) -> int:
    """Runs the chains, prints a table and what is wrong; 1 where anything is."""
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    reader.add_argument("--chains", type=int, default=200)
    reader.add_argument("--seconds", type=float, default=400.0)
    reader.add_argument("--first", type=int, default=0)
    reader.add_argument("--json", type=Path)
    asked = reader.parse_args(arguments)
    ends = time.monotonic() + asked.seconds
    rows: list[dict[str, Any]] = []
    for seed in range(asked.first, asked.first + asked.chains):
        if time.monotonic() > ends:
            print(f"stopped after {asked.seconds:.0f} s, before chain {seed}", flush=True)
            break
        for family in FAMILIES:
            for size in ("small", "large"):
                text = chain_of_seed(seed, size, family)
                try:
                    row = verdict(text, "cuda", seed)
                except Exception as fault:
                    row = {"status": ERROR, "message": f"before the kernel: {fault!r}"[:500], "kernels": 0}
                rows.append({"seed": seed, "family": family, "size": size, "text": text, **row})
                if row["status"] in (WRONG, ERROR):
                    print(f"{row['status']}: seed {seed}, {family}, {size}: {row['message']}\n{text}", flush=True)
    table(rows)
    if asked.json:
        about = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__}
        asked.json.write_text(json.dumps({**about, "rows": rows}, indent=1))
    return int(any(r["status"] in (WRONG, ERROR) for r in rows))


def table(rows: list[dict[str, Any]]) -> None:
    """Counts by family and size, and the reasons of refusals."""
    statuses = (RIGHT, REFUSED, WRONG, ERROR)
    print(f"{'family':12}{'size':8}" + "".join(f"{s:>10}" for s in statuses) + f"{'kernels':>10}")
    for family, size in dict.fromkeys((r["family"], r["size"]) for r in rows):
        own = [r for r in rows if (r["family"], r["size"]) == (family, size)]
        counts = Counter(r["status"] for r in own)
        print(
            f"{family:12}{size:8}"
            + "".join(f"{counts[s]:10}" for s in statuses)
            + f"{sum(r['kernels'] for r in own):10}"
        )
    for reason, count in Counter(r["message"] for r in rows if r["status"] == REFUSED).most_common():
        print(f"refused {count}: {reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
