"""Helion beside generated Triton and torch.compile's max-autotune, on 20 regions of one GPU.

    python -m benchmarks.operations.helion_regions --out DIR [--seconds 500] [--tuning 60] [--only NAME ...]

Each region runs in a process of its own, which is ended with its children when its time is over; what it measured is
written to DIR/NAME.json as soon as it is there, and the table is printed at the end. Helion has to be importable
(1.5 wants torch 2.9 and Triton 3.5 or newer). Times are the median of triton.testing.do_bench, which clears L2 between
calls; errors are those of the 2-norm against float64, over eager's own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

REGIONS: Mapping[str, str] = {
    "bias-gelu-mask": "x: bf16[8192, 16384]\nb: bf16[16384]\nm: bf16[8192, 16384]\nreturn gelu(x + b) * m\n",
    "swiglu": "a: bf16[8192, 14336]\nb: bf16[8192, 14336]\nreturn silu(a) * b\n",
    "geglu": "a: bf16[4096, 16384]\nb: bf16[4096, 16384]\nreturn gelu(a, approximate='tanh') * b\n",
    "gate-mix": "x: f32[8192, 4096]\ny: f32[8192, 4096]\ng = sigmoid(x)\nreturn g * x + (1 - g) * y, g\n",
    "scale-rows": "x: bf16[16384, 4096]\ns: f32[16384, 1]\nreturn (x.float() * s).clamp(-4.0, 4.0).to(bf16)\n",
    "softmax-4k": "x: bf16[8192, 4096]\nreturn softmax(x.float(), -1).to(bf16)\n",
    "softmax-16k": "x: bf16[8192, 16384]\nreturn softmax(x.float(), -1).to(bf16)\n",
    "softmax-128k": "x: bf16[1024, 128256]\nreturn softmax(x.float(), -1).to(bf16)\n",
    "masked-softmax": "x: bf16[32, 512, 2048]\nm: bool[32, 512, 2048].mask(0.5)\n"
    "return softmax(x.float().masked_fill(m, -10000.0) * 0.125, -1).to(bf16)\n",
    "log-softmax": "x: f32[8192, 8192]\nreturn log_softmax(x, -1)\n",
    "entropy": "x: bf16[8192, 32000]\np = softmax(x.float(), -1)\nreturn -(p * torch.log(p + 1e-9)).sum(-1)\n",
    "rms-norm": "x: bf16[16384, 4096]\nw: bf16[4096]\nreturn rms_norm(x, (4096,), w, 1e-6)\n",
    "add-rms-norm": "x: bf16[16384, 4096]\nr: bf16[16384, 4096]\nw: bf16[4096]\nh = x + r\n"
    "return rms_norm(h, (4096,), w, 1e-6), h\n",
    "layer-norm": "x: bf16[16384, 8192]\nw: bf16[8192]\nb: bf16[8192]\nreturn layer_norm(x, (8192,), w, b)\n",
    "row-l2": "x: bf16[16384, 4096]\nreturn x / x.pow(2).sum(-1, keepdim=True).sqrt()\n",
    "row-scale-amax": "x: bf16[16384, 4096]\ns = x.float().abs().amax(-1, keepdim=True) / 448.0\n"
    "return (x.float() / s).to(bf16), s\n",
    "row-dot": "x: bf16[16384, 4096]\ny: bf16[16384, 4096]\nreturn (x.float() * y.float()).sum(-1)\n",
    "gemm-bias-gelu-mask": "x: bf16[8192, 4096]\nw: bf16[4096, 16384]\nb: bf16[16384]\nmask: bf16[8192, 16384]\n"
    "z = x @ w\nz = z + b\nz = gelu(z)\nreturn z * mask\n",
    "linear-relu-residual": "x: bf16[8192, 4096]\nw: bf16[4096, 4096]\nr: bf16[8192, 4096]\n"
    "return relu(F.linear(x, w)) + r\n",
    "linear-tanh-gelu": "x: bf16[4096, 4096]\nw: bf16[11008, 4096]\nb: bf16[11008]\n"
    "return gelu(F.linear(x, w, b), approximate='tanh')\n",
}

OVERHEAD_S = 60
"""Of a process, besides Helion's tuning: imports, max-autotune, generated Triton's tuning, the reference."""


def main(arguments: list[str]) -> int:
    """One process a region until the seconds are over; then the table."""
    asked = _parser().parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.one:
        _write(asked.out, asked.one, measure(asked.one, REGIONS[asked.one], asked.tuning, asked.out))
        return 0
    deadline = time.monotonic() + asked.seconds
    for name in asked.only or REGIONS:
        left = deadline - time.monotonic()
        if left < OVERHEAD_S:
            print(f"{name}: no time left", flush=True)
            continue
        failed = _in_a_process(name, asked, min(left, asked.tuning + 2 * OVERHEAD_S))
        path = asked.out / f"{name}.json"
        if failed and (not path.exists() or not json.loads(path.read_text()).get("done")):
            measured = json.loads(path.read_text()) if path.exists() else {}
            _write(asked.out, name, {**measured, "failed": failed})
        print(_row(name, json.loads(path.read_text())), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--seconds", type=float, default=500.0, help="for all regions together")
    parser.add_argument("--tuning", type=int, default=60, help="seconds that Helion may tune one region")
    parser.add_argument("--only", nargs="*", choices=sorted(REGIONS), metavar="NAME")
    parser.add_argument("--one", choices=sorted(REGIONS), help=argparse.SUPPRESS)
    return parser


def _in_a_process(name: str, asked: argparse.Namespace, seconds: float) -> str:
    """The region in a process of its own; why it has no result, "" where it has."""
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--one", name, "--out", str(asked.out),
               "--tuning", str(asked.tuning)]  # fmt: skip
    with (asked.out / f"{name}.log").open("w") as log:
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return f"ended after {seconds:.0f} s"
    return "" if code == 0 else f"ended with {code}: see {name}.log"


def measure(name: str, text: str, tuning_s: int, out: Path) -> dict[str, Any]:
    """Lines, tuning seconds, time and error of each way to run the region on this GPU, written after each of them."""
    import torch

    from kernels.baselines import compiled
    from kernels.candidates import GENERATED, HELION, build
    from kernels.codegen.generated import attempt
    from kernels.codegen.helion.source import write
    from kernels.measure.candidate.inputs import input_set
    from kernels.measure.candidate.reference import reference
    from kernels.starter_kit.lines import code_lines
    from profiler.region.graph.lowering import lower
    from profiler.region.language.program import program
    from profiler.region.language.text import parse

    os.environ["HELION_AUTOTUNE_BUDGET_SECONDS"] = str(tuning_s)
    region = parse(text)
    graph = lower(region)
    source = write(graph)
    (out / f"{name}.helion.py").write_text(source.text, encoding="utf-8")
    built = program(region, None, "cuda")
    values = list(input_set(region, {}, "cuda", 0))
    exact = reference(built.module, values, [False] * len(values), [None] * len(built.outputs)).outputs
    measured: dict[str, Any] = {
        "region": text, "device": torch.cuda.get_device_name(0), "torch": torch.__version__,
        "triton_version": _version("triton"), "helion_version": _version("helion"), "tuning_budget_s": tuning_s,
        "helion_lines": code_lines(source.text), "triton_lines": code_lines(attempt(graph).text),
    }  # fmt: skip
    ways: Mapping[str, Callable[[], Callable[..., Any]]] = {
        "eager": lambda: built.module,
        "triton": lambda: build(GENERATED, region, None, "cuda"),
        "max_autotune": lambda: compiled(region, None, "cuda", "max-autotune-no-cudagraphs"),
        "helion": lambda: build(HELION, region, None, "cuda"),
    }
    for way, make in ways.items():
        try:
            measured[way] = _timed(make, values, exact)
        except Exception as fault:  # another package's compiler: one way that fails leaves the others
            measured[way] = {"failed": f"{type(fault).__name__}: {str(fault)[:400]}"}
        _write(out, name, measured)
    return {**measured, "done": True}


def _timed(make: Callable[[], Callable[..., Any]], values: list[Any], exact: Any) -> dict[str, float]:
    """first_s: building and the first call, which compiles and tunes. time_us: the median. error: of the 2-norm."""
    import torch
    import triton.testing

    started = time.perf_counter()
    run = make()
    with torch.no_grad():
        results = run(*values)
        torch.cuda.synchronize()
        first_s = time.perf_counter() - started
        results = results if isinstance(results, tuple) else (results,)
        error = max(
            float((r.double() - e.double()).norm() / e.double().norm().clamp_min(1e-30))
            for r, e in zip(results, exact, strict=True)
        )
        times = triton.testing.do_bench(lambda: run(*values), warmup=25, rep=200, return_mode="all")
    return {"first_s": round(first_s, 2), "time_us": 1e3 * statistics.median(times), "error": error}


def _version(package: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _write(out: Path, name: str, measured: Mapping[str, Any]) -> None:
    path = out / f"{name}.json"
    half = path.with_suffix(".part")
    half.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    half.replace(path)


def _row(name: str, measured: Mapping[str, Any]) -> str:
    """One line of the table: lines, seconds, µs, what is not there as a dash."""

    def said(way: str, key: str) -> str:
        value = (measured.get(way) or {}).get(key)
        return f"{value:10.1f}" if isinstance(value, int | float) else f"{'-':>10}"

    lines = f"{measured.get('helion_lines', '-'):>4} {measured.get('triton_lines', '-'):>4}"
    times = " ".join(said(way, "time_us") for way in ("eager", "max_autotune", "triton", "helion"))
    return f"{name:22} {lines} {said('helion', 'first_s')} s {times} us {measured.get('failed', '')}".rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
