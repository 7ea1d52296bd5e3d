"""RMSNorm over an axis that is not the last: x / sqrt(mean(x², dim) + eps), optionally times a weight for each channel.

Traffic: x read once, y written once, 2 * elements * itemsize bytes, while the channels of a few neighbouring positions
fit into registers. A thread holds all channels of its own one word (two 16-bit positions), so that nothing is
exchanged between threads and every load of a warp is a whole 128-byte line. More channels, to 1024, are held by all
threads of a program together; more than that are read twice.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels.ops.norm.forward_kernels import again, half, words_of
from kernels.ops.shared.pairs import pair_of
from kernels.ops.shared.rows import DTYPES, held_dtype
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

HELD = 96
"""Most channels that a thread holds, one register each."""
HELD_TOGETHER = 1024
"""Most channels that a program holds: 4 words of each are 32 registers in 4 warps."""

tuner = Tuner("channel_rms_norm")


def reference(x: torch.Tensor, weight: torch.Tensor | None, dim: int, eps: float) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    y = wide(x) * torch.rsqrt(wide(x).pow(2).mean(dim, keepdim=True) + eps)
    if weight is not None:
        y = y * weight.view(-1, *(1,) * (x.dim() - 1 - dim % x.dim()))
    return y.to(x.dtype)


@triton.jit
def channels_held(
    x_ptr, w_ptr, y_ptr, words, blocks, eps, zero, C: tl.constexpr, BLOCK: tl.constexpr, HALVES: tl.constexpr,
    DTYPE: tl.constexpr, WEIGHT: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """BLOCK words of every channel of one batch, each thread with all channels of its words. words: in a channel."""
    x_ptr, y_ptr = words_of(x_ptr, HALVES), words_of(y_ptr, HALVES)
    program = tl.program_id(0).to(tl.int64)
    col = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    step = tl.cast(words, tl.int64)
    at = x_ptr + (program // blocks) * C * step + col
    pieces = ()
    total = tl.zeros((BLOCK,), tl.float32)
    other = tl.zeros((BLOCK,), tl.float32)
    for _ in tl.static_range(C):
        if WHOLE:
            piece = tl.load(at)
        else:
            piece = tl.load(at, mask=col < words, other=0)
        at += step
        if HALVES == 0:
            piece = piece.to(tl.float32)
        pieces = pieces + (piece,)  # noqa: RUF005 - Triton's tuples know only this
    for c in tl.static_range(C):
        if HALVES == 2:
            low, high = half(pieces[c], 0, DTYPE, 2), half(pieces[c], 1, DTYPE, 2)
            total += low * low
            other += high * high
        else:
            total += pieces[c] * pieces[c]
    scale = tl.rsqrt(total / C + eps)
    high_scale = tl.rsqrt(other / C + eps)
    at = y_ptr + (program // blocks) * C * step + col
    for c in tl.static_range(C):
        w = 1.0
        if WEIGHT:
            w = tl.load(w_ptr + c).to(tl.float32)
        if HALVES == 2:
            word = again(pieces[c], scale, zero, 2)
            y = pair_of(half(word, 0, DTYPE, 2) * scale * w, half(word, 1, DTYPE, 2) * high_scale * w, DTYPE)
        else:
            y = pieces[c] * scale * w
        if WHOLE:
            tl.store(at, y)
        else:
            tl.store(at, y, mask=col < words)
        at += step


@triton.jit
def channels_together(
    x_ptr, w_ptr, y_ptr, words, blocks, eps, zero, C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    HALVES: tl.constexpr, DTYPE: tl.constexpr, WEIGHT: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """BLOCK words of all channels of one batch, held by a program. words: in a channel. WHOLE: none is outside."""
    x_ptr, y_ptr = words_of(x_ptr, HALVES), words_of(y_ptr, HALVES)
    program = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, BLOCK_C)[:, None]
    col = ((program % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    at = (program // blocks) * C * words + channel.to(tl.int64) * words + col
    inside = (channel < C) & (col < words)
    if WHOLE:
        held = tl.load(x_ptr + at, eviction_policy="evict_first")
    else:
        held = tl.load(x_ptr + at, mask=inside, other=0)
    low = half(held, 0, DTYPE, HALVES)
    scale = tl.rsqrt(tl.sum(low * low, axis=0, keep_dims=True) / C + eps)
    high_scale = scale
    if HALVES == 2:
        high = half(held, 1, DTYPE, HALVES)
        high_scale = tl.rsqrt(tl.sum(high * high, axis=0, keep_dims=True) / C + eps)
    word = again(held, high_scale, zero, HALVES)
    w = 1.0
    if WEIGHT:
        w = tl.load(w_ptr + channel, mask=channel < C, other=0.0).to(tl.float32)
    y = half(word, 0, DTYPE, HALVES) * scale * w
    if HALVES == 2:
        y = pair_of(y, half(word, 1, DTYPE, HALVES) * high_scale * w, DTYPE)
    if WHOLE:
        tl.store(y_ptr + at, y)
    else:
        tl.store(y_ptr + at, y, mask=inside)


@triton.jit
def channels_walked(
    x_ptr, w_ptr, y_ptr, positions, blocks, channels, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    WEIGHT: tl.constexpr,
):  # fmt: skip
    """BLOCK positions of one batch, ROWS channels at a time, in two walks: mean of squares, then the result."""
    program = tl.program_id(0).to(tl.int64)
    col = ((program % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    base = (program // blocks) * channels * positions
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, channels, ROWS):
        row = (start + tl.arange(0, ROWS))[:, None].to(tl.int64)
        inside = (row < channels) & (col < positions)
        at = x_ptr + base + row * positions + col
        x = tl.load(at, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        total += x * x
    scale = tl.rsqrt(tl.sum(total, axis=0, keep_dims=True) / channels + eps)
    for start in range(0, channels, ROWS):
        row = (start + tl.arange(0, ROWS))[:, None].to(tl.int64)
        inside = (row < channels) & (col < positions)
        at = base + row * positions + col
        y = tl.load(x_ptr + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32) * scale
        if WEIGHT:
            y *= tl.load(w_ptr + row, mask=row < channels, other=0.0).to(tl.float32)
        tl.store(y_ptr + at, y, mask=inside)


def space(channels: int, positions: int, dtype: torch.dtype, halves: int, weight: bool) -> list[Variant]:
    """Variants worth timing. halves: positions in a 32-bit word, 0 for single 16-bit elements."""
    variants = []
    if channels <= HELD:
        words = positions // max(halves, 1)
        for warps in (4, 2, 1):
            block = warps * 32
            if block <= max(32, triton.next_power_of_2(words)):
                settings = (("C", channels), ("BLOCK", block), ("HALVES", halves), ("DTYPE", DTYPES[dtype]))
                constants = (*settings, ("WEIGHT", weight), ("WHOLE", words % block == 0))
                variants.append(
                    Variant(channels_held, constants, warps, tuned=("BLOCK",), registers=min(255, 4 * channels + 20))
                )
    if halves and channels <= HELD_TOGETHER:
        variants += _together(channels, positions // halves, dtype, halves, weight)
    # Read twice, but a tile of all channels is still in L1 or L2 at the second time.
    tiles = ((32, 256, 8), (16, 512, 8), (64, 128, 8), (64, 128, 4))
    walked = [Variant(channels_walked, (("ROWS", r), ("BLOCK", b), ("WEIGHT", weight)), w) for r, b, w in tiles]
    return variants + (walked[2:] if len(variants) > 4 else walked)


def _together(channels: int, words: int, dtype: torch.dtype, halves: int, weight: bool) -> list[Variant]:
    """channels_together with 16 to 64 words a thread; many channels in lines of 32 to 128 bytes, few in longer ones."""
    rows, widest = triton.next_power_of_2(channels), triton.next_power_of_2(words)
    variants = []
    many = ((16, 8), (32, 8), (32, 16), (16, 4), (8, 4), (8, 8))
    for columns, warps in many if channels > HELD else ((128, 4), (128, 8), (64, 4), (256, 8)):
        block = min(columns, widest)
        held = rows * block // (32 * warps)
        if 1 <= held <= 64:
            settings = (("C", channels), ("BLOCK_C", rows), ("BLOCK", block), ("HALVES", halves))
            whole = rows == channels and words % block == 0
            constants = (*settings, ("DTYPE", DTYPES[dtype]), ("WEIGHT", weight), ("WHOLE", whole))
            variants.append(Variant(channels_together, constants, warps, tuned=("BLOCK",), registers=held + 40))
    return list(dict.fromkeys(variants))


def launch(variant: Variant, x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float) -> None:
    """Run one variant on contiguous x [batch, channels, positions] into y of the same shape."""
    batch, channels, positions = x.shape
    if variant.kernel in (channels_held, channels_together):
        words = positions // max(variant["HALVES"], 1)
        blocks = triton.cdiv(words, variant["BLOCK"])
        variant.kernel[(batch * blocks,)](x, weight, y, words, blocks, eps, 0, **variant.meta)
    else:
        blocks = triton.cdiv(positions, variant["BLOCK"])
        channels_walked[(batch * blocks,)](x, weight, y, positions, blocks, channels, eps, **variant.meta)


def channel_rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, dim: int = 1, eps: float = 1e-5
) -> torch.Tensor:
    """RMSNorm over axis `dim` of x in f32, f16 or bf16; weight [x.shape[dim]] or None. Result like x, contiguous.

    Computed in f32. x is copied where it is not contiguous. Raises TypeError for other dtypes, ValueError for a weight
    of another size, IndexError for an axis that x does not have.
    """
    for t in (x, weight):
        if t is not None and t.dtype not in DTYPES:
            raise TypeError(f"channel_rms_norm takes f32, f16 or bf16, not {t.dtype}")
    if not -x.dim() <= dim < x.dim():
        raise IndexError(f"x has {x.dim()} axes, none is {dim}")
    channels = x.shape[dim]
    if weight is not None and weight.shape != (channels,):
        raise ValueError(f"the weight has shape {tuple(weight.shape)}, axis {dim} {channels} elements")
    if not x.numel():
        return torch.empty_like(x, memory_format=torch.contiguous_format)
    x = x.contiguous()
    dim %= x.dim()
    flat = x.view(math.prod(x.shape[:dim]), channels, -1)
    positions = flat.shape[2]
    halves = 1 if x.dtype == torch.float32 else 2 if positions % 2 == 0 and x.data_ptr() % 4 == 0 else 0
    packed = halves > 0 and channels <= HELD_TOGETHER
    y = torch.empty(flat.shape, dtype=x.dtype if packed else held_dtype(x.dtype), device=x.device)
    w = flat if weight is None else weight.contiguous()
    key = (*flat.shape, x.dtype, halves, weight is None or w.dtype)
    arguments = (flat, w, y, eps)
    variant = tuner.pick(
        key, lambda: space(channels, positions, x.dtype, halves, weight is not None), launch, *arguments
    )
    launch(variant, *arguments)
    return y.to(x.dtype).view(x.shape)


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor | None, int, float]:
    """Arguments to try it on."""
    x = make.normal(c["shape"], c.torch_dtype)
    weight = make.normal((c["shape"][c["dim"]],), c.torch_dtype) if c.get("weight", False) else None
    return x, weight, c["dim"], 1e-5


def run(x: torch.Tensor, weight: torch.Tensor | None, dim: int, eps: float) -> torch.Tensor:
    """channel_rms_norm, its arguments in the reference's order."""
    return channel_rms_norm(x, weight, dim, eps)


HELD_SIGNATURE = {
    **dict.fromkeys(("x_ptr", "w_ptr", "y_ptr"), "*bf16"), "words": "i32", "blocks": "i32",
    "eps": "fp32", "zero": "i32",
}  # fmt: skip
WALKED_SIGNATURE = {
    **dict.fromkeys(("x_ptr", "w_ptr", "y_ptr"), "*bf16"), "positions": "i32", "blocks": "i32", "channels": "i32",
    "eps": "fp32",
}  # fmt: skip
DTYPES_TRIED = ("f32", "f16", "bf16")
OPERATIONS = (
    Operation(
        name="channel_rms_norm", run=run, reference=reference, inputs=inputs,
        beyond=case("bf16", shape=(129, 64, 512, 512), dim=1),
        cost=lambda c: Cost(bytes=2 * math.prod(c["shape"]) * c.itemsize),
        checks=(
            *(case(d, shape=s, dim=1) for d in DTYPES_TRIED for s in ((2, 5, 7, 9), (2, 8, 130), (1, 100, 36))),
            *(case("bf16", shape=s, dim=d) for s, d in (((0, 4, 8), 1), ((3, 0, 8), 1), ((6, 7), 0), ((5, 33), 1))),
            case("f32", shape=(2, 6, 40), dim=1, weight=True), case("bf16", shape=(1, 130, 64), dim=1, weight=True),
            case("bf16", shape=(2, 16, 4, 32), dim=1, weight=True),
        ),
        forms=("plain", "strided", "misaligned", "special"),
        cases=(
            case("bf16", region="rmsnorm_channel_dim", shape=(32, 64, 512, 512), dim=1),
            case("bf16", shape=(16, 512, 64, 64), dim=1), case("bf16", shape=(16, 32, 512, 512), dim=1),
            case("f32", shape=(8, 48, 384, 384), dim=1), case("bf16", shape=(8, 128, 256, 256), dim=1),
        ),
        builds=(
            Build(space(64, 512 * 512, torch.bfloat16, 2, False)[0], HELD_SIGNATURE, divisible=("words",)),
            Build(space(512, 4096, torch.bfloat16, 2, True)[0], HELD_SIGNATURE, divisible=("words",)),
            Build(space(2048, 4096, torch.bfloat16, 2, True)[0], WALKED_SIGNATURE, divisible=("positions",)),
        ),
    ),
)  # fmt: skip
