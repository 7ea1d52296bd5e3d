"""Every operation of kernels/ beside what a user would pick instead: `make bench-kernels`, or
`python benchmarks/kernels.py [NAME ...]`, on a host with a GPU.

Beside ours: the reference in eager mode, torch.compile (default, max-autotune-no-cudagraphs), torch's own library call,
Liger, FlagGems and quack where installed. The rows are measured in a process of their own (benchmarks/kernel_rows.py),
which is started again behind a row that it does not survive; inside it the candidates of a row take turns in rounds, so
that drift of the clocks meets all of them. Times are of cold calls on the device (kernels.measure.timing), medians of
round medians with a bootstrap interval. Every candidate's result is compared with the reference's before it is timed.
Writes kernels.json to $OUT (or --out) and prints a table. Changes no setting of the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 (run as a file)
import triton  # noqa: E402

from benchmarks.kernel_table import OURS  # noqa: E402
from kernels import tuning  # noqa: E402
from kernels.catalogue import operation, operations  # noqa: E402
from kernels.spec import Maker  # noqa: E402

ROWS = Path(__file__).resolve().parent / "kernel_rows.py"

Item = tuple[str, int]
"""An operation, and which of its cases."""


def rows(
    command: Sequence[str], items: Sequence[Item], task: dict[str, Any], seconds: float, ends: float
) -> Iterator[dict[str, Any]]:
    """A row for each item, in order. The child does one after another; where it dies, or a row takes longer than
    `seconds`, that row says so and another child goes on behind it. Nothing is begun after `ends` (time.monotonic)."""
    left = list(items)
    while left and time.monotonic() < ends:
        child = subprocess.Popen(
            [*command, json.dumps({**task, "items": left})],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stderr is not None
        noise: list[str] = []
        listener = threading.Thread(target=noise.extend, args=(child.stderr,), daemon=True)
        listener.start()
        while left and time.monotonic() < ends:
            watch = threading.Timer(seconds, child.kill)
            watch.start()
            text = child.stdout.readline()
            watch.cancel()
            if not text:
                break
            if text.startswith("{"):
                left.pop(0)
                yield json.loads(text)
        died = child.poll() is not None or (left and time.monotonic() < ends)
        child.kill()
        child.wait()
        listener.join(timeout=5)
        for pipe in (child.stdout, child.stderr):
            pipe.close()
        if left and died:
            told = " ".join(noise[-2:]).strip()[-200:]
            yield _left_out(*left.pop(0), f"its process ended: {told or 'too slow'}")
    for item in left:
        yield _left_out(*item, "no time left")


def _left_out(name: str, number: int, why: str) -> dict[str, Any]:
    return {"operation": name, "case": str(operation(name).cases[number]), "candidates": {}, "left_out": why}


def ceilings() -> dict[str, float]:
    """Measured here and now: bytes per second of a copy of 2 GiB, FLOP/s of cuBLAS's bf16 8192^3 on random data."""
    x = torch.empty(1 << 30, dtype=torch.bfloat16, device="cuda").normal_()
    y = torch.empty_like(x)
    copy_ms = triton.testing.do_bench(lambda: y.copy_(x), rep=200, return_mode="median")
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    matmul_ms = triton.testing.do_bench(lambda: a @ b, rep=200, return_mode="median")
    return {"copy_bytes_per_s": 2 * x.nbytes / copy_ms * 1e3, "matmul_flops_per_s": 2 * 8192**3 / matmul_ms * 1e3}


def demonstrations() -> dict[str, float]:
    """What the choice of a tile and of the programs' order is worth: medians of cold calls, in µs."""
    from kernels import matmul, vector_add
    from kernels.tuning import Variant

    make = Maker(device="cuda", seed=5)
    x, y = (make.normal((1 << 26,), torch.float32) for _ in range(2))
    z = torch.empty_like(x)
    found = {}
    for block, warps in ((4, 1), (1024, 4), (8192, 8)):
        variant = Variant(vector_add.vector_add_kernel, (("BLOCK", block),), warps)
        found[f"vector_add f32 n=2^26 BLOCK={block}"] = tuning.cold_us(
            lambda v=variant: vector_add.launch(v, x, y, z)  # type: ignore[misc]
        )
    a, b = (make.normal((8192, 8192), torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    for name, tile in matmul.order_of_programs(a, b).items():
        found[f"matmul bf16 8192^3 {name}"] = tuning.cold_us(
            lambda v=tile: matmul.launch(v, a, b, c)  # type: ignore[misc]
        )
    return found


def line(row: dict[str, Any], limits: dict[str, float]) -> str:
    """One row of the printed table."""
    if "left_out" in row:
        return f"{row['operation']:24} {row['case'][:48]:48} {row['left_out'][:120]}"
    times = {n: c["median_us"] for n, c in row["candidates"].items() if "median_us" in c}
    ours = times.pop(OURS, None)
    least = max(row["bytes"] / limits["copy_bytes_per_s"], row["flops"] / limits["matmul_flops_per_s"]) * 1e6
    others = ", ".join(f"{n} {t:.1f}" for n, t in sorted(times.items(), key=lambda item: item[1]))
    mine = row["candidates"][OURS]
    fault = mine.get("fault") or mine.get("reason") or ""
    spoken = f"{ours:9.1f} ({least / ours:4.2f})" if ours else "        -       "
    return f"{row['operation']:24} {row['case'][:48]:48} {spoken} | {others}{' FAULT ' + fault[:160] if fault else ''}"


def main() -> int:
    """Measure what is asked for, print it, keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="operations (default: all)")
    parser.add_argument("--with", dest="wanted", default="eager,compile,max-autotune,peers", help="beside ours")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=150.0, help="the most for one row")
    parser.add_argument("--total", type=float, default=3600.0, help="the most for all: what does not fit is left out")
    parser.add_argument("--out", default=str(Path(os.environ.get("OUT", ".")) / "kernels.json"))
    parser.add_argument("--chosen", action="store_true", help="print what tuning chose and what it tried")
    parser.add_argument("--demonstrations", action="store_true", help="tiles and orders of programs, good and bad")
    arguments = parser.parse_args()
    began = time.monotonic()
    limits = ceilings()
    torch.cuda.empty_cache()
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "date": time.strftime("%Y-%m-%d"), **limits, "rows": [],
    }  # fmt: skip
    print(
        f"copy {limits['copy_bytes_per_s'] / 1e12:.2f} TB/s, matmul {limits['matmul_flops_per_s'] / 1e12:.0f} TFLOP/s"
    )
    names = arguments.names or [o.name for o in operations()]
    if arguments.demonstrations:
        record["demonstrations_us"] = demonstrations()
        print(record["demonstrations_us"])
        torch.cuda.empty_cache()
    items = [(name, number) for name in names for number in range(len(operation(name).cases))]
    task = {"wanted": arguments.wanted.split(","), "rounds": arguments.rounds}
    ends = began + arguments.total
    for row in rows([sys.executable, str(ROWS)], items, task, arguments.seconds, ends):
        print(line(row, limits), flush=True)
        if arguments.chosen:
            print("    ", row.get("chosen", {}))
        record["rows"].append(row)
        Path(arguments.out).write_text(json.dumps(record, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
