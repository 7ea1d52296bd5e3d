"""Products of f32 on tensor cores beside cuBLAS's of f32: `python benchmarks/operations/f32_products.py --out FILE`, on
a GPU with TMA, writes what docs/kernels.md shows as tests/records/f32-products-h200.json.

Every tile of `bf16_parts`, its first two with other CHUNKs, and `tl.dot` in its two precisions of several products; the
parts are made within the time. L2 is cleared before each call; medians of CALLS. Errors in the 2-norm against float64,
of normal numbers and of numbers of one sign.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 (run as a file)
import triton  # noqa: E402

from kernels.ops.matmul import bf16_parts, matmul  # noqa: E402
from kernels.tuning import Variant  # noqa: E402

SHAPES = ((4096, 4096, 4096), (8192, 2048, 8192), (1024, 16384, 1024))
"""M, K, N."""
OTHER_CHUNKS = (1024, 1 << 20)
DOTS = ((128, 128, 32, 8, 3), (128, 64, 32, 4, 3))
CALLS = 7
L2_BYTES = 256 << 20
"""More than any L2: what is written before a call to clear it."""

Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


def ways(a: torch.Tensor, b: torch.Tensor) -> Iterator[tuple[str, Product]]:
    """(name, A, B, C -> None), cuBLAS first."""
    yield "cuBLAS", _cublas
    tiles = bf16_parts.tiles(a, b)
    chunked = [
        replace(tile, constants=tuple((n, chunk if n == "CHUNK" else v) for n, v in tile.constants))
        for tile in tiles[:2] for chunk in OTHER_CHUNKS
    ]  # fmt: skip
    for variant in (*tiles, *chunked):
        yield str(variant), _launched(variant)
    for precision in ("tf32x3", "bf16x6"):
        for bm, bn, bk, warps, stages in DOTS:
            variant = matmul._tile(bm, bn, bk, warps, stages, precision=precision, even_k=True, itemsize=4)
            yield f"{precision} {variant}", _launched(variant)


def _cublas(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a, b, out=c)


def _launched(variant: Variant) -> Product:
    return lambda a, b, c: matmul.launch(variant, a, b, c)


def numbers(m: int, k: int, n: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """A [M, K] and B [K, N] by what their errors are told as."""
    dice = torch.Generator("cuda").manual_seed(5)
    a = torch.randn(m, k, device="cuda", generator=dice)
    b = torch.randn(k, n, device="cuda", generator=dice) * k**-0.5
    return {"error": (a, b), "error_of_one_sign": (a.abs(), b.abs())}


def cold_us(call: Callable[[], None], flush: torch.Tensor) -> float:
    """The median of CALLS, after one that compiles."""
    call()
    times: list[float] = []
    for _ in range(CALLS):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def rows(m: int, k: int, n: int, flush: torch.Tensor) -> Iterator[dict[str, Any]]:
    """One for each way."""
    drawn = numbers(m, k, n)
    wanted = {name: a.double() @ b.double() for name, (a, b) in drawn.items()}
    c = torch.empty((m, n), device="cuda")
    a, b = drawn["error"]
    for name, product in ways(a, b):
        row: dict[str, Any] = {"m": m, "k": k, "n": n, "what": name}
        row["median_us"] = round(cold_us(lambda p=product: p(a, b, c), flush), 1)  # type: ignore[misc]
        for kind, pair in drawn.items():
            product(*pair, c)
            right = wanted[kind]
            row[kind] = float(f"{float((c.double() - right).norm() / right.norm()):.3g}")
        yield row


def main() -> int:
    """The command."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--out", type=Path, required=True)
    asked = reader.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "date": datetime.date.today().isoformat(),
        "software": {"torch": torch.__version__, "triton": triton.__version__}, "rows": [],
    }  # fmt: skip
    flush = torch.empty(L2_BYTES // 4, device="cuda")
    for shape in SHAPES:
        for row in rows(*shape, flush):
            print(row, flush=True)
            record["rows"].append(row)
            asked.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
