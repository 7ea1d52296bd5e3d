"""Batch norm of inference with its activation, a residual added between them if there is one:

    act((x - mean) / sqrt(variance + eps) * weight + bias + residual), each channel by its own stored mean and variance.

x is [N, C, ...], contiguous or channels-last (2 or 3 axes behind the channels); the result is laid out like x. A
channel's scale is made in the kernel: no launch before it. Traffic: x (and the residual) read, y written, 2 or 3 times
elements * itemsize bytes; the vectors stay in L1 and L2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.ops.norm.group_norm_silu import activated, is_channels_last, vector
from kernels.ops.shared.activations import PLAIN, known
from kernels.ops.shared.pairs import rounded
from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

NAME = "triton:batch_norm_activation"
LONGEST = 1 << 30
"""Channels times positions: those of one sample are counted in 32 bits."""

tuner = Tuner("batch_norm_activation")


def reference(
    x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, weight: torch.Tensor | None,
    bias: torch.Tensor | None, residual: torch.Tensor | None, eps: float, name: str,
) -> torch.Tensor:  # fmt: skip
    """What is computed, in plain PyTorch. name: of the activation, "" for none."""
    y = F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)
    y = y if residual is None else y + residual
    return PLAIN[name](y) if name else y


@triton.jit
def folded(mean_ptr, var_ptr, w_ptr, b_ptr, channel, mask, eps, WEIGHT: tl.constexpr, BIAS: tl.constexpr):
    """Mean, scale and bias of channels. The mean is subtracted first: folded in a shift, a large one costs digits."""
    variance = tl.load(var_ptr + channel, mask=mask, other=1.0, eviction_policy="evict_last").to(tl.float32)
    mean = tl.load(mean_ptr + channel, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
    scale = tl.rsqrt(variance + eps) * vector(w_ptr, channel, mask, WEIGHT, 1.0)
    return mean, scale, vector(b_ptr, channel, mask, BIAS, 0.0)


@triton.jit
def batch_norm_planes(
    x_ptr, r_ptr, mean_ptr, var_ptr, w_ptr, b_ptr, y_ptr, rows, eps, C: tl.constexpr, SPATIAL: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, EVICT: tl.constexpr, RESIDUAL: tl.constexpr, WEIGHT: tl.constexpr,
    BIAS: tl.constexpr, NAME: tl.constexpr,
):  # fmt: skip
    """BLOCK numbers of ROWS rows of SPATIAL; a row has one channel, or is a position of channels-last if SPATIAL is C.

    rows: of all. C: 0 where a row holds all channels, which BLOCK then goes over. EVICT: what
    loads say to the L2 cache.
    """
    BLOCKS: tl.constexpr = (SPATIAL + BLOCK - 1) // BLOCK
    program = tl.program_id(0).to(tl.int64)
    row = program // BLOCKS * ROWS + tl.arange(0, ROWS)[:, None]
    col = ((program % BLOCKS) * BLOCK).to(tl.int32) + tl.arange(0, BLOCK)[None, :]
    at = row * SPATIAL + col
    inside = (row < rows) & (col < SPATIAL)
    x = tl.load(x_ptr + at, mask=inside, other=0.0, eviction_policy=EVICT).to(tl.float32)
    if C == 0:
        mean, scale, shift = folded(mean_ptr, var_ptr, w_ptr, b_ptr, col, col < SPATIAL, eps, WEIGHT, BIAS)
    else:
        mean, scale, shift = folded(mean_ptr, var_ptr, w_ptr, b_ptr, (row % C).to(tl.int32), row < rows, eps, WEIGHT,
                                    BIAS)  # fmt: skip
    y = (x - mean) * scale + shift
    if RESIDUAL:
        y += tl.load(r_ptr + at, mask=inside, other=0.0, eviction_policy=EVICT).to(tl.float32)
    tl.store(y_ptr + at, rounded(activated(y, NAME), y_ptr), mask=inside)


@triton.jit
def batch_norm_line(
    x_ptr, r_ptr, mean_ptr, var_ptr, w_ptr, b_ptr, y_ptr, total, eps, C: tl.constexpr, SPATIAL: tl.constexpr,
    BLOCK: tl.constexpr, EVICT: tl.constexpr, RESIDUAL: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    NAME: tl.constexpr,
):  # fmt: skip
    """BLOCK of all `total` numbers, each with its channel's vectors from L1: no lane is idle, all accesses are wide.

    SPATIAL: neighbours of one channel, 1 for channels-last.
    """
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    inside = start + lane < total
    channel = ((start % (C * SPATIAL)).to(tl.int32) + lane) // SPATIAL % C
    x = tl.load(x_ptr + start + lane, mask=inside, other=0.0, eviction_policy=EVICT).to(tl.float32)
    mean, scale, shift = folded(mean_ptr, var_ptr, w_ptr, b_ptr, channel, inside, eps, WEIGHT, BIAS)
    y = (x - mean) * scale + shift
    if RESIDUAL:
        y += tl.load(r_ptr + start + lane, mask=inside, other=0.0, eviction_policy=EVICT).to(tl.float32)
    tl.store(y_ptr + start + lane, rounded(activated(y, NAME), y_ptr), mask=inside)


Constants = Sequence[tuple[str, object]]
FIRST = "evict_first"
TILES = ((1024, 4, FIRST), (2048, 4, FIRST), (4096, 8, FIRST), (4096, 4, FIRST), (1024, 4, ""), (2048, 4, ""))
"""Numbers of a tile, warps, cache policy."""


def space(channels: int, spatial: int, last: bool, constants: Constants) -> list[Variant]:
    """Variants worth timing: tiles of whole rows without many idle lanes, lines where rows are no whole accesses."""
    width = channels if last else spatial
    settings = (("C", 0 if last else channels), ("SPATIAL", width), *constants)
    block = triton.next_power_of_2(width)
    variants = []
    for elements, warps, evict in TILES:
        across = min(block, elements)
        while across > 64 and -(-width // across) * across >= 1.25 * width:
            across //= 2
        own = (("ROWS", elements // across), ("BLOCK", across), ("EVICT", evict))
        variants.append(Variant(batch_norm_planes, (*own, *settings), warps, tuned=("ROWS", "BLOCK", "EVICT")))
    # Lines leave no lane idle; where rows are whole accesses and long, they are tried with the cache's own policy.
    short = width % 8 or last or width < 512
    line = (("C", channels), ("SPATIAL", 1 if last else spatial), *constants)
    for elements, warps in ((1024, 4), (2048, 4) if short else (512, 4)):
        own = (("BLOCK", elements), ("EVICT", FIRST if short else ""))
        variants.append(Variant(batch_norm_line, (*own, *line), warps, tuned=("BLOCK", "EVICT")))
    return list(dict.fromkeys(variants))


def launch(
    variant: Variant, x: torch.Tensor, residual: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor,
    weight: torch.Tensor, bias: torch.Tensor, y: torch.Tensor, eps: float,
) -> None:  # fmt: skip
    """Run one variant on x, residual -> y, dense and laid out alike; any tensor for what is not used."""
    vectors, total = (mean, variance, weight, bias), y.numel()
    if variant.kernel is batch_norm_line:
        grid = triton.cdiv(total, variant["BLOCK"])
        batch_norm_line[(grid,)](x, residual, *vectors, y, total, eps, **variant.meta)
        return
    rows = total // variant["SPATIAL"]
    grid = triton.cdiv(rows, variant["ROWS"]) * triton.cdiv(variant["SPATIAL"], variant["BLOCK"])
    batch_norm_planes[(grid,)](x, residual, *vectors, y, rows, eps, **variant.meta)


def batch_norm_activation(
    x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, residual: torch.Tensor | None = None, eps: float = 1e-5,
    activation: str = "relu",
) -> torch.Tensor:  # fmt: skip
    """Batch norm of x [N, C, ...] by stored statistics, plus a residual, then the activation ("relu", "silu", "gelu",
    "gelu_tanh", or "" for none). mean, variance [C]; weight, bias [C] or None; all in f32, f16 or bf16, computed in
    f32. The result like x, channels-last where x is.

    x is copied where it is neither contiguous nor channels-last, the residual where it is not laid out like x. Raises
    TypeError for other dtypes, ValueError for shapes that do not belong together, an unknown activation, and 2^30
    numbers a sample.
    """
    vectors = (("mean", mean), ("variance", variance), ("weight", weight), ("bias", bias))
    for label, t in (("x", x), *vectors):
        if t is not None and t.dtype not in DTYPES:
            raise TypeError(f"batch_norm_activation takes f32, f16 or bf16, not {t.dtype} ({label})")
    if x.dim() < 2:
        raise ValueError(f"x has shape {[*x.shape]}, not [N, C, ...]")
    for label, t in vectors:
        if t is not None and t.shape != x.shape[1:2]:
            raise ValueError(f"the {label} has shape {[*t.shape]}, x {x.shape[1]} channels")
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        raise ValueError(f"x is {x.dtype}{[*x.shape]}, the residual {residual.dtype}{[*residual.shape]}")
    channels, spatial = x.shape[1], math.prod(x.shape[2:])
    if channels * spatial >= LONGEST:
        raise ValueError(f"batch_norm_activation takes samples of fewer than {LONGEST:,} numbers")
    name = known(activation) if activation else ""
    last = is_channels_last(x)
    x = x if last else x.contiguous()
    y = torch.empty_like(x)
    if not x.numel():
        return y
    other = x
    if residual is not None:
        other = residual if residual.stride() == x.stride() else torch.empty_like(x).copy_(residual)
    w, b = (x if v is None else v.contiguous() for v in (weight, bias))
    constants = (("RESIDUAL", residual is not None), ("WEIGHT", weight is not None), ("BIAS", bias is not None),
                 ("NAME", name))  # fmt: skip
    arguments = (x, other, mean.contiguous(), variance.contiguous(), w, b, y, eps)
    key = (x.shape[0], channels, spatial, last, x.dtype, mean.dtype, variance.dtype, w.dtype, b.dtype, constants)
    variant = tuner.pick(key, lambda: space(channels, spatial, last, constants), launch, *arguments)
    launch(variant, *arguments)
    return y


def inputs(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try it on. last: channels-last; wide: the vectors are in f32."""

    def placed(x: torch.Tensor) -> torch.Tensor:
        return x.to(memory_format=torch.channels_last) if c.get("last") else x

    shape, channels, dtype = c["shape"], c["shape"][1:2], torch.float32 if c.get("wide") else c.torch_dtype
    x = placed(make.normal(shape, c.torch_dtype))
    mean, variance = make.normal(channels, dtype), make.normal(channels, dtype).abs_().add_(0.1)
    weight, bias = (make.normal(channels, dtype) if c.get("weight", True) else None for _ in range(2))
    residual = placed(make.normal(shape, c.torch_dtype)) if c.get("residual") else None
    return x, mean, variance, weight, bias, residual, 1e-5, c.get("name", "relu")


SIGNATURE = {
    **dict.fromkeys(("x_ptr", "r_ptr", "mean_ptr", "var_ptr", "w_ptr", "b_ptr", "y_ptr"), "*bf16"),
    "rows": "i32", "total": "i32", "eps": "fp32",
}  # fmt: skip


def _builds() -> tuple[Build, ...]:
    given = (("RESIDUAL", True), ("WEIGHT", True), ("BIAS", True), ("NAME", "silu"))
    chosen = (space(256, 56 * 56, False, given)[1], space(256, 56 * 56, True, given)[2],
              space(2048, 49, False, given)[-2], space(2048, 49, True, given)[-1])  # fmt: skip
    return tuple(
        Build(v, {k: t for k, t in SIGNATURE.items() if k in v.kernel.arg_names}, divisible=("rows",) if "rows" in
              v.kernel.arg_names else ("total",))
        for v in chosen
    )  # fmt: skip


OPERATIONS = (
    Operation(
        name="batch_norm_activation", run=batch_norm_activation, reference=reference, inputs=inputs,
        cost=lambda c: Cost(bytes=(3 if c.get("residual") else 2) * math.prod(c["shape"]) * c.itemsize),
        beyond=case("bf16", shape=(129, 64, 512, 512), residual=True),
        forms=("plain", "strided", "misaligned", "special"),
        checks=(
            *(case(d, shape=s) for d in ("f32", "f16", "bf16") for s in ((2, 6, 7, 5), (3, 10), (1, 3, 4000))),
            *(case(d, shape=s, last=True) for d in ("f32", "bf16") for s in ((2, 6, 7, 5), (3, 40, 9, 4))),
            case("bf16", shape=(2, 300, 3, 3), wide=True, name="silu"), case("f32", shape=(0, 4, 8)),
            case("f16", shape=(2, 8, 5, 6), weight=False, name="gelu"), case("bf16", shape=(2, 8, 9, 6), name=""),
            case("bf16", shape=(2, 24, 6, 6), residual=True, last=True),
            case("bf16", shape=(2, 8, 6, 32), residual=True),
        ),
        cases=(
            case("bf16", shape=(128, 256, 56, 56), residual=True), case("bf16", shape=(128, 64, 112, 112)),
            case("bf16", shape=(128, 256, 56, 56), residual=True, last=True),
            case("bf16", shape=(256, 2048, 7, 7), residual=True), case("bf16", shape=(256, 512, 14, 14), name="silu"),
            case("bf16", shape=(128, 144, 56, 56), name="silu", last=True),
            case("f32", shape=(64, 256, 56, 56), wide=True),
        ),
        builds=_builds(),
    ),
)  # fmt: skip
