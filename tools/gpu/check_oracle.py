"""Hold the oracle to the truth: predict without the GPU, compile with it, compare kernel kinds and library calls.

A difference has its reason where the prediction says that it assumes what Inductor decides by timing.

    python -m tools.gpu.check_oracle --record tests/records/oracle-h200.json

The predictions are made first, in a process that sees no GPU; then each region is compiled for real in a process of its
own (a crash in one must not lose the CUDA context of the rest). Needs torch, triton and numpy, and a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
REGIONS = ROOT / "tests" / "regions"
TIMEOUT_S = 300.0

VERSIONS = {
    "group_norm_many_groups": "2.13 folds the rescaling of the statistics into the kernel before, 2.11 does not",
    "rmsnorm_channel_dim": "2.13 writes the mean in a kernel of its own, 2.11 keeps the columns in one",
    "samples/column_softmax": "2.13 splits maximum and sum of a softmax together, 2.11 one after the other",
    "samples/log_softmax_wide": "2.13 splits maximum and sum of a softmax together, 2.11 one after the other",
    "softmax_rows_1M_few": "2.13 splits maximum and sum of a softmax together, 2.11 one after the other",
    "top_p_sampling_sort": "2.13 splits maximum and sum of a softmax together, 2.11 one after the other",
    "training/max_pool": "2.13 keeps the pooling's gradient in more kernels than 2.11",
    "training/mse_loss": "2.13 fuses the forward's sum with the backward's factor, 2.11 does not",
}
"""Region -> how torch 2.13, asked without a GPU in CI, differs from torch 2.11 that compiled for the record.

torch 2.11 asked without a GPU answers as it compiled: the difference is between versions.
"""
Json = dict[str, Any]


def texts(names: Iterable[str] = ()) -> dict[str, str]:
    """Every region of tests/regions by "folder/name"."""
    wanted = set(names)
    by_name = {str(p.relative_to(REGIONS).with_suffix("")): p.read_text() for p in sorted(REGIONS.rglob("*.txt"))}
    return {n: t for n, t in by_name.items() if not wanted or n in wanted}


def summary(prediction: Any) -> Json:
    """What is compared, and what helps to understand a difference."""
    kinds, externs = prediction.signature
    return {
        "kinds": dict(kinds), "externs": dict(externs), "launches": prediction.launches,
        "bytes_moved": prediction.bytes_moved, "kernels": [k.name for k in prediction.kernels for _ in range(k.calls)],
        "replaced": [r.name for r in prediction.replaced], "assumed": list(prediction.assumed),
        "took_s": prediction.took_s,
        "unavailable": prediction.unavailable,
    }  # fmt: skip


def predict_all(device: str, mode: str, names: Iterable[str]) -> dict[str, Json]:
    """Predictions of every region, in this process, which must not see a GPU."""
    import torch

    from profiler.hardware import find_device
    from profiler.oracle.inductor.answer import predict
    from profiler.region.language.text import parse

    if torch.cuda.is_available():
        raise SystemExit("predictions are made without a GPU: CUDA_VISIBLE_DEVICES=")
    chosen = find_device(device)
    if chosen is None:
        raise SystemExit(f"no figures for {device}")
    return {name: summary(predict(parse(text, name), None, chosen, mode)) for name, text in texts(names).items()}


def compile_one(name: str, mode: str) -> Json:
    """The real compile of one region, in this process, with the GPU."""
    from profiler.oracle.inductor.real_compile import compile_and_run
    from profiler.region.language.text import parse

    return summary(compile_and_run(parse(texts([name])[name], name), None, mode))


def _child(arguments: list[str], hide_gpu: bool) -> Json:
    """Run this file again; its last line is JSON."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    if hide_gpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    command = [sys.executable, "-m", "tools.gpu.check_oracle", *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took longer than {TIMEOUT_S:g} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        tail = done.stderr.strip().splitlines()
        return {"failed": (tail[-1] if tail else f"exit code {done.returncode}")[:400]}
    answer: Json = json.loads(lines[-1])
    return answer


def compare(predicted: Json, real: Json) -> bool:
    """Same number of Triton kernels of each kind, same library calls."""
    return not predicted.get("unavailable") and all(predicted.get(k) == real.get(k) for k in ("kinds", "externs"))


def check(mode: str, names: list[str], workers: int) -> Json:
    """The record: predictions, real compiles, and whether each pair is equal."""
    started = time.monotonic()
    host = _child(["--about"], hide_gpu=False)
    predicted = _child(["--predict", "--device", host["device"], "--mode", mode, *names], hide_gpu=True)
    if "failed" in predicted:
        raise SystemExit(f"predictions: {predicted['failed']}")
    with ThreadPoolExecutor(workers) as pool:
        real = dict(zip(predicted, pool.map(lambda n: _child(["--compile", "--mode", mode, n], False), predicted),
                        strict=True))  # fmt: skip
    from profiler.region.language.text import parse

    regions = {
        name: {
            "training": parse(text).requires_grad, "equal": compare(predicted[name], real[name]),
            "reason": "" if compare(predicted[name], real[name]) else "; ".join(predicted[name]["assumed"]),
            "predicted": predicted[name], "real": real[name],
        }
        for name, text in texts(names).items()
    }  # fmt: skip
    return {**host, "mode": mode, "seconds": round(time.monotonic() - started, 1), "regions": regions}


def describe_host() -> Json:
    """Device, versions and date of a record."""
    import torch
    import triton

    return {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "cuda": torch.version.cuda, "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def update(before: Json, record: Json) -> Json:
    """The record with some regions checked anew, on the same device with the same versions; raises SystemExit else."""
    same = ("device", "torch", "triton", "cuda", "mode")
    if any(before[k] != record[k] for k in same):
        raise SystemExit("another device or version than the record's: check all regions anew")
    return {**before, "regions": {**before["regions"], **record["regions"]}}


def table(record: Json) -> str:
    """Counts, and every difference."""
    lines = []
    for training in (False, True):
        rows = {n: r for n, r in record["regions"].items() if r["training"] == training}
        equal = sum(r["equal"] for r in rows.values())
        lines.append(f"{'forward + backward' if training else 'forward'}: {equal} of {len(rows)} equal")
        for name, row in rows.items():
            if not row["equal"]:
                p, r = row["predicted"], row["real"]
                lines.append(f"  {name}: {row['reason'] or 'NOT EXPLAINED'}")
                lines.append(f"    predicted {p['kinds']} {p['externs']} {p['unavailable']}")
                lines.append(f"    real      {r.get('kinds')} {r.get('externs')} {r.get('failed', '')}")
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="regions by name, default all of tests/regions")
    parser.add_argument("--mode", default="default", choices=("default", "max-autotune"))
    parser.add_argument("--device", default="NVIDIA H200")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--update", action="store_true", help="only these regions of the record; the rest stays")
    for step in ("about", "predict", "compile"):
        parser.add_argument(f"--{step}", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.about:
        print(json.dumps(describe_host()))
    elif options.predict:
        print(json.dumps(predict_all(options.device, options.mode, options.names)))
    elif options.compile:
        print(json.dumps(compile_one(options.names[0], options.mode)))
    else:
        record = check(options.mode, options.names, options.workers)
        if options.update:
            record = update(json.loads(options.record.read_text()), record)
        if options.record:
            options.record.parent.mkdir(parents=True, exist_ok=True)
            options.record.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        print(table(record))
        if any(not r["equal"] and not r["reason"] for r in record["regions"].values()):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
