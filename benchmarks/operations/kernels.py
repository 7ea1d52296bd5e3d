"""Every operation of kernels/ compared with what a user would pick instead: `make bench-kernels`, or
`python benchmarks/operations/kernels.py [NAME ...]`, on a host with a GPU.

Against ours: the reference in eager mode, torch.compile (default, max-autotune-no-cudagraphs), torch's own library
call, Liger, FlagGems and quack where installed. With --prepare N, N processes a GPU compile everything first; nothing
that they choose is kept, only their binaries. Then the rows are measured by one process a GPU
(benchmarks/operations/kernel_rows.py),
which is started again behind a row that it does not survive; inside it the candidates of a row take turns in rounds, so
that drift of the clocks meets all of them. Times are of cold calls on the device (kernels.measure.candidate.timing),
medians of
round medians with a bootstrap interval. Every candidate's result is compared with the reference's before it is timed.
Writes kernels.json to $OUT (or --out) and prints a table. Changes no setting of the GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 (run as a file)
import triton  # noqa: E402

from benchmarks.operations.kernel_rows import SPENT  # noqa: E402 (run as a file)
from benchmarks.operations.kernel_table import OURS  # noqa: E402
from kernels import tuning  # noqa: E402
from kernels.operations import operation, operations  # noqa: E402
from kernels.spec import Maker  # noqa: E402
from tools.gpu.visible import visible_gpus  # noqa: E402

ROWS = Path(__file__).resolve().parent / "kernel_rows.py"

Item = tuple[str, int]
"""An operation, and which of its cases."""


GRACE_S = 20.0
"""Beyond the end of the time that there is, for the row in hand."""
WITHOUT_CHOICES = {
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0", "TORCHINDUCTOR_AUTOTUNE_LOCAL_CACHE": "0",
    "TORCHINDUCTOR_COMPILE_THREADS": "2", "OMP_NUM_THREADS": "1",
}  # fmt: skip
"""For children that share a GPU: what torch.compile would choose there by timing is not written to its caches."""


def rows(
    command: Sequence[str], items: Sequence[Item], task: dict[str, Any], seconds: float, ends: float,
    environment: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """A row for each item, in order. The child does one after another; where it dies, or a row takes longer than
    `seconds`, that row says so and another child goes on behind it, as behind a row that spoilt the child's CUDA
    context (SPENT). Nothing is begun after `ends` (time.monotonic)."""
    left = list(items)
    while left and time.monotonic() < ends:
        child = subprocess.Popen(
            [*command, json.dumps({**task, "items": left})],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})}, start_new_session=True,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stderr is not None
        noise: list[str] = []
        listener = threading.Thread(target=noise.extend, args=(child.stderr,), daemon=True)
        listener.start()
        text = "nothing read"
        while left and time.monotonic() < ends:
            watch = threading.Timer(min(seconds, max(0.1, ends + GRACE_S - time.monotonic())), end, (child,))
            watch.start()
            text = child.stdout.readline()
            watch.cancel()
            if not text:
                break
            if text.startswith("{"):
                left.pop(0)
                yield json.loads(text)
        if not text:  # it ends, or has closed its pipe while a child of its own lives
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=5)
        ended = child.poll()
        died = ended != SPENT and (ended is not None or (left and time.monotonic() < ends))
        end(child)
        child.wait()
        listener.join(timeout=5)
        for pipe in (child.stdout, child.stderr):
            pipe.close()
        if left and died:
            told = " ".join(noise[-2:]).strip()[-200:]
            yield _left_out_row(*left.pop(0), f"its process ended: {told or 'too slow'}")
    for item in left:
        yield _left_out_row(*item, "no time left")


def end(child: subprocess.Popen[str]) -> None:
    """With its own children: one of them, left alone, would hold the pipe open that the rows come by."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _left_out_row(name: str, number: int, why: str) -> dict[str, Any]:
    return {"operation": name, "case": str(operation(name).cases[number]), "candidates": {}, "left_out": why}


def run_together(
    parts: Sequence[tuple[Sequence[Item], Mapping[str, str]]], task: dict[str, Any], seconds: float, ends: float
) -> Iterator[dict[str, Any]]:
    """The rows of several children at once, each with its items and its environment, as they come."""
    ready: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def work(items: Sequence[Item], environment: Mapping[str, str]) -> None:
        try:
            for row in rows([sys.executable, str(ROWS)], items, task, seconds, ends, environment):
                ready.put({**row, "gpu": environment.get("CUDA_VISIBLE_DEVICES", "")})
        finally:
            ready.put(None)

    for items, environment in parts:
        threading.Thread(target=work, args=(items, environment), daemon=True).start()
    left = len(parts)
    while left:
        row = ready.get()
        if row is None:
            left -= 1
        else:
            yield row


def deal(items: Sequence[Item], gpus: Sequence[str], each: int) -> list[tuple[Sequence[Item], dict[str, str]]]:
    """The items in turn to `each` children of every GPU."""
    hands = [(items[i :: len(gpus) * each], gpus[i % len(gpus)]) for i in range(len(gpus) * each)]
    return [(hand, {"CUDA_VISIBLE_DEVICES": gpu}) for hand, gpu in hands if hand]


def ceilings() -> dict[str, float]:
    """Measured here and now as every row is, by cold calls: bytes per second of a copy of 2 GiB, FLOP/s of cuBLAS's
    bf16 8192^3 on random data, before the card is warm (under load its clock falls, and so would the limit)."""
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    c = torch.empty_like(a)
    matmul_us = tuning.cold_us(lambda: torch.mm(a, b, out=c))  # type: ignore[arg-type]
    x = torch.empty(1 << 30, dtype=torch.bfloat16, device="cuda").normal_()
    y = torch.empty_like(x)
    copy_us = tuning.cold_us(lambda: y.copy_(x))  # type: ignore[arg-type]
    return {"copy_bytes_per_s": 2 * x.nbytes / copy_us * 1e6, "matmul_flops_per_s": 2 * 8192**3 / matmul_us * 1e6}


def demonstrations() -> dict[str, float]:
    """What the choice of a tile and of the programs' order is worth: medians of cold calls, in µs."""
    from kernels.ops import vector_add
    from kernels.ops.matmul import matmul
    from kernels.tuning import Variant

    make = Maker(device="cuda", seed=5)
    x, y = (make.normal((1 << 26,), torch.float32) for _ in range(2))
    z = torch.empty_like(x)
    times_us = {}
    for block, warps in ((4, 1), (1024, 4), (8192, 8)):
        variant = Variant(vector_add.vector_add_kernel, (("BLOCK", block),), warps)
        times_us[f"vector_add f32 n=2^26 BLOCK={block}"] = tuning.cold_us(
            lambda v=variant: vector_add.launch(v, x, y, z)  # type: ignore[misc]
        )
    a, b = (make.normal((8192, 8192), torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    for name, tile in matmul.order_of_programs(a, b).items():
        times_us[f"matmul bf16 8192^3 {name}"] = tuning.cold_us(
            lambda v=tile: matmul.launch(v, a, b, c)  # type: ignore[misc]
        )
    return times_us


def round_figures(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it is kept: five digits."""
    return dict(json.loads(json.dumps(row), parse_float=lambda text: float(f"{float(text):.5g}")))


def merge(earlier: Sequence[dict[str, Any]], rows: Mapping[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of the catalogue: these, and the earlier ones of cases that these do not measure."""
    there = {(r["operation"], r["case"]): r for r in earlier}
    there |= {key: row for key, row in rows.items() if "left_out" not in row or key not in there}
    order = [(o.name, str(c)) for o in operations() for c in o.cases]
    return [there[key] for key in order if key in there]


def installed_versions() -> dict[str, str]:
    """Package -> version of the peers that are there."""
    versions = {}
    for name in ("liger-kernel", "flag-gems", "quack-kernels", "flash-linear-attention", "torchao", "gemlite"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def format_row(row: dict[str, Any], limits: dict[str, float]) -> str:
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
    parser.add_argument("--case", default="", help="only rows with this in their case, such as 'f32 m=4096'")
    parser.add_argument("--with", dest="wanted", default="eager,compile,max-autotune,peers", help="compared with ours")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prepare", type=int, default=0, help="processes a GPU that compile everything first")
    parser.add_argument("--prepare-seconds", type=float, default=300.0, help="the most that they may take")
    parser.add_argument("--seconds", type=float, default=150.0, help="the most for one row")
    parser.add_argument("--total", type=float, default=3600.0, help="the most for all: what does not fit is left out")
    parser.add_argument("--out", default=str(Path(os.environ.get("OUT", ".")) / "kernels.json"))
    parser.add_argument("--merge", action="store_true", help="keep the rows of --out that are not measured again")
    parser.add_argument("--chosen", action="store_true", help="print what tuning chose and what it tried")
    parser.add_argument("--demonstrations", action="store_true", help="tiles and orders of programs, good and bad")
    arguments = parser.parse_args()
    began, run = time.monotonic(), time.strftime("%Y-%m-%d %H:%M:%S")
    limits = ceilings()
    torch.cuda.empty_cache()
    here = {
        "device": torch.cuda.get_device_name(), "gpus": len(visible_gpus()), "torch": torch.__version__,
        "triton": triton.__version__, "beside": arguments.wanted, "peers": installed_versions(), **limits,
    }  # fmt: skip
    print(
        f"copy {limits['copy_bytes_per_s'] / 1e12:.2f} TB/s, matmul {limits['matmul_flops_per_s'] / 1e12:.0f} TFLOP/s"
    )
    names = arguments.names or [o.name for o in operations()]
    shown = {}
    if arguments.demonstrations:
        shown = {n: float(f"{v:.5g}") for n, v in demonstrations().items()}
        print(shown)
        torch.cuda.empty_cache()
    items = [(name, i) for name in names for i, c in enumerate(operation(name).cases) if arguments.case in str(c)]
    task = {"wanted": arguments.wanted.split(","), "rounds": arguments.rounds}
    compiled: dict[tuple[str, str], dict[str, Any]] = {}
    if arguments.prepare:
        with tempfile.TemporaryDirectory() as scratch:
            children = deal(items, visible_gpus(), arguments.prepare)
            extra = {**WITHOUT_CHOICES, "FLAGGEMS_CACHE_DIR": scratch}
            ends = time.monotonic() + arguments.prepare_seconds
            for row in run_together(
                [(i, {**e, **extra}) for i, e in children], {**task, "prepare": True}, arguments.seconds, ends
            ):
                compiled[row["operation"], row["case"]] = row
        print(f"compiled after {time.monotonic() - began:.0f} s")
    ends = began + arguments.total
    measured_rows: dict[tuple[str, str], dict[str, Any]] = {}
    out = Path(arguments.out)
    before = json.loads(out.read_text()) if arguments.merge and out.exists() else {"runs": {}, "rows": []}
    record = {**before, "runs": {**before["runs"], run: here}, **({"demonstrations_us": shown} if shown else {})}
    for row in run_together(deal(items, visible_gpus(), 1), task, arguments.seconds, ends):
        print(format_row(row, limits), flush=True)
        if arguments.chosen:
            print("    ", row.get("chosen", {}))
        key = (row["operation"], row["case"])
        row |= {n: compiled[key][n] for n in ("variants", "compile_s") if n in compiled.get(key, {})}
        measured_rows[key] = round_figures({**row, "run": run})
        record["rows"] = merge(before["rows"], measured_rows)
        record["runs"] = {r: record["runs"][r] for r in sorted({row["run"] for row in record["rows"]})}
        out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
