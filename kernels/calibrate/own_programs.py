"""Calibration programs that this project's kernels take whole: sizes from few rows to many, with gradients and without.

What the other families draw is among them already: norms, softmax, attention, cross entropy, scans, top-k.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kernels.calibrate import fused_programs, matrix_programs, memory_programs, weak_programs
from kernels.calibrate.memory_programs import Family
from kernels.calibrate.sizes import between, declare, dtype, elements, rows
from profiler.region.model import ITEMSIZE

MOST_BYTES = 2**28


def rowwise(rng: Random) -> str:
    """Norms, softmax, gates and losses by rows; a third with gradients."""
    kind = dtype(rng)
    n, d = weak_programs.few_rows(rng, kind, MOST_BYTES) if rng.random() < 0.3 else rows(rng, kind, MOST_BYTES)
    grad = ".requires_grad" if rng.random() < 0.35 else ""
    x, r = declare("x", kind, (n, d), grad), declare("r", kind, (n, d), grad)
    w, b = declare("w", kind, (d,), grad), declare("b", kind, (d,), grad)
    form = rng.choice(("rms", "added", "layer", "softmax", "swiglu", "geglu", "loss", "channels"))
    if form == "rms":
        return f"{x}\n{w}\nreturn F.rms_norm(x, [{d}], w)"
    if form == "added":
        x, r, w = (line.removesuffix(".requires_grad") for line in (x, r, w))
        return f"{x}\n{r}\n{w}\ns = x + r\ny = F.rms_norm(s, [{d}], w)\nreturn s, y"
    if form == "layer":
        return f"{x}\n{w}\n{b}\nreturn F.layer_norm(x, [{d}], w, b)"
    if form == "softmax":
        return f"{x}\nreturn softmax(x, -1)"
    if form in ("swiglu", "geglu"):
        return f"{x}\n{r}\nreturn {'silu' if form == 'swiglu' else 'gelu'}(x) * r"
    if form == "loss":
        return f"{x}\nt: i64[{n}].below({max(2, d)})\nreturn F.cross_entropy(x, t)"
    return _channels(rng, kind)


def _channels(rng: Random, kind: str) -> str:
    """A norm over the channels of an image."""
    channels, batch = between(rng, 8, 512), between(rng, 1, 64)
    side = max(2, round((elements(rng, ITEMSIZE[kind], 2**14, MOST_BYTES) / (channels * batch)) ** 0.5))
    return f"{declare('x', kind, (batch, channels, side, side))}\nreturn softmax(x, 1)"


def product(rng: Random) -> str:
    """A product with bias and activation behind it."""
    kind = rng.choice(("bf16", "bf16", "f16", "f32"))
    while True:
        m, n, k = (between(rng, 16, 8192) for _ in range(3))
        if 2 * m * n * k <= (4e10 if kind == "f32" else 6e11):
            break
    lines = [declare("x", kind, (m, k)), declare("w", kind, (n, k)), declare("b", kind, (n,))]
    return "\n".join([*lines, f"return {rng.choice(('gelu', 'relu', 'silu'))}(F.linear(x, w, b))"])


FAMILIES: Mapping[str, tuple[Family, int]] = {
    "own_rowwise": (rowwise, 12), "own_product": (product, 3), "own_norm": (weak_programs.few_row_norm, 4),
    "own_softmax": (memory_programs.softmax, 3), "own_attention": (matrix_programs.attention, 4),
    "own_order": (weak_programs.long_order, 3), "own_scan": (memory_programs.scan, 3),
    "own_loss": (fused_programs.cross_entropy, 2),
}  # fmt: skip
"""Family -> what draws a program, and its share of the points."""
