"""Compare the estimate with measured times, region by region; `--fit` searches for better rates and prints them.

    python tools/calibrate_estimate.py --times TIMES.json --peers PEERS.json [--regions FOLDER] [--fit]

TIMES.json: a list of {"name", "h200": {"eager_us", "compile_us", "autotune_us"}}; FOLDER holds NAME.txt, the regions in
their language. PEERS.json: {"rows": [{"op", "shape", "impl", "ms"}]}.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.advice import estimate  # noqa: E402
from app.advice.facts import ShapeFacts, shape_facts  # noqa: E402
from app.advice.rates import FITTED, Rates  # noqa: E402
from profiler.hardware import Device, find_device  # noqa: E402
from profiler.region.cost import cost  # noqa: E402
from profiler.region.fusion import groups  # noqa: E402
from profiler.region.graph import lower  # noqa: E402
from profiler.region.text import parse  # noqa: E402

RMS = (
    "v = {s}.float().pow(2).mean(-1, keepdim=True)\n"
    "y = ({s}.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w\n"
)  # fmt: skip
PEERS = {
    "rmsnorm_fwd": "x: bf16[{m}, {n}]\nw: bf16[{n}]\n" + RMS.format(s="x") + "return y\n",
    "add_rmsnorm_fwd": "x: bf16[{m}, {n}]\nr: bf16[{m}, {n}]\nw: bf16[{n}]\nh = x + r\n"
    + RMS.format(s="h")
    + "return y, h\n",
    "layernorm_fwd": "x: bf16[{m}, {n}]\nw: bf16[{n}]\nb: bf16[{n}]\ny = F.layer_norm(x, ({n},), w, b)\nreturn y\n",
    "softmax_fwd": "x: bf16[{m}, {n}]\ny = F.softmax(x, -1)\nreturn y\n",
    "cross_entropy_fwd": "x: bf16[{m}, {n}]\nt: i64[{m}].below({n})\ny = F.cross_entropy(x, t)\nreturn y\n",
    "swiglu_fwd": "a: bf16[{m}, {n}]\nb: bf16[{m}, {n}]\ny = F.silu(a) * b\nreturn y\n",
    "mm": "a: bf16[{m}, {k}]\nb: bf16[{k}, {n}]\ny = a @ b\nreturn y\n",
    "mm_bias_gelu_mask": (
        "x: bf16[{m}, {k}]\nw: bf16[{k}, {n}]\nb: bf16[{n}]\nk: bf16[{m}, {n}]\ny = F.gelu(x @ w + b) * k\nreturn y\n"
    ),
    "tail_bias_gelu_mask": "z: bf16[{m}, {n}]\nb: bf16[{n}]\nk: bf16[{m}, {n}]\ny = F.gelu(z + b) * k\nreturn y\n",
    "cumsum_fp32": "x: f32[{m}, {n}]\ny = x.cumsum(-1)\nreturn y\n",
    "two_axis_reduce": "x: f32[{m}, {n}]\nreturn x.sum(0), x.sum(1)\n",
    "topk64": "x: f32[{m}, {n}]\ny, i = torch.topk(x, 64, -1)\nreturn y, i\n",
    "attn_causal_fwd": "q: bf16[4, 32, 4096, 128]\nk: bf16[4, 32, 4096, 128]\nv: bf16[4, 32, 4096, 128]\n"
    "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\nreturn y\n",
}
"""The peers' operations in the region language, by the table's `op`."""

LIBRARIES = {
    "F.rms_norm": "torch.nn.functional.rms_norm", "F.layer_norm": "torch.nn.functional.layer_norm",
    "F.softmax": "torch.nn.functional.softmax", "quack": "quack", "liger": "liger", "flag_gems": "flag_gems",
    "F": "torch.nn.functional.cross_entropy", "sdpa_cudnn": "torch.nn.functional.scaled_dot_product_attention",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One measured time and how to predict it."""

    name: str
    what: str
    measured_us: float
    predict: Callable[[Rates], float]


def shape_of(text: str, name: str) -> tuple[ShapeFacts, bool]:
    """The region's facts, and whether it is forward and backward."""
    region = parse(text, name)
    graph = lower(region)
    return shape_facts(graph, cost(graph), groups(graph)), region.requires_grad


def region_cases(times: list[dict[str, Any]], folder: Path, device: Device) -> Iterator[Case]:
    """The regions timed eager, compiled and autotuned."""
    for item in times:
        path = folder / f"{item['name']}.txt"
        if not path.is_file():
            print(f"{item['name']}: not in the region language", file=sys.stderr)
            continue
        shape, grad = shape_of(path.read_text(encoding="utf-8"), item["name"])
        yield from cases(item["name"], shape, grad, item.get("h200", {}), device)


def cases(name: str, shape: ShapeFacts, grad: bool, measured: dict[str, Any], device: Device) -> Iterator[Case]:
    """One case for each time of a region."""
    modes = {"compile_us": "default", "autotune_us": "max-autotune"}
    if measured.get("eager_us"):
        yield Case(name, "eager", measured["eager_us"], lambda r: estimate.eager_us(shape, device, r))
    for key, mode in modes.items():
        if measured.get(key):
            yield Case(name, key.removesuffix("_us"), measured[key],
                       lambda r, m=mode: estimate.compiled_us(shape, device, m, r, grad))  # fmt: skip


def peer_cases(rows: list[dict[str, Any]], device: Device) -> Iterator[Case]:
    """The rows of the peers table whose operation is one of PEERS."""
    known: dict[tuple[str, str], ShapeFacts] = {}
    for row in rows:
        key = (row["op"], row["shape"])
        if row["op"] not in PEERS or not row.get("ms"):
            continue
        if key not in known:
            sizes = [int(s) for s in row["shape"].split("x")]
            m, n, k = sizes[0], sizes[-1], sizes[1]
            known[key] = shape_of(PEERS[row["op"]].format(m=m, n=n, k=k), row["op"])[0]
        yield from peer_case(row, known[key], device)


def peer_case(row: dict[str, Any], shape: ShapeFacts, device: Device) -> Iterator[Case]:
    """How one implementation of the peers table is predicted."""
    name, impl, measured = f"{row['op']} {row['shape']}", row["impl"], row["ms"] * 1e3
    eager = ("eager", "eager_naive", "torch", "cublas")
    if impl in eager:
        yield Case(name, "eager", measured, lambda r: estimate.eager_us(shape, device, r))
    elif impl == "compile":
        yield Case(name, "compile", measured, lambda r: estimate.compiled_us(shape, device, "default", r))
    elif impl == "max-autotune":
        yield Case(name, "autotune", measured, lambda r: estimate.compiled_us(shape, device, "max-autotune", r))
    elif impl in LIBRARIES and row["op"] not in ("mm", "mm_bias_gelu_mask"):
        call = LIBRARIES[impl]
        yield Case(name, f"library {impl}", measured, lambda r: estimate.library_us(shape, device, call, r))
        if impl in ("F.layer_norm", "F.softmax"):
            yield Case(name, "eager", measured, lambda r: estimate.eager_us(shape, device, r))


def report(found: list[Case], rates: Rates) -> None:
    """Predicted against measured, and what is left of it by tool."""
    print(f"{'region':34}{'what':18}{'measured':>12}{'predicted':>12}{'ratio':>8}")
    ratios: dict[str, list[float]] = {}
    table: dict[tuple[str, str], float] = {}
    for case in found:
        predicted = case.predict(rates)
        ratio = predicted / case.measured_us
        ratios.setdefault(case.what.split()[0], []).append(ratio)
        table[case.name, case.what] = ratio
        print(f"{case.name:34}{case.what:18}{case.measured_us:12.1f}{predicted:12.1f}{ratio:8.2f}")
    for what, values in ratios.items():
        print(f"{what}: {summary(values)}")
    for what in ("compile", "autotune"):
        both = [table[n, "eager"] / table[n, what] for n, w in table if w == what and (n, "eager") in table]
        print(f"speed-up of {what} over eager: {summary(both)}")


def summary(ratios: list[float]) -> str:
    """Share within 20 %, geometric mean of the error, tenth and ninetieth per cent of measured over predicted."""
    errors = sorted(-math.log(r) for r in ratios)
    near = sum(abs(r - 1) <= 0.2 for r in ratios) / len(ratios)
    mean = math.exp(sum(abs(e) for e in errors) / len(errors))
    low, high = (math.exp(errors[round(q * (len(errors) - 1))]) for q in (0.1, 0.9))
    return (
        f"{len(ratios)} times, within 20 %: {near:.0%}, geometric mean error {mean:.2f} x, "
        f"measured / predicted 10 to 90 %: {low:.2f} to {high:.2f}"
    )


def loss(found: list[Case], rates: Rates) -> float:
    """Mean of |log error|, capped at a factor of 2.5 so that one odd region does not pull a rate."""
    return sum(min(abs(math.log(c.predict(rates) / c.measured_us)), math.log(2.5)) for c in found) / len(found)


def fit(found: list[Case], rates: Rates, rounds: int = 4) -> Rates:
    """Coordinate descent over every number in the nested rates; a change has to lower the loss noticeably."""
    best = loss(found, rates)
    for _ in range(rounds):
        for group in ("times", "eager", "default", "autotuned", "matrix"):
            inner = getattr(rates, group)
            for item in dataclasses.fields(inner):
                if isinstance(getattr(inner, item.name), int):
                    continue
                for factor in (0.7, 0.85, 0.93, 0.97, 1.03, 1.08, 1.18, 1.4):
                    inner = getattr(rates, group)
                    value = getattr(inner, item.name) * factor
                    if group not in ("times",) and value > 1.0:
                        continue
                    trial = dataclasses.replace(rates, **{group: dataclasses.replace(inner, **{item.name: value})})
                    found_loss = loss(found, trial)
                    if found_loss < best - 2e-4:
                        best, rates = found_loss, trial
        print(f"mean |log error| {best:.4f}", file=sys.stderr)
    return rates


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--regions", type=Path, default=ROOT / "tests" / "regions")
    parser.add_argument("--device", default="NVIDIA H200")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    device = find_device(options.device)
    if device is None:
        parser.error(f"no such device: {options.device}")
    found = list(region_cases(json.loads(options.times.read_text()), options.regions, device))
    if options.peers:
        found += peer_cases(json.loads(options.peers.read_text())["rows"], device)
    rates = FITTED
    if options.fit:
        rates = fit(found, rates)
        for group in ("times", "eager", "default", "autotuned", "matrix"):
            print(group, {k: round(v, 3) for k, v in dataclasses.asdict(getattr(rates, group)).items()})
    report(found, rates)


if __name__ == "__main__":
    main()
