"""Validate a few regions on this machine's GPU and keep every result: `python tools/gpu/gpu_check.py [NAME ...]`.

Prints one table per region and writes all Validations as JSON to $OUT/validations.json (or the working folder's).
Run from the repository's root, where torch, triton and numpy are installed. Changes no setting of the GPU.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from kernels.measure.model import Interval, Validation, to_json
from kernels.measure.session import ValidationRequest, open_fork_server, validate

TOTAL_S = 450.0

RMS_NORM = """N: sizes[2048, 37, 8192]
x: bf16[N, 4096]
w: bf16[4096]
h = x.float()
v = h.pow(2).mean(-1, keepdim=True)
y = (h * torch.rsqrt(v + 1e-6)).to(bf16) * w
return y
"""

REGIONS: dict[str, str] = {
    "rms_norm_by_hand": RMS_NORM,
    "rms_norm_by_hand again": RMS_NORM,
    "gemm_gelu_mask": """x: bf16[8192, 4096]
w: bf16[4096, 16384]
b: bf16[16384]
mask: bf16[8192, 16384].mask(0.9)
z = x @ w
z = z + b
z = gelu(z)
y = z * mask
return y
""",
    "softmax": "x: bf16[8192, 8192]\nreturn softmax(x.float(), -1).to(bf16)\n",
    "attention_by_hand": """q: bf16[4, 16, 1024, 64]
k: bf16[4, 16, 1024, 64]
v: bf16[4, 16, 1024, 64]
s = q @ k.transpose(-2, -1) * 0.125
p = softmax(s.float(), -1).to(bf16)
return p @ v
""",
    "layer_norm_training": """x: bf16[8192, 4096].requires_grad
w: bf16[4096].requires_grad
b: bf16[4096].requires_grad
return F.layer_norm(x, [4096], w, b)
""",
    "bias_gelu_mask": """x: bf16[8192, 4096]
b: bf16[4096]
mask: bf16[8192, 4096].mask(0.9)
return gelu(x + b) * mask
""",
    "embedding_scaled": "t: bf16[128256, 4096]\ni: i64[8192].below(128256)\nreturn F.embedding(i, t) * 2.0\n",
    "dropout": "x: bf16[8192, 4096]\nreturn F.dropout(gelu(x), 0.1)\n",
    "tiny": "x: f32[64, 64]\nreturn torch.tanh(x * 2 + 1) * x\n",
}


def span(value: Interval | None, digits: int = 1) -> str:
    """Median and interval."""
    return "-" if value is None else f"{value.median:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


def show(name: str, seconds: float, validation: Validation) -> None:
    """One region's table."""
    floor = f", floor {validation.floor_us:.1f} us" if validation.floor_us else ""
    print(f"\n== {name}: {seconds:.1f} s{floor}; {validation.outcome}: {validation.reason}")
    print(f"   phases {validation.conditions.get('phases_s')} by {validation.conditions.get('decided_by')}"
          f" warnings {validation.conditions.get('warnings')} coverage {validation.coverage!r}")  # fmt: skip
    print(f"   {'candidate':42} {'status':14} {'device us':24} {'wall us':>9} {'ratio':22} {'error':>6} {'first s':>7}")
    for c in validation.candidates:
        wall = f"{c.wall_us:9.1f}" if c.wall_us else "        -"
        error = f"{c.error_vs_eager:6.2f}" if c.error_vs_eager is not None else "     -"
        first = f"{c.compile_s:7.1f}" if c.compile_s is not None else "      -"
        ratio = span(c.ratio_to_eager, 3)
        print(f"   {c.name:42} {c.status:14} {span(c.time_us):24} {wall} {ratio:22} {error} {first}")
        if c.message:
            print(f"      {c.message[:240]}")
        if c.kernels:
            print(f"      kernels: {', '.join(k[:60] for k in c.kernels[:6])}")
        if len(c.shapes) > 1:
            print("      " + "; ".join(f"{s.binding} {span(s.time_us)}" for s in c.shapes))


def main(names: list[str]) -> int:
    """Validate the named regions, all by default, while time is left."""
    started = time.monotonic()
    target = Path(os.environ.get("OUT", ".")) / "validations.json"
    results: dict[str, object] = {}
    with open_fork_server() as fork_server:
        for name, text in REGIONS.items():
            left = TOTAL_S - (time.monotonic() - started)
            if (names and name not in names) or left < 30:
                continue
            begun = time.monotonic()
            validation = validate(
                ValidationRequest(text, budget_s=min(120.0, left), advice_before={"tool": "compile"}),
                fork_server=fork_server,
            )
            seconds = time.monotonic() - begun
            show(name, seconds, validation)
            sys.stdout.flush()
            results[name] = {"seconds": seconds, "validation": to_json(validation)}
            target.write_text(json.dumps(results, indent=1))
    assert "torch" not in sys.modules, "the parent must not need torch"
    print(f"\nall in {time.monotonic() - started:.0f} s; written to {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
