"""RMSNorm or LayerNorm whose result is 8-bit floats (e4m3) and their scales, a residual added before and written.

s = x + residual, y = norm(s) * weight + bias in f32, q = y / scale as e4m3, where scale is

- "row": the largest |y| of a row / 448, one a row (per token);
- "block": the same of every 128 columns of a row (the last block may be shorter);
- "tensor": one number that is given.

y is not rounded before it is scaled. Traffic: x read (and residual read, s written), q written: 3 * rows * columns
bytes of 16-bit elements, 7 with a residual, while a row fits into one program's registers; longer rows are read twice,
and a third time for "row", mostly from L2. Two calls, the norm and then the quantisation, write and read y again: 7
bytes an element instead of 3. On sm_80 and AMD codes are made by integer operations (shared/float8.py). The walking
kernel spills 8 bytes a thread for a LayerNorm in blocks on sm_80, and 4 for a residual on sm_120.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels.ops.shared.float8 import LARGEST, SMALLEST_AMAX, code_of, scale_of, size_of
from kernels.ops.shared.pairs import rounded
from kernels.ops.shared.rows import DTYPES, HELD, rows_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

GROUP = 128
"""Columns that share a scale."""
SCALES = ("row", "block", "tensor")
NAME = "triton:norm_quantise"

tuner = Tuner("norm_quantise")


def reference(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None,
    scale: torch.Tensor | None, eps: float, centered: bool, scales: str, least: float = SMALLEST_AMAX,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """What is computed, in plain PyTorch: codes, scales where they are made, x + residual where there is one."""
    s = x if residual is None else x + residual
    y = wide(s)
    if centered:
        y = y - y.mean(-1, keepdim=True)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    y = y if weight is None else y * wide(weight)
    y = y if bias is None else y + wide(bias)
    sums = () if residual is None else (s,)
    if scale is not None:
        return (_code(y / scale), *sums)
    columns = y.shape[-1]
    if not y.numel():  # no largest number of nothing
        made = y.new_full((*y.shape[:-1], -(-columns // GROUP)), least / LARGEST, dtype=torch.float32)
        return (_code(y), y.new_full(y.shape[:-1], least / LARGEST).float() if scales == "row" else made, *sums)
    width = columns if scales == "row" else GROUP
    groups = torch.nn.functional.pad(y, (0, -columns % width)).unflatten(-1, (-1, width))
    largest = groups.abs().amax(-1, keepdim=True).clamp(min=least)
    made = largest / LARGEST
    q = _code((groups / made).flatten(-2)[..., :columns])
    factors = made[..., 0, 0] if scales == "row" else made[..., 0]
    return (q, factors.float(), *sums)


def _code(y: torch.Tensor) -> torch.Tensor:
    # Through f32, as torch has no better conversion of f64.
    return y.float().clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


@triton.jit
def taken(x_ptr, r_ptr, s_ptr, at, mask, MASKED: tl.constexpr, RESIDUAL: tl.constexpr, EVICT: tl.constexpr):
    """x, or x + residual as it is rounded when it is stored, in f32; 0 outside the mask."""
    if MASKED:
        x = tl.load(x_ptr + at, mask=mask, other=0.0, eviction_policy=EVICT).to(tl.float32)
    else:
        x = tl.load(x_ptr + at, eviction_policy=EVICT).to(tl.float32)
    if RESIDUAL:
        if MASKED:
            x += tl.load(r_ptr + at, mask=mask, other=0.0, eviction_policy=EVICT).to(tl.float32)
        else:
            x += tl.load(r_ptr + at, eviction_policy=EVICT).to(tl.float32)
        x = rounded(x, s_ptr).to(s_ptr.dtype.element_ty).to(tl.float32)
    return x


@triton.jit
def norm_quantise_rows(
    x_ptr, r_ptr, w_ptr, b_ptr, scale_ptr, q_ptr, s_ptr, rows, x_stride, r_stride, eps, least,
    N: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, GROUP: tl.constexpr, RESIDUAL: tl.constexpr,
    CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, SCALES: tl.constexpr,
):  # fmt: skip
    """ROWS rows of N columns a program, held in f32; q, s contiguous. GROUP: columns of a scale, a part of BLOCK."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    MASKED: tl.constexpr = BLOCK != N or ROWS > 1
    inside = (row < rows) & (col < N)
    x_ptr += row * x_stride
    if RESIDUAL:
        r_ptr += row * r_stride
    y = taken(x_ptr, r_ptr, s_ptr, col, inside, MASKED, RESIDUAL, "evict_first")
    if RESIDUAL:
        if MASKED:
            tl.store(s_ptr + row * N + col, y, mask=inside)
        else:
            tl.store(s_ptr + row * N + col, y)
    if CENTERED:
        # Rounded to the nearest, as torch divides: a row of one value only has no deviation then.
        y -= tl.div_rn(tl.sum(y, axis=1, keep_dims=True), N * 1.0)
        if MASKED:
            y = tl.where(inside, y, 0.0)
    y *= tl.rsqrt(tl.sum(y * y, axis=1, keep_dims=True) / N + eps)
    if WEIGHT:
        y *= tl.load(w_ptr + col, mask=col < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if BIAS:
        y += tl.load(b_ptr + col, mask=col < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if SCALES == "tensor":
        q = code_of(y * (1.0 / tl.load(scale_ptr)))
    elif SCALES == "row":
        scale = scale_of(tl.max(size_of(y), axis=1, keep_dims=True), least)
        tl.store(scale_ptr + row, scale, mask=row < rows)
        q = code_of(y * (1.0 / scale))
    else:
        BLOCKS: tl.constexpr = BLOCK // GROUP
        OF: tl.constexpr = (N + GROUP - 1) // GROUP
        groups = tl.reshape(y, (ROWS, BLOCKS, GROUP))
        scale = scale_of(tl.max(size_of(groups), axis=2, keep_dims=True), least)
        q = tl.reshape(code_of(groups * (1.0 / scale)), (ROWS, BLOCK))
        block = tl.arange(0, BLOCKS)[None, :]
        tl.store(scale_ptr + row * OF + block, tl.reshape(scale, (ROWS, BLOCKS)), mask=(row < rows) & (block < OF))
    if MASKED:
        tl.store(q_ptr + row * N + col, q, mask=inside)
    else:
        tl.store(q_ptr + row * N + col, q)


@triton.jit
def scaled(x, w_ptr, b_ptr, at, mask, mean, rstd, WEIGHT: tl.constexpr, BIAS: tl.constexpr):
    """The norm of x at these columns; 0 outside the mask."""
    y = (x - mean) * rstd
    if WEIGHT:
        y *= tl.load(w_ptr + at, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if BIAS:
        y += tl.load(b_ptr + at, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
    return tl.where(mask, y, 0.0)


@triton.jit
def norm_quantise_loop(
    x_ptr, r_ptr, w_ptr, b_ptr, scale_ptr, q_ptr, s_ptr, rows, x_stride, r_stride, eps, least,
    N: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, GROUP: tl.constexpr, RESIDUAL: tl.constexpr,
    CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, SCALES: tl.constexpr,
):  # fmt: skip
    """One row a program in walks of BLOCK columns: its statistics, its largest number for "row", then the codes.

    The statistics are of differences to the row's first number, so that a large mean costs no digits.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS
    col = tl.arange(0, BLOCK)
    x_ptr += row * x_stride
    r_ptr += row * r_stride
    q_ptr += row * N
    if RESIDUAL:
        s_ptr += row * N
    first = 0.0
    if CENTERED:
        first = taken(x_ptr, r_ptr, s_ptr, 0, True, True, RESIDUAL, "evict_last")
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        at = start + col
        x = taken(x_ptr, r_ptr, s_ptr, at, at < N, True, RESIDUAL, "evict_last")
        if RESIDUAL:
            tl.store(s_ptr + at, x, mask=at < N)
        if CENTERED:
            x = tl.where(at < N, x - first, 0.0)
            total += x
        squares += x * x
    mean = 0.0
    variance = tl.sum(squares, 0) / N
    if CENTERED:
        moved = tl.sum(total, 0) / N
        mean = first + moved
        # A row whose first number is far from the others loses digits by this: then they are summed once more.
        if moved * moved > 16.0 * (variance - moved * moved):
            squares = tl.zeros((BLOCK,), tl.float32)
            for start in range(0, N, BLOCK):
                at = start + col
                x = taken(x_ptr, r_ptr, s_ptr, at, at < N, True, RESIDUAL, "evict_last")
                squares += tl.where(at < N, (x - mean) * (x - mean), 0.0)
            variance = tl.sum(squares, 0) / N
        else:
            variance -= moved * moved
    rstd = tl.rsqrt(variance + eps)
    inverse = 1.0
    if SCALES == "tensor":
        inverse = 1.0 / tl.load(scale_ptr)
    if SCALES == "row":
        largest = tl.zeros((BLOCK,), tl.int32)
        for start in range(0, N, BLOCK):
            at = start + col
            x = taken(x_ptr, r_ptr, s_ptr, at, at < N, True, RESIDUAL, "evict_last")
            largest = tl.maximum(largest, size_of(scaled(x, w_ptr, b_ptr, at, at < N, mean, rstd, WEIGHT, BIAS)))
        scale = scale_of(tl.max(largest, 0), least)
        tl.store(scale_ptr + row, scale)
        inverse = 1.0 / scale
    for start in range(0, N, BLOCK):
        at = start + col
        x = taken(x_ptr, r_ptr, s_ptr, at, at < N, True, RESIDUAL, "evict_first")
        y = scaled(x, w_ptr, b_ptr, at, at < N, mean, rstd, WEIGHT, BIAS)
        if SCALES == "block":
            BLOCKS: tl.constexpr = BLOCK // GROUP
            OF: tl.constexpr = (N + GROUP - 1) // GROUP
            groups = tl.reshape(y, (BLOCKS, GROUP))
            scale = scale_of(tl.max(size_of(groups), axis=1, keep_dims=True), least)
            q = tl.reshape(code_of(groups * (1.0 / scale)), (BLOCK,))
            block = start // GROUP + tl.arange(0, BLOCKS)
            tl.store(scale_ptr + row * OF + block, tl.reshape(scale, (BLOCKS,)), mask=block < OF)
        else:
            q = code_of(y * inverse)
        tl.store(q_ptr + at, q, mask=at < N)


LOOPS = ((2048, 8), (4096, 8), (4096, 16), (8192, 16), (8192, 32))
"""Columns of a walk, warps."""


def space(rows: int, columns: int, constants: Sequence[tuple[str, object]]) -> list[Variant]:
    """Variants worth timing: 8 to 64 numbers a thread where a row is held, several rows a program where it is short."""
    block = max(triton.next_power_of_2(columns), GROUP)
    fixed = (("N", columns), ("GROUP", GROUP), *constants)

    def variant(kernel: object, width: int, count: int, warps: int) -> Variant:
        own = (("BLOCK", width), ("ROWS", count))
        held = width * count // (32 * warps)
        registers = held * 2 + 32 if kernel is norm_quantise_rows else 0
        return Variant(kernel, (*fixed, *own), warps, tuned=("BLOCK", "ROWS"), registers=registers)

    loops = [variant(norm_quantise_loop, b, 1, w) for b, w in LOOPS]
    if block > HELD:
        return loops
    if block < 1024:
        most = triton.next_power_of_2(max(rows, 1))
        counts = dict.fromkeys((min(max(1, each // block), most), w) for each, w in
                               ((512, 1), (1024, 1), (1024, 2), (2048, 4), (4096, 4)))  # fmt: skip
        return [variant(norm_quantise_rows, block, count, w) for count, w in counts]
    held = [variant(norm_quantise_rows, block, 1, w) for w in (1, 2, 4, 8, 16, 32) if 8 <= block // (32 * w) <= 64]
    return held + ([v for v in loops if v["BLOCK"] * 2 <= block][:3] if block >= 8192 else [])


def launch(
    variant: Variant, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor,
    scale: torch.Tensor, q: torch.Tensor, s: torch.Tensor, eps: float, least: float,
) -> None:  # fmt: skip
    """Run one variant on x, residual [rows, N] with contiguous rows -> q uint8, scale, s contiguous; any tensor for
    what is not used."""
    rows = x.shape[0]
    variant.kernel[(triton.cdiv(rows, variant["ROWS"]),)](
        x,
        residual,
        weight,
        bias,
        scale,
        q,
        s,
        rows,
        x.stride(0),
        residual.stride(0),
        eps,
        least,
        **variant.meta,
    )


def norm_quantise(
    x: torch.Tensor, residual: torch.Tensor | None = None, weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, scale: torch.Tensor | None = None, eps: float = 1e-6, centered: bool = False,
    scales: str = "row", least: float = SMALLEST_AMAX,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """(codes, scales, x + residual) of the norm over the last axis of x [..., N] in f32, f16 or bf16.

    Codes [..., N] in float8_e4m3fn, scales in f32: [...] for scales="row", [..., ceil(N / 128)] for "block", and for
    "tensor" the one number in f32, on the device, that is given. The sum, like x, is None where there is no residual.
    centered: LayerNorm, else RMSNorm. weight, bias: [N] or None. least: the largest number that a row or block is taken
    to have at least. q * scale is the norm. Raises TypeError for other dtypes, ValueError for shapes that do not belong
    together, for a scale that is given for "row" or "block", or is not for "tensor", and for a least that is not above
    0.
    """
    for label, t in (("x", x), ("residual", residual), ("weight", weight), ("bias", bias)):
        if t is not None and t.dtype not in DTYPES:
            raise TypeError(f"norm_quantise takes f32, f16 or bf16, not {t.dtype} ({label})")
    if residual is not None and (residual.dtype != x.dtype or residual.shape != x.shape):
        raise ValueError(f"x is {x.dtype}{[*x.shape]}, the residual {residual.dtype}{[*residual.shape]}")
    for label, t in (("weight", weight), ("bias", bias)):
        if t is not None and t.shape != x.shape[-1:]:
            raise ValueError(f"the {label} has shape {[*t.shape]}, a row {x.shape[-1]} elements")
    if scales not in SCALES or (scale is not None) != (scales == "tensor"):
        raise ValueError(f"scales is one of {', '.join(SCALES)}, a scale is given for the last alone, not {scales!r}")
    if scale is not None and (scale.numel() != 1 or scale.dtype != torch.float32):
        raise ValueError(f"the scale is one number in f32, not {scale.dtype}{[*scale.shape]}")
    if not 0 < least < float("inf"):
        raise ValueError(f"least is a number above 0, not {least}")
    columns, there = x.shape[-1], x.device
    q = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=there)
    made = x.shape[:-1] if scales == "row" else (*x.shape[:-1], -(-columns // GROUP))
    factors = scale if scale is not None else torch.empty(made, dtype=torch.float32, device=there)
    s = q if residual is None else torch.empty(x.shape, dtype=x.dtype, device=there)
    result = (q, factors, None if residual is None else s)
    if not x.numel():
        factors.fill_(least / LARGEST) if scale is None else None
        return result
    flat = rows_of(x)
    other = flat if residual is None else rows_of(residual)
    w, b = (flat if v is None else v.contiguous() for v in (weight, bias))
    constants = (("RESIDUAL", residual is not None), ("CENTERED", centered), ("WEIGHT", weight is not None),
                 ("BIAS", bias is not None), ("SCALES", scales))  # fmt: skip
    arguments = (flat, other, w, b, factors, q.view(torch.uint8), s, eps, least)
    key = (*flat.shape, x.dtype, flat.stride(0), other.stride(0), w.dtype, b.dtype, constants)
    variant = tuner.pick(key, lambda: space(flat.shape[0], columns, constants), launch, *arguments)
    launch(variant, *arguments)
    return result


def run(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None,
    scale: torch.Tensor | None, eps: float, centered: bool, scales: str, least: float = SMALLEST_AMAX,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """norm_quantise, what it makes of it alone."""
    q, factors, s = norm_quantise(x, residual, weight, bias, scale, eps, centered, scales, least)
    return (q, *(() if scale is not None else (factors,)), *(() if s is None else (s,)))


def inputs(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try it on."""
    shape, dtype = (c["rows"], c["columns"]), c.torch_dtype
    x = make.normal(shape, dtype, mean=c.get("mean", 0.0))
    residual = make.normal(shape, dtype) if c.get("residual") else None
    weight = make.normal(shape[1:], dtype) if c.get("weight", True) else None
    bias = make.normal(shape[1:], dtype) if c.get("centered") and c.get("weight", True) else None
    scales = c.get("scales", "row")
    scale = torch.tensor([0.02], device=make.device) if scales == "tensor" else None
    return x, residual, weight, bias, scale, 1e-6, bool(c.get("centered")), scales, c.get("least", SMALLEST_AMAX)


def cost(c: Case) -> Cost:
    """x read, codes and scales written; with a residual that too, and the sum."""
    rows, columns = c["rows"], c["columns"]
    each = c.itemsize * (3 if c.get("residual") else 1) + 1
    scales = {"row": 1, "block": -(-columns // GROUP), "tensor": 0}[c.get("scales", "row")]
    vectors = (2 if c.get("centered") else 1) * c.itemsize
    return Cost(bytes=rows * (columns * each + 4 * scales) + columns * vectors)


SIGNATURE = {
    **dict.fromkeys(("x_ptr", "r_ptr", "w_ptr", "b_ptr"), "*bf16"), "scale_ptr": "*fp32", "q_ptr": "*u8",
    "s_ptr": "*bf16", **dict.fromkeys(("rows", "x_stride", "r_stride"), "i32"), "eps": "fp32",
    "least": "fp32",
}  # fmt: skip


def _builds(centered: bool) -> tuple[Build, ...]:
    def constants(residual: bool, scales: str) -> tuple[tuple[str, object], ...]:
        return (("RESIDUAL", residual), ("CENTERED", centered), ("WEIGHT", True), ("BIAS", centered),
                ("SCALES", scales))  # fmt: skip

    held = space(4096, 4096, constants(True, "row"))
    chosen = (held[1], space(4096, 4096, constants(False, "block"))[1], space(4096, 256, constants(False, "row"))[0],
              space(64, 65536, constants(True, "row"))[1], space(64, 65536, constants(False, "block"))[1])  # fmt: skip
    return tuple(Build(v, SIGNATURE, divisible=("rows", "x_stride", "r_stride")) for v in chosen)


SHAPES = ((5, 1000), (3, 2050), (1, 1), (9, 130))
FORMS = ("plain", "strided", "misaligned", "special")
OPERATIONS = (
    Operation(
        name="rms_norm_quantise", run=run, reference=reference, inputs=inputs, cost=cost, forms=FORMS,
        beyond=case("bf16", rows=524_800, columns=4096, residual=True),
        checks=(
            *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16") for r, n in SHAPES),
            *(case("bf16", rows=r, columns=n, scales="block") for r, n in (*SHAPES, (2, 40_000), (0, 64), (3, 0))),
            *(case("bf16", rows=r, columns=n, scales="tensor", residual=True) for r, n in ((4, 640), (2, 40_000))),
            case("f16", rows=3, columns=512, weight=False), case("bf16", rows=2, columns=40_000, residual=True),
            case("bf16", rows=6, columns=1200, residual=True), case("f32", rows=7, columns=700, least=4.0),
            case("f32", rows=7, columns=700, scales="block", least=3.0),
            case("bf16", rows=7, columns=384, scales="block"),
        ),
        cases=(
            *(case("bf16", rows=r, columns=n) for r, n in ((16384, 4096), (4096, 16384), (64, 8192))),
            case("bf16", rows=16384, columns=4096, residual=True),
            case("bf16", rows=16384, columns=7168, scales="block"),
            case("bf16", rows=8192, columns=8192, scales="tensor", residual=True),
        ),
        builds=_builds(False),
    ),
    Operation(
        name="layer_norm_quantise", run=run, reference=reference, inputs=inputs, cost=cost, forms=FORMS,
        beyond=case("bf16", rows=524_800, columns=4096, centered=True),
        checks=(
            *(case(d, rows=r, columns=n, centered=True) for d in ("f32", "f16", "bf16") for r, n in SHAPES),
            case("f32", rows=3, columns=3000, centered=True, mean=500.0),
            case("f32", rows=2, columns=40_000, centered=True, mean=500.0, scales="block"),
            case("bf16", rows=2, columns=40_000, centered=True, residual=True),
            case("bf16", rows=6, columns=1200, centered=True, scales="block"),
        ),
        cases=(
            case("bf16", rows=16384, columns=4096, centered=True),
            case("bf16", rows=16384, columns=1024, centered=True, residual=True),
        ),
        builds=_builds(True),
    ),
)  # fmt: skip
