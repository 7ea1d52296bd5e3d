"""What attention is tried on, what it costs at least, and how its variants are compiled offline."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernels.gemm import SHARED_KIB
from kernels.spec import Build, Case, Cost, Maker
from kernels.tuning import Variant


def pairs_seen(rows: int, columns: int, causal: bool, window: int | None) -> int:
    """How many (query, key) pairs the mask leaves: query i sees keys max(0, i - window) to i, or to the last one."""
    if not causal and window is None:
        return rows * columns
    total = 0
    for i in range(rows):
        last = min(i, columns - 1) if causal else columns - 1
        total += max(0, last - (0 if window is None else max(0, i - window)) + 1)
    return total


def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on. h: query heads to a key head. bias: its shape by letters of bhqk, "mask hqk" a bool's."""
    b, kv, s, t, d = c["b"], c["kv"], c["s"], c.get("t", c["s"]), c["d"]
    h, kind, size = kv * c.get("h", 1), c.get("bias", ""), c.get("size", 1.0)

    def heads(n: int, rows: int, scale: float = 1.0) -> torch.Tensor:
        if c.get("rows_first", False):
            return make.normal((b, rows, n, d), c.torch_dtype, scale).transpose(1, 2)
        return make.normal((b, n, rows, d), c.torch_dtype, scale)

    if make.form == "special" and c.get("logsumexp"):
        make = Maker(make.device, make.seed)  # of a row with an infinite score it is NaN here, infinite in torch
    q, bias = heads(h, s, size), None
    if make.form == "special" and (kind or c.get("causal") or c.get("window")):
        # A key that is masked for all rows of a tile is not read: whether its NaN, times 0, shows is no promise.
        make = Maker(make.device, make.seed + 1)
    k, v = heads(kv, t, size), heads(kv, t)
    if kind:
        axes = zip("bhqk", (b, h, s, t), strict=True)
        shape = [n if letter in kind.removeprefix("mask ") else 1 for letter, n in axes]
        if kind.startswith("mask"):
            bias = make.mask(0.7, shape, torch.float32) > 0
        else:
            bias = make.normal(shape, torch.float32 if c.get("wide_bias", False) else c.torch_dtype)
    return (
        q, k, v, bias, c.get("causal", False), c.get("window"), c.get("cap"), c.get("scale"), c.get("logsumexp", False),
    )  # fmt: skip


def cost(c: Case) -> Cost:
    """Every tensor once; two products over the pairs that see each other."""
    b, kv, s, t, d, kind = c["b"], c["kv"], c["s"], c.get("t", c["s"]), c["d"], c.get("bias", "")
    h = kv * c.get("h", 1)
    moved = (2 * b * h * s * d + 2 * b * kv * t * d) * c.itemsize + (4 * b * h * s if c.get("logsumexp", False) else 0)
    if kind:
        axes = zip("bhqk", (b, h, s, t), strict=True)
        wide_bias = 1 if kind.startswith("mask") else 4 if c.get("wide_bias", False) else c.itemsize
        moved += math.prod(n for letter, n in axes if letter in kind.removeprefix("mask ")) * wide_bias
    return Cost(moved, 4 * b * h * d * pairs_seen(s, t, c.get("causal", False), c.get("window")))


STRIDES = (
    *(f"{x}_{axis}" for x in "qkvo" for axis in ("batch", "head", "row")),
    *(f"bias_{axis}" for axis in ("batch", "head", "row", "col")),
)
SIZES = ("heads", "all_heads", "sharing", "together", "height", "width", "window")


def build_of(v: Variant, dtype: str = "bf16") -> Build:
    """A variant as it is compiled offline."""
    bm, bn, dp = v["BM"], v["BN"], v["DP"]
    tiles = {"q": bm, "k": bn, "v": bn}
    signature = {
        n: f"tensordesc<{dtype}[1,1,{b},{dp}]>" if v["TMA"] else f"*{dtype}" for n, b in tiles.items()
    } | {"bias": "*u8" if v["BIAS"] == "mask" else f"*{dtype}", "o": f"*{dtype}", "lse": "*fp32"}  # fmt: skip
    signature |= dict.fromkeys(SIZES, "i32") | {"factor": "fp32", "cap": "fp32"} | dict.fromkeys(STRIDES, "i32")
    refused = {}
    for target, room in SHARED_KIB.items():
        # AMD's compiler keeps one stage in registers.
        held = v.shared_bytes - (2 * bn * dp * 2 if target == "gfx942" else 0)
        if v["TMA"] and target in ("sm_80", "gfx942"):
            refused[target] = "has no TMA"
        elif held > room * 1024:
            refused[target] = f"its tiles are larger than {room} KiB of shared memory"
    return Build(v, signature, ("height", "width", *STRIDES[:-1]), refused)
