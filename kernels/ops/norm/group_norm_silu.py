"""GroupNorm and its activation in one: act((x - mean) / sqrt(variance + eps) * weight + bias), over groups of channels.

x is [N, C, ...], contiguous or channels-last (2 or 3 axes behind the channels); the result is laid out like x. Traffic:
x read once, y written once, 2 * elements * itemsize bytes, where a group fits into one program's registers (32,768
elements); longer ones are read twice, the second time mostly from L2, by many programs each:

- contiguous: spans of a group give means and squares about them, and those that normalise join the few of their group;
- channels-last: a group's row is a few neighbouring numbers, less than memory reads at once; so programs take whole
  lines of many groups, a small launch joins each group's channels, and a third one normalises.

Statistics are running means a lane, joined by Chan's formula as differences to one of them: a large mean costs no more
digits than its own rounding in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.ops.norm.layer_norm import rounded_mean_of
from kernels.ops.shared.activations import PLAIN, activation, known
from kernels.ops.shared.pairs import rounded
from kernels.ops.shared.rows import DTYPES, HELD
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant, multiprocessors

NAME = "triton:group_norm_silu"
MOST_SPANS = 64
"""Of a contiguous group: every program that normalises reads what each of them found."""

tuner = Tuner("group_norm_silu")


def reference(
    x: torch.Tensor, groups: int, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, name: str
) -> torch.Tensor:
    """What is computed, in plain PyTorch. name: of the activation, "" for none."""
    y = F.group_norm(x, groups, weight, bias, eps)
    return PLAIN[name](y) if name else y


@triton.jit
def activated(y, NAME: tl.constexpr):
    """The activation, if there is one."""
    if NAME == "":
        return y
    return activation(y, NAME)


@triton.jit
def vector(ptr, at, mask, THERE: tl.constexpr, ABSENT: tl.constexpr):
    """Weight or bias in f32."""
    if THERE:
        return tl.load(ptr + at, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
    return tl.full(at.shape, ABSENT, tl.float32)


@triton.jit
def group_held(
    x_ptr, w_ptr, b_ptr, y_ptr, eps, C: tl.constexpr, SPATIAL: tl.constexpr, EACH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, LAST: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, NAME: tl.constexpr,
):  # fmt: skip
    """One group a program, EACH channels by SPATIAL positions, held in f32 as [ROWS, BLOCK]. LAST: channels-last."""
    group = tl.program_id(0).to(tl.int64) % (C // EACH)
    n = tl.program_id(0).to(tl.int64) // (C // EACH)
    channel = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    base = n * C * SPATIAL
    if LAST:
        base += group * EACH
        at = channel + col * C
    else:
        base += group * EACH * SPATIAL
        at = channel * SPATIAL + col
    WHOLE: tl.constexpr = ROWS == EACH and BLOCK == SPATIAL
    inside = (channel < EACH) & (col < SPATIAL)
    if WHOLE:
        x = tl.load(x_ptr + base + at).to(tl.float32)
    else:
        x = tl.load(x_ptr + base + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(tl.sum(x, axis=1), axis=0) / (EACH * SPATIAL)
    x -= mean
    if not WHOLE:
        x = tl.where(inside, x, 0.0)
    rstd = tl.rsqrt(tl.sum(tl.sum(x * x, axis=1), axis=0) / (EACH * SPATIAL) + eps)
    w = vector(w_ptr, group * EACH + channel, channel < EACH, WEIGHT, 1.0)
    b = vector(b_ptr, group * EACH + channel, channel < EACH, BIAS, 0.0)
    y = rounded(activated(x * (rstd * w) + b, NAME), y_ptr)
    if WHOLE:
        tl.store(y_ptr + base + at, y)
    else:
        tl.store(y_ptr + base + at, y, mask=inside)


@triton.jit
def group_flat(
    x_ptr, w_ptr, b_ptr, y_ptr, eps, C: tl.constexpr, SPATIAL: tl.constexpr, EACH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, LAST: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, NAME: tl.constexpr,
):  # fmt: skip
    """One contiguous group a program as one line of BLOCK: where channels begin anywhere, its loads are still wide."""
    group = tl.program_id(0).to(tl.int64) % (C // EACH)
    SIZE: tl.constexpr = EACH * SPATIAL
    col = tl.arange(0, BLOCK)
    base = tl.program_id(0).to(tl.int64) * SIZE
    x = tl.load(x_ptr + base + col, mask=col < SIZE, other=0.0).to(tl.float32)
    x = tl.where(col < SIZE, x - tl.sum(x, axis=0) / SIZE, 0.0)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / SIZE + eps)
    w = vector(w_ptr, group * EACH + col // SPATIAL, col < SIZE, WEIGHT, 1.0)
    b = vector(b_ptr, group * EACH + col // SPATIAL, col < SIZE, BIAS, 0.0)
    tl.store(y_ptr + base + col, rounded(activated(x * (rstd * w) + b, NAME), y_ptr), mask=col < SIZE)


@triton.jit
def joined_mean(means, counts, count):
    """The mean of `count` numbers from those of its parts, by their differences to the first: a sum of large means
    would be rounded by as much as small deviations are."""
    first = tl.sum(tl.where(tl.arange(0, means.shape[0]) == 0, means, 0.0), axis=0)
    return first + tl.sum((means - first) * counts, axis=0) / count


@triton.jit
def group_spans(x_ptr, mean_ptr, square_ptr, spans, SIZE: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and squares about it of SPAN elements of a contiguous group of SIZE, the last span shorter."""
    group = tl.program_id(0).to(tl.int64) // spans
    first = (tl.program_id(0) % spans).to(tl.int64) * SPAN
    x_ptr += group * SIZE + first
    length = tl.minimum(SIZE - first, SPAN).to(tl.int32)
    col = tl.arange(0, BLOCK)
    average = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    count = 0.0
    for start in range(0, length, BLOCK):
        inside = start + col < length
        x = tl.load(x_ptr + start + col, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        count += 1.0
        d = x - average
        grown = average + d / count
        squares = tl.where(inside, squares + d * (x - grown), squares)
        average = tl.where(inside, grown, average)
    seen = (tl.maximum(length - col + BLOCK - 1, 0) // BLOCK).to(tl.float32)
    mean = joined_mean(average, seen, length)
    squares += (average - mean) * (average - mean) * seen
    tl.store(mean_ptr + tl.program_id(0), mean)
    tl.store(square_ptr + tl.program_id(0), tl.sum(squares, axis=0))


@triton.jit
def group_apply(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, square_ptr, spans, eps, C: tl.constexpr, SPATIAL: tl.constexpr,
    EACH: tl.constexpr, SPAN: tl.constexpr, MOST: tl.constexpr, BLOCK: tl.constexpr, WEIGHT: tl.constexpr,
    BIAS: tl.constexpr, NAME: tl.constexpr,
):  # fmt: skip
    """BLOCK positions of one channel, contiguous, by what up to MOST spans of its group gave."""
    SIZE: tl.constexpr = EACH * SPATIAL
    BLOCKS: tl.constexpr = (SPATIAL + BLOCK - 1) // BLOCK
    # From the end: what was read last is what L2 still has.
    program = (tl.num_programs(0) - 1 - tl.program_id(0)).to(tl.int64)
    row = program // BLOCKS
    col = (program % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * SPATIAL + col, mask=col < SPATIAL, other=0.0, eviction_policy="evict_first")
    x = x.to(tl.float32)
    span = tl.arange(0, MOST)
    counts = tl.minimum(tl.maximum(SIZE - span * SPAN, 0), SPAN).to(tl.float32)
    at = row // EACH * spans + span
    means = tl.load(mean_ptr + at, mask=span < spans, other=0.0)
    squares = tl.load(square_ptr + at, mask=span < spans, other=0.0)
    mean = joined_mean(means, counts, SIZE)
    squares += tl.where(span < spans, (means - mean) * (means - mean) * counts, 0.0)
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / SIZE + eps)
    w = 1.0
    if WEIGHT:
        w = tl.load(w_ptr + row % C).to(tl.float32)
    b = 0.0
    if BIAS:
        b = tl.load(b_ptr + row % C).to(tl.float32)
    y = activated((x - mean) * (rstd * w) + b, NAME)
    tl.store(y_ptr + row * SPATIAL + col, rounded(y, y_ptr), mask=col < SPATIAL, eviction_policy="evict_first")


@triton.jit
def lines_spans(
    x_ptr, mean_ptr, square_ptr, spans, C: tl.constexpr, SPATIAL: tl.constexpr, SPAN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Mean and squares about it of SPAN positions of BLOCK channels each, channels-last; into [N, spans, C]."""
    n = tl.program_id(0).to(tl.int64) // spans
    first = tl.program_id(0) % spans * SPAN
    length = tl.minimum(SPATIAL - first, SPAN)
    row = tl.arange(0, ROWS)[:, None]
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    x_ptr += (n * SPATIAL + first) * C
    average = tl.zeros((ROWS, BLOCK), tl.float32)
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    count = 0.0
    for start in range(0, length, ROWS):
        inside = (start + row < length) & (channel < C)
        x = tl.load(x_ptr + (start + row).to(tl.int64) * C + channel, mask=inside, other=0.0,
                    eviction_policy="evict_last").to(tl.float32)  # fmt: skip
        count += 1.0
        d = x - average
        grown = average + d / count
        squares = tl.where(inside, squares + d * (x - grown), squares)
        average = tl.where(inside, grown, average)
    seen = (tl.maximum(length - row + ROWS - 1, 0) // ROWS).to(tl.float32)
    origin = tl.sum(tl.where(row == 0, average, 0.0), axis=0, keep_dims=True)
    mean = origin + tl.sum((average - origin) * seen, axis=0, keep_dims=True) / length
    squares = tl.sum(squares + (average - mean) * (average - mean) * seen, axis=0, keep_dims=True)
    at = tl.program_id(0).to(tl.int64) * C + channel
    tl.store(mean_ptr + at, mean, mask=channel < C)
    tl.store(square_ptr + at, squares, mask=channel < C)


@triton.jit
def lines_join(
    mean_ptr, square_ptr, group_mean_ptr, group_rstd_ptr, spans, eps, C: tl.constexpr, SPATIAL: tl.constexpr,
    EACH: tl.constexpr, SPAN: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / deviation of one group from those of its channels' spans."""
    group = tl.program_id(0).to(tl.int64) % (C // EACH)
    n = tl.program_id(0).to(tl.int64) // (C // EACH)
    channel = tl.arange(0, CHANNELS)[None, :]
    base = n * spans * C + group * EACH
    origin = tl.load(mean_ptr + base)
    total = tl.zeros((PARTS, CHANNELS), tl.float32)
    for start in range(0, spans, PARTS):
        part = start + tl.arange(0, PARTS)[:, None]
        there = (part < spans) & (channel < EACH)
        count = tl.minimum(tl.maximum(SPATIAL - part * SPAN, 0), SPAN).to(tl.float32)
        of_part = tl.load(mean_ptr + base + part.to(tl.int64) * C + channel, mask=there, other=0.0)
        total += tl.where(there, (of_part - origin) * count, 0.0)
    mean = origin + tl.sum(tl.sum(total, axis=1), axis=0) / (EACH * SPATIAL)
    total = tl.zeros((PARTS, CHANNELS), tl.float32)
    for start in range(0, spans, PARTS):
        part = start + tl.arange(0, PARTS)[:, None]
        there = (part < spans) & (channel < EACH)
        count = tl.minimum(tl.maximum(SPATIAL - part * SPAN, 0), SPAN).to(tl.float32)
        at = base + part.to(tl.int64) * C + channel
        d = tl.load(mean_ptr + at, mask=there, other=0.0) - mean
        total += tl.where(there, tl.load(square_ptr + at, mask=there, other=0.0) + d * d * count, 0.0)
    variance = tl.sum(tl.sum(total, axis=1), axis=0) / (EACH * SPATIAL)
    tl.store(group_mean_ptr + tl.program_id(0), mean)
    tl.store(group_rstd_ptr + tl.program_id(0), tl.rsqrt(variance + eps))


@triton.jit
def lines_apply(
    x_ptr, w_ptr, b_ptr, y_ptr, group_mean_ptr, group_rstd_ptr, blocks, C: tl.constexpr, SPATIAL: tl.constexpr,
    EACH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    NAME: tl.constexpr,
):  # fmt: skip
    """ROWS positions of BLOCK channels, channels-last."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)  # from the end, as group_apply
    n = program.to(tl.int64) // blocks
    row = program % blocks * ROWS + tl.arange(0, ROWS)[:, None]
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    at = (n * SPATIAL + row) * C + channel
    inside = (row < SPATIAL) & (channel < C)
    x = tl.load(x_ptr + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    of = n * (C // EACH) + channel // EACH
    mean = tl.load(group_mean_ptr + of, mask=channel < C, other=0.0)
    scale = tl.load(group_rstd_ptr + of, mask=channel < C, other=0.0)
    scale *= vector(w_ptr, channel, channel < C, WEIGHT, 1.0)
    y = activated((x - mean) * scale + vector(b_ptr, channel, channel < C, BIAS, 0.0), NAME)
    tl.store(y_ptr + at, rounded(y, y_ptr), mask=inside, eviction_policy="evict_first")


Constants = Sequence[tuple[str, object]]


def space(
    batch: int, channels: int, spatial: int, groups: int, last: bool, processors: int, constants: Constants
) -> list[Variant]:
    """Variants worth timing: a group held by 1 to 32 warps with 8 to 32 numbers a thread, or spread over programs."""
    each = channels // groups
    rows, block = triton.next_power_of_2(each), triton.next_power_of_2(spatial)
    fixed = (("C", channels), ("SPATIAL", spatial), ("EACH", each))
    held: list[Variant] = []
    if rows * block <= HELD:
        held += _held(group_held, rows * block, (*fixed, ("ROWS", rows), ("BLOCK", block), ("LAST", last), *constants))
    line = triton.next_power_of_2(each * spatial)
    if not last and line <= HELD and each > 1 and spatial % 8:
        held += _held(group_flat, line, (*fixed, ("ROWS", 1), ("BLOCK", line), ("LAST", False), *constants))
    # Few long groups leave processors idle, and channels-last ones read lines that their neighbours read too.
    if held and (each * spatial <= 4096 or (not last and batch * groups >= 2 * processors)):
        return held
    spread = _lines if last else _spans
    return held[:3] + spread(batch, channels, spatial, groups, processors, (*fixed, *constants))


def _held(kernel: object, size: int, constants: Constants) -> list[Variant]:
    warps = [w for w in (1, 2, 4, 8, 16, 32) if 8 <= size // (32 * w) <= 32] or [1 if size < 512 else 32]
    return [
        Variant(kernel, tuple(constants), w, tuned=("ROWS", "BLOCK"), registers=2 * size // (32 * w) + 32)
        for w in warps[:3]
    ]


def _spans(
    batch: int, channels: int, spatial: int, groups: int, processors: int, constants: Constants
) -> list[Variant]:
    """Of contiguous groups. Programs of one launch: 4 or 8 a multiprocessor, or as many as spans may be."""
    size = channels // groups * spatial
    variants = []
    for block, warps, programs in ((2048, 8, 4), (2048, 8, 8), (1024, 4, 8), (4096, 8, 8)):
        wanted = min(max(1, triton.cdiv(programs * processors, batch * groups)), MOST_SPANS)
        span = triton.cdiv(triton.cdiv(size, wanted), block) * block
        most = triton.next_power_of_2(triton.cdiv(size, span))
        across = min(block, max(triton.next_power_of_2(spatial), 32))
        own = (("SPAN", span), ("MOST", most), ("BLOCK", block), ("ACROSS", across))
        variants.append(Variant(group_spans, (*own, *constants), warps, tuned=("BLOCK", "SPAN")))
    return list(dict.fromkeys(variants))


def _lines(
    batch: int, channels: int, spatial: int, groups: int, processors: int, constants: Constants
) -> list[Variant]:
    """Of channels-last groups: as wide as channels go in without idle lanes, 4 or 8 programs a multiprocessor."""
    widths = sorted((32, 64, 128, 256), key=lambda w: (-(-channels // w) * w, -w))[:2]
    variants = []
    for width in widths:
        for elements, warps, programs in ((2048, 4, 4), (4096, 8, 4), (2048, 4, 8)):
            rows = elements // width
            wanted = max(1, triton.cdiv(programs * processors, batch * triton.cdiv(channels, width)))
            # Of x a span has SPAN * itemsize bytes a channel, of results 8.
            span = max(triton.cdiv(triton.cdiv(spatial, wanted), rows) * rows, min(128, spatial))
            own = (("SPAN", span), ("ROWS", rows), ("BLOCK", width))
            variants.append(Variant(lines_spans, (*own, *constants), warps, tuned=("ROWS", "BLOCK", "SPAN")))
    return list(dict.fromkeys(variants))


def _part(variant: Variant, kernel: object, **more: int) -> dict[str, object]:
    """The constants of another kernel of the same launch."""
    meta = {**variant.meta, **more}
    names = {*kernel.arg_names, "num_warps", "num_stages", "enable_fp_fusion"}  # type: ignore[attr-defined]
    return {k: v for k, v in meta.items() if k in names}


def launch(
    variant: Variant, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, y: torch.Tensor, groups: int,
    eps: float,
) -> None:  # fmt: skip
    """Run one variant on x -> y, dense and laid out alike: [N, C, S], or [N, S, C] for channels-last."""
    batch = x.shape[0]
    if variant.kernel in (group_held, group_flat):
        variant.kernel[(batch * groups,)](x, weight, bias, y, eps, **variant.meta)
        return
    channels, spatial = variant["C"], variant["SPATIAL"]
    span = variant["SPAN"]
    if variant.kernel is group_spans:
        size = variant["EACH"] * spatial
        spans, across = triton.cdiv(size, span), variant["ACROSS"]
        mean, square = torch.empty((2, batch * groups * spans), device=x.device)
        group_spans[(batch * groups * spans,)](x, mean, square, spans, **_part(variant, group_spans, SIZE=size))
        group_apply[(batch * channels * triton.cdiv(spatial, across),)](
            x, weight, bias, y, mean, square, spans, eps, **_part(variant, group_apply, BLOCK=across)
        )
        return
    spans, width, rows = triton.cdiv(spatial, span), variant["BLOCK"], variant["ROWS"]
    mean, square = torch.empty((2, batch * spans * channels), device=x.device)
    group_mean, rstd = torch.empty((2, batch * groups), device=x.device)
    lines_spans[(batch * spans, triton.cdiv(channels, width))](x, mean, square, spans, **_part(variant, lines_spans))
    across = triton.next_power_of_2(variant["EACH"])
    parts = max(1, min(triton.next_power_of_2(spans), 2048 // across))
    lines_join[(batch * groups,)](
        mean, square, group_mean, rstd, spans, eps, **_part(variant, lines_join, PARTS=parts, CHANNELS=across)
    )
    blocks = triton.cdiv(spatial, rows)
    lines_apply[(batch * blocks, triton.cdiv(channels, width))](
        x, weight, bias, y, group_mean, rstd, blocks, **_part(variant, lines_apply)
    )


def is_channels_last(x: torch.Tensor) -> bool:
    """Dense with the channels of one position together, and not contiguous as well."""
    if x.is_contiguous() or x.dim() not in (4, 5):
        return False
    return x.is_contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


def group_norm_silu(
    x: torch.Tensor, groups: int, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None,
    eps: float = 1e-5, activation: str = "silu",
) -> torch.Tensor:  # fmt: skip
    """GroupNorm of x [N, C, ...] in f32, f16 or bf16, then the activation ("silu", "relu", "gelu", "gelu_tanh", or ""
    for none); weight, bias [C] or None. Computed in f32; the result like x, channels-last where x is.

    x is copied where it is neither contiguous nor channels-last. Raises TypeError for other dtypes, ValueError for
    groups that do not divide the channels, for vectors of another size and for an unknown activation.
    """
    for label, t in (("x", x), ("weight", weight), ("bias", bias)):
        if t is not None and t.dtype not in DTYPES:
            raise TypeError(f"group_norm_silu takes f32, f16 or bf16, not {t.dtype} ({label})")
    if x.dim() < 2 or groups < 1 or x.shape[1] % groups:
        raise ValueError(f"{groups} groups of the channels of {[*x.shape]}")
    for label, t in (("weight", weight), ("bias", bias)):
        if t is not None and t.shape != x.shape[1:2]:
            raise ValueError(f"the {label} has shape {[*t.shape]}, x {x.shape[1]} channels")
    name = known(activation) if activation else ""
    last = is_channels_last(x)
    x = x if last else x.contiguous()
    y = torch.empty_like(x)
    if not x.numel():
        return y
    batch, channels, spatial = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    flat, into = (t.movedim(1, -1).reshape(batch, -1) if last else t.view(batch, -1) for t in (x, y))
    w, b = (flat if v is None else v.contiguous() for v in (weight, bias))
    constants = (("WEIGHT", weight is not None), ("BIAS", bias is not None), ("NAME", name))
    arguments = (flat, w, b, into, groups, eps)
    key = (batch, channels, spatial, groups, last, x.dtype, w.dtype, b.dtype, constants)
    processors = multiprocessors(x.device)
    variant = tuner.pick(
        key, lambda: space(batch, channels, spatial, groups, last, processors, constants), launch, *arguments
    )
    launch(variant, *arguments)
    return y


def inputs(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try it on. last: channels-last."""
    x = make.normal(c["shape"], c.torch_dtype, mean=c.get("mean", 0.0))
    channels = c["shape"][1:2]
    if c.get("last"):
        x = x.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    given = c.get("weight", True)
    weight = make.normal(channels, c.torch_dtype) if given else None
    return x, c["groups"], weight, make.normal(channels, c.torch_dtype) if given else None, 1e-5, c.get("name", "silu")


def rounded_mean(arguments: Sequence[Any]) -> float:
    """Relative error that comes with a group's mean in f32: 1.2e-5 at a mean of 300 deviations (H200)."""
    x, groups = arguments[:2]
    return rounded_mean_of(x.reshape(x.shape[0], groups, -1)) if x.numel() else 0.0


SIGNATURE = {
    **dict.fromkeys(("x_ptr", "w_ptr", "b_ptr", "y_ptr"), "*bf16"),
    **dict.fromkeys(("mean_ptr", "square_ptr", "group_mean_ptr", "group_rstd_ptr"), "*fp32"),
    **dict.fromkeys(("spans", "blocks"), "i32"), "eps": "fp32",
}  # fmt: skip
_GIVEN = (("WEIGHT", True), ("BIAS", True), ("NAME", "silu"))


def _build(variant: Variant, kernel: object, **more: int) -> Build:
    names = kernel.arg_names  # type: ignore[attr-defined]
    constants = {k: v for k, v in {**dict(variant.constants), **more}.items() if k in names}
    return Build(
        Variant(kernel, tuple(constants.items()), variant.warps), {k: t for k, t in SIGNATURE.items() if k in names}
    )


def _builds() -> tuple[Build, ...]:
    held = space(32, 256, 256, 32, False, 132, _GIVEN)[0]
    flat = space(32, 256, 196, 32, False, 132, _GIVEN)[-1]
    spans = space(8, 128, 65536, 32, False, 132, _GIVEN)[0]
    lines = space(8, 320, 4096, 32, True, 132, _GIVEN)[-1]
    return (
        _build(held, held.kernel), _build(flat, flat.kernel), _build(spans, group_spans, SIZE=4 * 65536),
        _build(spans, group_apply), _build(lines, lines_spans), _build(lines, lines_join, PARTS=64, CHANNELS=16),
        _build(lines, lines_apply),
    )  # fmt: skip


OPERATIONS = (
    Operation(
        name="group_norm_silu", conditioned=rounded_mean, run=group_norm_silu, reference=reference, inputs=inputs,
        cost=lambda c: Cost(bytes=2 * math.prod(c["shape"]) * c.itemsize),
        beyond=case("bf16", shape=(129, 64, 512, 512), groups=8), forms=("plain", "strided", "misaligned", "special"),
        fixed=("groups",),
        checks=(
            *(case(d, shape=s, groups=g) for d in ("f32", "f16", "bf16")
              for s, g in (((2, 6, 7, 5), 3), ((1, 4, 130), 1), ((2, 8, 4, 16), 2), ((3, 10), 5))),
            *(case(d, shape=s, groups=g, last=True) for d in ("f32", "bf16")
              for s, g in (((2, 6, 7, 5), 3), ((1, 8, 3, 4, 5), 2), ((1, 20, 40, 30), 2))),
            case("f32", shape=(2, 4, 50, 60), groups=2, mean=300.0), case("f32", shape=(1, 2, 200, 200), groups=1),
            case("f32", shape=(1, 6, 90, 80), groups=3, mean=300.0, last=True),
            case("f32", shape=(0, 4, 8), groups=2), case("bf16", shape=(2, 8, 5, 6), groups=4, weight=False),
            case("f16", shape=(2, 8, 5, 6), groups=4, name="gelu"), case("bf16", shape=(1, 8, 9, 6), groups=8, name=""),
            case("bf16", shape=(2, 8, 6, 32), groups=2),
        ),
        cases=(
            case("bf16", shape=(8, 128, 512, 512), groups=32), case("bf16", shape=(8, 320, 64, 64), groups=32),
            case("bf16", shape=(8, 1280, 16, 16), groups=32), case("bf16", shape=(2, 640, 32, 32), groups=32),
            case("bf16", shape=(8, 128, 512, 512), groups=32, last=True),
            case("bf16", shape=(8, 320, 64, 64), groups=32, last=True),
            case("f32", shape=(8, 256, 128, 128), groups=32),
        ),
        builds=_builds(),
    ),
)  # fmt: skip
