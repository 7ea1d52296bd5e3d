"""Correctness and speed of generated and hand-written kernels compared with eager, torch.compile and torch's own calls.

Run on a machine with a GPU, from the repository root: python tools/gpu/bench_generated.py [CASE ...]. Every case runs
in its own process; prints a table and, where the variable OUT names a folder, writes bench_generated.json there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
CASE_TIMEOUT_S = 150
WARMUP_MS, REPEAT_MS = 25, 100

TAIL = """z: bf16[{m}, {n}]
b: bf16[{n}]
mask: bf16[{m}, {n}]
z = z + b
z = gelu(z)
y = z * mask
return y
"""
SOFTMAX = """x: bf16[{m}, {n}]
y = torch.softmax(x, -1)
return y
"""
RMS_NORM = """x: bf16[{m}, {n}]
w: bf16[{n}]
v = x.float().pow(2).mean(-1, keepdim=True)
y = (x.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w
return y
"""
LAYER_NORM = """x: bf16[{m}, {n}]
w: bf16[{n}]
b: bf16[{n}]
y = F.layer_norm(x, ({n},), w, b, 1e-6)
return y
"""
SWIGLU = """a: bf16[{m}, {n}]
b: bf16[{m}, {n}]
y = F.silu(a) * b
return y
"""
SHAPES = ((16384, 4096), (8192, 16384), (4096, 65536))
CASES: dict[str, tuple[str, int, int]] = {
    "tail-8192x16384": (TAIL, 8192, 16384),
    "tail-4096x4096": (TAIL, 4096, 4096),
    "tail-64x14336": (TAIL, 64, 14336),
    **{f"softmax-{m}x{n}": (SOFTMAX, m, n) for m, n in SHAPES},
    **{f"rms_norm-{m}x{n}": (RMS_NORM, m, n) for m, n in SHAPES},
    **{f"layer_norm-{m}x{n}": (LAYER_NORM, m, n) for m, n in SHAPES},
    "swiglu-16384x14336": (SWIGLU, 16384, 14336),
}


def measure(name: str) -> dict[str, Any]:
    """All candidates of one case: µs, error against float64 relative to eager's own."""
    import torch
    from triton.testing import do_bench

    from kernels.candidates import build, candidates
    from kernels.host import probe_host
    from profiler.region.graph.cost import cost
    from profiler.region.graph.lowering import lower
    from profiler.region.language.text import parse

    template, m, n = CASES[name]
    region = parse(template.format(m=m, n=n))
    graph = lower(region, {}, "cuda")
    ideal = cost(graph).ideal.bytes_moved
    torch.manual_seed(0)
    inputs = [torch.randn(t.shape, device="cuda").to(torch.bfloat16) for _, t in graph.inputs]
    few = [t[:64].double() if t.dim() > 1 else t.double() for t in inputs]
    exact = exact_rows(name, few)
    rows: list[dict[str, Any]] = []
    copy_us = do_bench(lambda: inputs[0].clone(), warmup=WARMUP_MS, rep=REPEAT_MS, return_mode="median") * 1e3
    eager_error = None
    for candidate in candidates(graph, probe_host()):
        if not candidate.available:
            continue
        row: dict[str, Any] = {"candidate": candidate.name}
        try:
            run = build(candidate.name, region, {}, "cuda")
            out = run(*inputs)[0]
            torch.cuda.synchronize()
            error = float((out[:64].double() - exact).norm() / exact.norm())
            eager_error = error if eager_error is None else eager_error
            us = do_bench(lambda run=run: run(*inputs), warmup=WARMUP_MS, rep=REPEAT_MS, return_mode="median") * 1e3
            row |= {"us": us, "tb_s": ideal / us / 1e6, "error_vs_eager": error / eager_error}
        except Exception as fault:  # one candidate's failure is a row of the table
            row |= {"failed": repr(fault)[:300]}
        rows.append(row)
    return {"case": name, "bytes": ideal, "copy_tb_s": 2 * inputs[0].nbytes / copy_us / 1e6, "rows": rows,
            "tuned": list_tried_variants(), "gpu": torch.cuda.get_device_name(0),
            "torch": torch.__version__}  # fmt: skip


def exact_rows(name: str, x: list[Any]) -> Any:
    """The first 64 rows in float64, written independently of the region."""
    import torch
    import torch.nn.functional as F

    if name.startswith("tail"):
        return F.gelu(x[0] + x[1]) * x[2]
    if name.startswith("softmax"):
        return torch.softmax(x[0], -1)
    if name.startswith("rms"):
        return x[0] * torch.rsqrt((x[0] ** 2).mean(-1, keepdim=True) + 1e-6) * x[1]
    if name.startswith("layer"):
        return F.layer_norm(x[0], x[1].shape, x[1], x[2], 1e-6)
    return F.silu(x[0]) * x[1]


def list_tried_variants() -> dict[str, dict[str, float]]:
    """µs of every variant that was tried: hand-written kernels' and generated ones'."""
    from kernels.ops.norm import rms_norm
    from kernels.ops.softmax import softmax

    times_us: dict[str, dict[str, float]] = {}
    for module in (softmax, rms_norm):
        for times in module.tuner.times_us.values():
            times_us[module.NAME] = {k: round(v, 1) for k, v in times.items()}
    for name, module in sys.modules.items():
        if name.startswith("tritonworthy_kernel_"):
            for kernel in vars(module).values():
                times = getattr(kernel, "configs_timings", None)
                if times:
                    times_us[kernel.base_fn.__name__] = {str(c): round(t[0] * 1e3, 1) for c, t in times.items()}
    return times_us


def main(wanted: list[str]) -> int:
    """Run the cases, each in a process; 1 where one failed."""
    results = []
    failed = 0
    for name in wanted or CASES:
        command = [sys.executable, __file__, "--case", name]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=CASE_TIMEOUT_S, env=env, cwd=ROOT)
        except subprocess.TimeoutExpired:
            print(f"{name}: no answer in {CASE_TIMEOUT_S} s", flush=True)
            failed += 1
            continue
        line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT ")), None)
        if line is None:
            print(f"{name}: failed\n{done.stderr[-1500:]}", flush=True)
            failed += 1
            continue
        result = json.loads(line.removeprefix("RESULT "))
        results.append(result)
        print(f"{name}  (copy {result['copy_tb_s']:.2f} TB/s)", flush=True)
        for row in result["rows"]:
            if "failed" in row:
                print(f"    {row['candidate']:44s} {row['failed']}", flush=True)
            else:
                speed = f"{row['us']:9.1f} us {row['tb_s']:6.2f} TB/s  error {row['error_vs_eager']:.2f}"
                print(f"    {row['candidate']:44s} {speed}", flush=True)
        for kernel, times in result["tuned"].items():
            best = sorted(times.items(), key=lambda t: t[1])
            print(f"      {kernel}: " + "; ".join(f"{v} {k}" for k, v in best), flush=True)
    if out := os.environ.get("OUT"):
        Path(out, "bench_generated.json").write_text(json.dumps(results, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        print("RESULT " + json.dumps(measure(sys.argv[2])))
    else:
        sys.exit(main(sys.argv[1:]))
