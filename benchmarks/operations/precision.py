"""What TF32 and bf16 make of f32 matrix products: times of one set of sizes in each, in turns, on this host's GPU.

python benchmarks/operations/precision.py [--sizes 60] [--out FILE]

Sizes are drawn: M, N, K of 64 to 8,192 each, half of them as models have them (multiples of 64), half any. The row says
what share of the datasheet's rate each type reaches, and how far TF32's and bf16's results lie from float64's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 (run as a file)
import triton  # noqa: E402

from profiler.hardware import find_device  # noqa: E402

WAYS = ("f32", "tf32", "bf16")
ROUNDS, MOST_FLOPS = 9, 4e11


def sizes(count: int, seed: int = 0) -> list[tuple[int, int, int]]:
    """M, N, K, spread evenly in their logarithms."""
    random = Random(seed)
    made: list[tuple[int, int, int]] = []
    while len(made) < count:
        m, n, k = (int(2 ** random.uniform(6, 13)) for _ in range(3))
        if len(made) % 2 == 0:
            m, n, k = ((max(64, x) + 32) // 64 * 64 for x in (m, n, k))
        if 2 * m * n * k < MOST_FLOPS:
            made.append((m, n, k))
    return made


def timed(m: int, n: int, k: int) -> dict[str, float]:
    """Median µs of one product in each way, in turns with L2 flushed between, and errors relative to float64."""
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    operands = {"f32": (a, b), "tf32": (a, b), "bf16": (a.bfloat16(), b.bfloat16())}
    flush = torch.empty(64 << 20, dtype=torch.float32, device="cuda")
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    errors = {}
    exact = a[: min(m, 256)].double() @ b.double()
    for number in range(ROUNDS + 2):
        for way in WAYS:
            torch.backends.cuda.matmul.allow_tf32 = way == "tf32"
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            torch.cuda._sleep(200_000)  # type: ignore[no-untyped-call]  # the launch is queued before the GPU gets to it
            start.record()
            result = operands[way][0] @ operands[way][1]
            end.record()
            end.synchronize()
            if number >= 2:
                times[way].append(1e3 * start.elapsed_time(end))
            if number == 0:
                errors[way] = float((result[: len(exact)].double() - exact).norm() / exact.norm())
    return {f"{w}_us": statistics.median(t) for w, t in times.items()} | {f"{w}_error": e for w, e in errors.items()}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", type=int, default=60)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    name = torch.cuda.get_device_name()
    device = find_device(name)
    if device is None:
        print(f"{name} is not in the table of devices")
        return 1
    rates = {"f32": device.f32_rate, "tf32": device.tf32_rate, "bf16": device.bf16_rate}
    rows = []
    for m, n, k in sizes(arguments.sizes):
        row: dict[str, float] = {"m": m, "n": n, "k": k, **timed(m, n, k)}
        row |= {f"{w}_reached": 2 * m * n * k / (row[f"{w}_us"] * 1e-6) / rates[w] for w in WAYS}
        rows.append(row)
        print(f"{m:6} {n:6} {k:6}", *(f"{w} {row[f'{w}_us']:9.1f} us {row[f'{w}_reached']:5.2f}" for w in WAYS))
    software = {"torch": torch.__version__, "cuda": str(torch.version.cuda), "triton": triton.__version__}
    date = datetime.now(UTC).date().isoformat()
    if arguments.out:
        made = {"device": name, "date": date, "software": software, "rows": rows}
        arguments.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
