"""Counted bytes against the DRAM bytes that `ncu` reads: `python tools/gpu/check_traffic.py [REGION ...]`.

Regions far beyond L2, each once in eager and once under torch.compile after a warm-up, on this machine's GPU. Needs
torch, triton and Nsight Compute; runs from the repository's root and changes no setting of the GPU. Writes the record
to $OUT/traffic-DEVICE.json (else tests/records) and prints one table last. Returns 1 where a region is more than 10 %
off and EXPLAINED says nothing about it.

Two profiles are taken. Cold (`--cache-control all`): ncu empties the caches before every kernel, so a kernel's reads
come from memory as counted; what it leaves dirty in L2 at its end is not seen being written, up to the L2's size per
kernel. Warm (`--cache-control none`): kernels find what the one before left, as in a program; a kernel that only reads
follows, and what it writes back is added. The cold one is compared, the warm one stands next to it. Copies by the copy
engine (a clone of a contiguous tensor) are no kernels and are in neither.

`--again RECORD` compares a record's kernels with what is counted today and writes it anew: no GPU is needed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tools.records import traffic_record as tr  # noqa: E402
from tools.records.traffic_record import Counted, Run  # noqa: E402

MODES = ("eager", "compile")
SCRATCH_BYTES = 2**30
PROFILE_TIMEOUT_S = 240
NCU_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/NVIDIA-Nsight-Compute*/ncu")

REGIONS: dict[str, tuple[str, int, int]] = {
    "pointwise_chain": ("""x: f32[{m}, {n}]
y: f32[{m}, {n}]
z = x * 1.7 + y
z = tanh(z)
z = z * z + x
z = sigmoid(z) * y
z = clamp(z, -3, 3)
z = where(z > 0, z, z * 0.1)
return (z * 2.0 + 1.0).to(bf16)
""", 32768, 16384),
    "bias_gelu_mask": ("""x: bf16[{m}, {n}]
b: bf16[{n}]
mask: bool[{m}, {n}].mask(0.9)
return gelu(x + b) * mask
""", 65536, 16384),
    "swiglu": ("""a: bf16[{m}, {n}]
b: bf16[{m}, {n}]
return silu(a) * b
""", 65536, 16384),
    "rms_norm_by_hand": ("""x: bf16[{m}, {n}]
w: bf16[{n}]
v = x.float().pow(2).mean(-1, keepdim=True)
return (x.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w
""", 131072, 8192),
    "layer_norm_by_hand": ("""x: f32[{m}, {n}]
w: f32[{n}]
b: f32[{n}]
m = x.mean(-1, keepdim=True)
v = ((x - m) ** 2).mean(-1, keepdim=True)
return (x - m) * torch.rsqrt(v + 1e-5) * w + b
""", 524288, 1024),
    "softmax_rows": ("""x: bf16[{m}, {n}]
return torch.softmax(x.float(), -1).to(bf16)
""", 262144, 4096),
    "rope": ("""x: bf16[16, 32, {m}, {n}]
c: bf16[{m}, {n}]
s: bf16[{m}, {n}]
half = x.shape[-1] // 2
return x * c + torch.cat((-x[..., half:], x[..., :half]), -1) * s
""", 16384, 128),
    "two_axes": ("""x: bf16[{m}, {n}]
return x.float().sum(0), x.float().sum(1)
""", 32768, 32768),
    "adam": ("""p: f32[{m}, {n}]
g: f32[{m}, {n}]
m: f32[{m}, {n}]
v: f32[{m}, {n}]
m2 = m * 0.9 + g * 0.1
v2 = v * 0.999 + g * g * 0.001
p2 = p - 1e-3 * m2 / (v2.abs().sqrt() + 1e-8)
return p2, m2, v2
""", 32768, 16384),
    "fp8_quantise": ("""x: bf16[{m}, {n}]
a = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-12)
s = a / 448.0
y = (x.float() / s).clamp(-448, 448).to(f8e4m3)
return y, s
""", 131072, 8192),
    "gemm_bias_gelu": ("""x: bf16[{m}, 1024]
w: bf16[1024, {n}]
b: bf16[{n}]
return gelu(x @ w + b)
""", 131072, 8192),
    "embedding_scale": ("""w: bf16[1000000, {n}]
i: i64[{m}].below(1000000)
return embedding(i, w) * 2.0
""", 1048576, 1024),
    "jagged_mean": ("""v: f32[{m}, {n}]
off: i64[513].offsets({m})
n = off[1:] - off[:-1]
seg = torch.repeat_interleave(torch.arange(512), n, output_size={m})
return torch.zeros(512, {n}).index_add(0, seg, v) / n[:, None]
""", 8388608, 128),
}  # fmt: skip
"""Name -> text, m, n: every tensor that counts is 1 GiB or more, so that what L2 holds back is below 6 % of it."""

_TILES = (
    "the matrix product alone is off: its tiles of 192 x 192 read the operands again, wave after wave, and the L2 does"
    " not hold both; we count each operand once. The other kernels are as counted"
)
EXPLAINED: Mapping[tuple[str, str], str] = {("gemm_bias_gelu", "eager"): _TILES, ("gemm_bias_gelu", "compile"): _TILES}
"""(region, mode) -> why more than 10 % lie between counted and measured, once that was found out."""


def text_of(name: str, m: int | None = None, n: int | None = None) -> str:
    """A region's text, at its own sizes or at others."""
    template, own_m, own_n = REGIONS[name]
    return template.format(m=m or own_m, n=n or own_n)


def count_traffic(text: str, mode: str, device: str = "NVIDIA H200") -> tuple[Counted, list[Counted], float, int]:
    """(the whole region, its kernels in order, floor in µs there or 0, fewest bytes) as the cost model has it."""
    from profiler.hardware import find_device
    from profiler.region.graph.cost import cost
    from profiler.region.graph.cost_model import floor_us
    from profiler.region.graph.lowering import lower
    from profiler.region.language.text import parse

    region_cost = cost(lower(parse(text)))
    parts = [o for o in region_cost.operations if o.launches] if mode == "eager" else list(region_cost.kernels)
    whole = region_cost.unfused if mode == "eager" else region_cost.fused
    known = find_device(device)
    return (
        Counted("all", whole.bytes_read, whole.bytes_written),
        [Counted(p.label, p.bytes_read, p.bytes_written) for p in parts],
        floor_us(region_cost, known) if known else 0.0,
        region_cost.ideal.bytes_moved,
    )


def child(order: Path, names: Sequence[str], device: str = "cuda", small: tuple[int, int] | None = None) -> None:
    """Run every region in both modes, and write to `order` what ran, a line of JSON each, in the order it ran.

    On a GPU each run stands between marker kernels inside cudaProfilerStart and Stop. device "cpu" runs without them.
    """
    import torch

    from kernels import baselines
    from kernels.measure.candidate import inputs
    from profiler.region.language.program import program
    from profiler.region.language.text import parse

    gpu = device != "cpu"
    scratch = torch.zeros(SCRATCH_BYTES // 4 if gpu else 1, device=device)
    with order.open("a", encoding="utf-8") as file, torch.no_grad():
        for name in names:
            region = parse(text_of(name, *(small or ())), name)
            scales = inputs.weight_scales(program(region, None, device).module)
            given = inputs.input_set(region, {}, device, seed=0, scales=scales)
            for mode in MODES if gpu else MODES[:1]:
                run = (
                    baselines.eager(region, None, device)
                    if mode == "eager"
                    else baselines.compiled(region, None, device, None)
                )
                for _ in range(2):
                    run(*given)
                if gpu:
                    scratch.sum()  # what the warm-up left in L2 is written back before the profiled run
                    torch.cuda.synchronize()
                    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
                    torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
                    kept = run(*given)
                    torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
                    scratch.sum()
                    torch.cuda.synchronize()
                    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
                    del kept
                file.write(json.dumps([name, mode]) + "\n")
                file.flush()
                del run
            del given
            if gpu:
                torch.cuda.empty_cache()


def ncu() -> str:
    """Nsight Compute's command line; SystemExit where there is none."""
    program = shutil.which("ncu") or next((str(p) for g in NCU_PLACES for p in sorted(Path("/").glob(g[1:]))), None)
    if program is None:
        sys.exit("ncu (Nsight Compute) is not installed")
    return program


def command(cache: str, metrics: Sequence[str], log: Path, order: Path, names: Sequence[str]) -> list[str]:
    """ncu around a child. Base units and the raw page: one row a kernel, bytes as bytes."""
    return [
        ncu(), "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--cache-control", cache,
        "--replay-mode", "kernel", "--profile-from-start", "off", "--target-processes", "application-only",
        "--log-file", str(log), "--metrics", ",".join(metrics),
        sys.executable, str(Path(__file__).resolve()), "--child", str(order), *names,
    ]  # fmt: skip


def profile(cache: str, metrics: Sequence[str], names: Sequence[str], folder: Path) -> list[Run]:
    """The runs of one profile. ValueError, with what ncu said, where it gave none."""
    log, order = folder / f"{cache}.csv", folder / f"{cache}.order"
    log.unlink(missing_ok=True)
    order.unlink(missing_ok=True)
    done = subprocess.run(
        command(cache, metrics, log, order, names), cwd=ROOT, capture_output=True, text=True, timeout=PROFILE_TIMEOUT_S
    )
    said = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    if done.returncode or not order.is_file():
        raise ValueError(f"ncu ended with {done.returncode}: {said[-800:]} {done.stdout[-400:]} {done.stderr[-2000:]}")
    ran = [tuple(json.loads(line)) for line in order.read_text(encoding="utf-8").splitlines()]
    return tr.split_runs(tr.parse_csv(said), ran)


def measure(names: Sequence[str], folder: Path, l2: bool) -> tuple[list[Run], dict[tuple[str, str], Run], list[str]]:
    """Cold runs, warm runs by (region, mode), and remarks. l2: with L2's own counters, which may take more passes."""
    remarks: list[str] = []
    cold = profile("all", (*tr.METRICS, *tr.L2_METRICS) if l2 else tr.METRICS, names, folder)
    try:
        warm = {(r.region, r.mode): r for r in profile("none", tr.METRICS, names, folder)}
    except (ValueError, subprocess.TimeoutExpired) as error:
        remarks.append(f"no warm profile: {str(error)[:300]}")
        warm = {}
    return cold, warm, remarks


def software() -> dict[str, str]:
    """Versions that the numbers depend on."""
    import torch
    import triton

    version = subprocess.run([ncu(), "--version"], capture_output=True, text=True).stdout.strip().splitlines()
    return {
        "torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version(),
        "cuda": str(torch.version.cuda), "ncu": version[-1] if version else "",
    }  # fmt: skip


def gpu() -> dict[str, Any]:
    """Name, L2 and driver, asked of a child: the parent starts no CUDA context other than the profiled one."""
    ask = (
        "import json, torch; p = torch.cuda.get_device_properties(0);"
        "print(json.dumps({'device': p.name, 'l2_bytes': p.L2_cache_size, 'processors': p.multi_processor_count}))"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"no GPU: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}")
    return dict(json.loads(done.stdout))


def entries(
    runs: Sequence[Run], warm: Mapping[tuple[str, str], Run], texts: Mapping[str, str], device: str
) -> list[dict[str, Any]]:
    """The record's entries: each run next to what is counted for its text."""
    compared = []
    for run in runs:
        whole, parts, floor, _ = count_traffic(texts[run.region], run.mode, device)
        key = (run.region, run.mode)
        item = tr.compare(run, texts[run.region], whole, parts, warm.get(key), floor, EXPLAINED.get(key, ""))
        compared.append(tr.to_json(item))
    return compared


def recount(record: dict[str, Any]) -> dict[str, Any]:
    """A record's own kernels against what is counted today."""
    pairs = [tr.run_of(item) for item in record["regions"]]
    warm = {(w.region, w.mode): w for _, w in pairs if w is not None}
    texts = {item["region"]: item["text"] for item in record["regions"]}
    return {**record, "regions": entries([r for r, _ in pairs], warm, texts, record["device"])}


def main(arguments: Sequence[str]) -> int:
    """0 where every region agrees within 10 % or is explained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="REGION", help=f"of {', '.join(REGIONS)}; all without")
    parser.add_argument("--l2", action="store_true", help="also read the bytes that the processors ask of L2")
    parser.add_argument("--again", type=Path, metavar="RECORD")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = options.names or list(REGIONS)
    unknown = [n for n in names if n not in REGIONS]
    if unknown:
        parser.error(f"no region {', '.join(unknown)}")
    if options.child:
        child(options.child, names)
        return 0
    if options.again:
        path = options.again
        record = recount(json.loads(path.read_text(encoding="utf-8")))
    else:
        device = gpu()
        folder = Path(os.environ.get("OUT") or ROOT / "tests" / "records")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"traffic-{device['device'].split()[-1].lower()}.json"
        with tempfile.TemporaryDirectory() as scratch:
            # where there is an OUT, what ncu wrote comes back with the record
            kept = folder if os.environ.get("OUT") else Path(scratch)
            cold, warm, remarks = measure(names, kept, options.l2)
        record = {
            **device, "software": software(), "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "method": (__doc__ or "").split("\n\n")[2].replace("\n", " "), "remarks": remarks,
            "regions": entries(cold, warm, {n: text_of(n) for n in names}, device["device"]),
        }  # fmt: skip
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(tr.table(record["regions"]), flush=True)
    return 1 if any(not r["agrees"] and not r["explanation"] for r in record["regions"]) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
