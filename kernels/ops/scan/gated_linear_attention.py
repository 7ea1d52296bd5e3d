"""Linear attention with a decay of each head and step: a state [DK, DV] that every step decays and adds to.

S[t] = exp(g[t]) * S[t - 1] + k[t] v[t]^T, o[t] = scale * q[t] S[t]: RetNet where g is a number, Mamba-2 and lightning
attention, and GLA with one gate a head. Forward, from an initial state and to a final one.

In chunks of C steps, so that products do it (Yang et al., 2024; Dao and Gu, 2024): one kernel walks over the chunks of
a sequence and leaves the state in front of each, of which it holds [BK, BV] in registers; another makes the results of
every chunk from that state and from the pairs within the chunk, all chunks at once. Decays are sums of g within a chunk
and differences of these, so that for finite g of 0 or less no decay overflows, however fast a head forgets. States have
the inputs' dtype, but f32 for f16, whose range a head that forgets slowly leaves: their product is then of tf32, whose
digits are f16's.

Traffic: q, k, v read, o written, once; k and v are read again for the pairs, and the states, one [DK, DV] for C steps,
are written and read: as much again at C = 64 and heads of 64, twice that at 128, and twice these for f16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.matmul.gemm import DTYPES, SHARED_KIB
from kernels.spec import DTYPES as TORCH_DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

Tensor = torch.Tensor

WIDEST = 256
"""Largest DK and DV."""
tuner = Tuner("gated_linear_attention")


def reference(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float | None = None, initial: Tensor | None = None,
    final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """What is computed, in plain PyTorch: all pairs of steps at once."""
    steps = q.shape[2]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    sums = wide(g).cumsum(-1)
    between = sums[..., :, None] - sums[..., None, :]
    past = torch.ones((steps, steps), dtype=torch.bool, device=q.device).tril()
    decay = torch.exp(between.masked_fill(~past, -torch.inf))
    o = ((wide(q @ k.transpose(-1, -2)) * decay).to(v.dtype)) @ v
    if initial is not None:
        o = wide(o) + (wide(q) * torch.exp(sums)[..., None]) @ initial
    o = (wide(o) * scale).to(q.dtype)
    if not final:
        return o
    last = sums[..., -1:] if steps else sums.new_zeros((*sums.shape[:2], 1))
    decayed = (wide(k) * torch.exp(last - sums)[..., None]).to(v.dtype)
    end = wide(decayed).transpose(-1, -2) @ wide(v)
    return o, end if initial is None else end + torch.exp(last)[..., None] * initial


@triton.jit
def tile_of(x, start, row, steps, col, x_row, WIDTH: tl.constexpr):
    """x[start + row, col] of one head; zeros behind the last step and column. row: from 0."""
    at = x + tl.cast(start, tl.int64) * x_row + (row[:, None] * x_row + col[None, :])
    return tl.load(at, mask=(start + row < steps)[:, None] & (col < WIDTH)[None, :], other=0.0)


@triton.jit
def states_kernel(
    k, v, g, first, states, end, heads, steps, k_batch, k_head, k_row, v_batch, v_head, v_row, g_batch, g_head, g_row,
    DK: tl.constexpr, DV: tl.constexpr, CHUNK: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, START: tl.constexpr,
    FINAL: tl.constexpr,
):  # fmt: skip
    """[BK, BV] of one head's state in front of every chunk, into states [B, H, chunks, DK, DV], and behind the last."""
    across = tl.cdiv(DV, BV)
    tiles = tl.cdiv(DK, BK) * across
    z = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    col_k = tile // across * BK + tl.arange(0, BK)
    col_v = tile % across * BV + tl.arange(0, BV)
    row = tl.arange(0, CHUNK)
    batch, head = z // heads, z % heads
    k += batch * k_batch + head * k_head
    v += batch * v_batch + head * v_head
    g += batch * g_batch + head * g_head
    at = col_k[:, None] * DV + col_v[None, :]
    inside = (col_k < DK)[:, None] & (col_v < DV)[None, :]
    state = tl.zeros((BK, BV), tl.float32)
    if START:
        state = tl.load(first + z * DK * DV + at, mask=inside, other=0.0)
    chunks = tl.cdiv(steps, CHUNK)
    for i in range(0, chunks):
        to = (z * chunks + i) * DK * DV
        tl.store(states + to + at, state.to(states.dtype.element_ty), mask=inside)
        start = i * CHUNK
        gates = tl.load(g + tl.cast(start + row, tl.int64) * g_row, mask=start + row < steps, other=0.0)
        sums = tl.cumsum(gates.to(tl.float32), 0)
        total = tl.sum(gates.to(tl.float32), 0)
        keys = tile_of(k, start, row, steps, col_k, k_row, DK)
        values = tile_of(v, start, row, steps, col_v, v_row, DV)
        decayed = keys.to(tl.float32) * tl.exp2((total - sums) * 1.4426950408889634)[:, None]
        state = state * tl.exp2(total * 1.4426950408889634)
        state = tl.dot(decayed.to(values.dtype).T, values, state, input_precision="ieee")
    if FINAL:
        tl.store(end + z * DK * DV + at, state, mask=inside)


@triton.jit
def results_kernel(
    q, k, v, g, states, o, heads, steps, scale, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    g_batch, g_head, g_row, o_batch, o_head, o_row, DK: tl.constexpr, DV: tl.constexpr, CHUNK: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """BV columns of one chunk's results."""
    across = tl.cdiv(DV, BV)
    chunks = tl.cdiv(steps, CHUNK)
    tile = tl.program_id(0) % across
    i = tl.program_id(0) // across % chunks
    z = (tl.program_id(0) // across // chunks).to(tl.int64)
    batch, head = z // heads, z % heads
    start = i * CHUNK
    row = tl.arange(0, CHUNK)
    col = tile * BV + tl.arange(0, BV)
    q += batch * q_batch + head * q_head
    k += batch * k_batch + head * k_head
    v += batch * v_batch + head * v_head
    gates = tl.load(
        g + batch * g_batch + head * g_head + tl.cast(start + row, tl.int64) * g_row, mask=start + row < steps,
        other=0.0,
    )  # fmt: skip
    sums = tl.cumsum(gates.to(tl.float32), 0) * 1.4426950408889634
    states += (z * chunks + i) * DK * DV
    pairs = tl.zeros((CHUNK, CHUNK), tl.float32)
    result = tl.zeros((CHUNK, BV), tl.float32)
    for n in range(0, DK, BK):
        col_k = n + tl.arange(0, BK)
        queries = tile_of(q, start, row, steps, col_k, q_row, DK)
        keys = tile_of(k, start, row, steps, col_k, k_row, DK)
        at = col_k[:, None] * DV + col[None, :]
        state = tl.load(states + at, mask=(col_k < DK)[:, None] & (col < DV)[None, :], other=0.0)
        pairs = tl.dot(queries, keys.T, pairs, input_precision="ieee")
        if state.dtype == queries.dtype:
            result = tl.dot(queries, state, result, input_precision="ieee")
        else:
            result = tl.dot(queries.to(state.dtype), state, result, input_precision="tf32")
    result = result * tl.exp2(sums)[:, None]
    past = row[:, None] >= row[None, :]
    pairs = pairs * tl.exp2(tl.where(past, sums[:, None] - sums[None, :], float("-inf")))
    values = tile_of(v, start, row, steps, col, v_row, DV)
    result = tl.dot(pairs.to(values.dtype), values, result, input_precision="ieee") * scale
    to = o + batch * o_batch + head * o_head + tl.cast(start, tl.int64) * o_row + (row[:, None] * o_row + col[None, :])
    tl.store(to, result.to(o.dtype.element_ty), mask=(start + row < steps)[:, None] & (col < DV)[None, :])


SHAPES = ((64, 64, 64, 4, 2), (64, 64, 128, 4, 2), (64, 64, 128, 8, 2), (128, 64, 64, 8, 2), (32, 64, 64, 4, 3))
"""Steps of a chunk, columns of keys, of values, warps and stages; f32 has smaller ones, none of matrix units."""
NARROW_SHAPES = ((32, 32, 32, 4, 1), (16, 32, 64, 4, 1))


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """What states between chunks are kept in: sums over all steps, which f16 has no room for."""
    return torch.bfloat16 if dtype == torch.bfloat16 else torch.float32


def space(dk: int, dv: int, steps: int, dtype: torch.dtype) -> list[Variant]:
    """Variants worth timing."""
    variants = []
    held = state_dtype(dtype).itemsize
    for chunk, bk, bv, warps, stages in NARROW_SHAPES if dtype == torch.float32 else SHAPES:
        chunk = min(chunk, max(16, triton.next_power_of_2(steps)))
        bk, bv = (min(b, max(16, triton.next_power_of_2(d))) for b, d in ((bk, dk), (bv, dv)))
        constants = (("DK", dk), ("DV", dv), ("CHUNK", chunk), ("BK", bk), ("BV", bv))
        shared = (stages * 2 * chunk * bk + chunk * bv) * dtype.itemsize + stages * bk * bv * held
        if held > dtype.itemsize:
            shared += chunk * bk * held  # queries as wide as the states
        registers = (chunk * chunk + chunk * bv + bk * bv) // (32 * warps) + 50
        tuned = ("CHUNK", "BK", "BV")
        variants.append(Variant(results_kernel, constants, warps, stages, tuned, shared, registers))
    return list(dict.fromkeys(variants))


def launch(
    variant: Variant, q: Tensor, k: Tensor, v: Tensor, g: Tensor, initial: Tensor | None, o: Tensor,
    end: Tensor | None, scale: float,
) -> None:  # fmt: skip
    """Run one variant on [batch, heads, steps, D] with contiguous rows into o and, where it is wanted, end (f32)."""
    (batch, heads, steps, dk), dv = q.shape, v.shape[3]
    chunks = triton.cdiv(steps, variant["CHUNK"])
    states = torch.empty((batch, heads, chunks, dk, dv), dtype=state_dtype(q.dtype), device=q.device)
    tiles = triton.cdiv(dk, variant["BK"]) * triton.cdiv(dv, variant["BV"])
    strides = (*k.stride()[:3], *v.stride()[:3], *g.stride())
    states_kernel[(batch * heads * tiles,)](
        k, v, g, states if initial is None else initial, states, states if end is None else end, heads, steps,
        *strides, START=initial is not None, FINAL=end is not None, **variant.meta,
    )  # fmt: skip
    results_kernel[(batch * heads * chunks * triton.cdiv(dv, variant["BV"]),)](
        q, k, v, g, states, o, heads, steps, scale, *q.stride()[:3], *strides, *o.stride()[:3], **variant.meta
    )  # fmt: skip


def refuse(q: Tensor, k: Tensor, v: Tensor, g: Tensor, initial: Tensor | None) -> None:
    """Raises TypeError or ValueError for what gated_linear_attention does not take."""
    if q.dtype not in DTYPES or q.dtype != k.dtype or q.dtype != v.dtype or g.dtype not in (q.dtype, torch.float32):
        raise TypeError(
            f"gated_linear_attention takes q, k and v in f32, f16 or bf16 alike, g so or in f32, not {q.dtype}, "
            f"{k.dtype}, {v.dtype} and {g.dtype}"
        )
    if q.dim() != 4 or k.shape != q.shape or v.dim() != 4 or v.shape[:3] != q.shape[:3] or g.shape != q.shape[:3]:
        raise ValueError(
            f"gated_linear_attention takes q, k [B, H, T, DK], v [B, H, T, DV] and g [B, H, T], not {[*q.shape]}, "
            f"{[*k.shape]}, {[*v.shape]} and {[*g.shape]}"
        )
    if not (1 <= q.shape[3] <= WIDEST and 1 <= v.shape[3] <= WIDEST):
        raise ValueError(f"DK and DV are from 1 to {WIDEST}, not {q.shape[3]} and {v.shape[3]}")
    wanted = (*q.shape[:2], q.shape[3], v.shape[3])
    if initial is not None and (initial.shape != wanted or initial.dtype != torch.float32):
        raise ValueError(f"the initial state is f32 {[*wanted]}, not {initial.dtype} {[*initial.shape]}")


def _rows(x: Tensor) -> Tensor:
    """x with contiguous rows of its own, less than 2^24 elements apart: offsets within a tile are 32 bits."""
    return x if x.stride(3) == 1 and 0 not in x.stride() and x.stride(2) < 1 << 24 else x.contiguous()


def gated_linear_attention(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float | None = None, initial: Tensor | None = None,
    final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Linear attention of q, k [B, H, T, DK] and v [B, H, T, DV], f32, f16 or bf16, with log-decays g [B, H, T].

    g: q's dtype or f32, finite, 0 or less. scale: DK^-0.5 where None. initial: the state before, f32 [B, H, DK, DV]. DK
    and DV from 1 to 256. Returns [B, H, T, DV] of v's layout; with `final` also the state after, f32. Strided inputs
    are taken as they are where their last axis is contiguous. Raises TypeError for other dtypes, ValueError for other
    shapes.
    """
    refuse(q, k, v, g, initial)
    q, k, v = _rows(q), _rows(k), _rows(v)
    (batch, heads, steps, dk), dv = q.shape, v.shape[3]
    scale = dk**-0.5 if scale is None else scale
    initial = None if initial is None else initial.contiguous()
    o = torch.empty_like(v)
    end = torch.zeros((batch, heads, dk, dv), dtype=torch.float32, device=q.device) if final else None
    if o.numel():
        key = (batch * heads, steps, dk, dv, q.dtype, g.dtype, initial is None, final)
        given = (q, k, v, g, initial, o, end, scale)
        launch(tuner.pick(key, lambda: space(dk, dv, steps, q.dtype), launch, *given), *given)
    elif end is not None and initial is not None:
        end.copy_(initial)
    return o if end is None else (o, end)


# ---- cases
# What it is tried on, what it costs at least, and how its variants are compiled offline.
def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on. forget: the mean log-decay; rows_first: [B, T, H, D] turned.

    size: of keys and values of one sign, so that states grow with every step; queries are as small as keys are large.
    """
    b, h, t, dk, dv = c["b"], c["h"], c["t"], c["dk"], c["dv"]

    def heads(width: int) -> Tensor:
        if c.get("rows_first"):
            return make.normal((b, t, h, width), c.torch_dtype).transpose(1, 2)
        return make.normal((b, h, t, width), c.torch_dtype)

    g = -make.normal((b, h, t), torch.float32, c.get("forget", 0.1)).abs()
    size = c.get("size")
    if size is not None:
        ones = torch.ones((b, h, t, dk), dtype=c.torch_dtype, device=make.device)
        return ones / size, ones * size, heads(dv).abs() * size, g, c.get("scale"), None, c.get("final", False)
    initial = make.normal((b, h, dk, dv), torch.float32) if c.get("state") else None
    return heads(dk), heads(dk), heads(dv), g, c.get("scale"), initial, c.get("final", False)


def cost(c: Case) -> Cost:
    """Every tensor once; two products of a step's vectors with the state."""
    rows = c["b"] * c["h"] * c["t"]
    return Cost(rows * (2 * c["dk"] + 2 * c["dv"]) * c.itemsize + 4 * rows, 4 * rows * c["dk"] * c["dv"])


def conditioned(arguments: Sequence[Any]) -> tuple[float, float]:
    """Of the results, and of the final state, for which keys are decayed and then rounded to the inputs' dtype: with
    one sign and hardly any decay all to the same side.

    The state of 296 such steps in f16 was off by 1.1e-4, the reference's by 1.1e-5 (H200).
    """
    dtype = arguments[1].dtype
    return 0.0, float(torch.finfo(dtype).eps) / 2 if dtype != torch.float32 else 0.0


POINTED = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
"""As Triton's signatures name what is pointed to."""
STRIDES = {x: tuple(f"{x}_{axis}" for axis in ("batch", "head", "row")) for x in "qkvgo"}


NO_TF32 = "input_precision must be one of ('ieee', 'bf16x3', 'bf16x6'). Got tf32"
"""What Triton says of f16's product with states in f32 for gfx950."""


def build_of(v: Variant, states: bool, dtype: str) -> Build:
    """One of a variant's two kernels as it is compiled offline."""
    sizes, own = ("heads", "steps"), f"*{POINTED[TORCH_DTYPES[dtype]]}"
    held = f"*{POINTED[state_dtype(TORCH_DTYPES[dtype])]}"
    if states:
        kernel: Any = states_kernel
        constants = (*v.constants, ("START", False), ("FINAL", False))
        pointers = {"k": own, "v": own, "g": "*fp32", "first": "*fp32", "states": held, "end": "*fp32"}
        signature, names = pointers | dict.fromkeys(sizes, "i32"), "kvg"
    else:
        kernel, constants, names = results_kernel, v.constants, "qkvgo"
        pointers = {"q": own, "k": own, "v": own, "g": "*fp32", "states": held, "o": own}
        signature = pointers | dict.fromkeys(sizes, "i32") | {"scale": "fp32"}
    strides = tuple(s for x in names for s in STRIDES[x])
    refused = {
        target: f"its tiles are larger than {room} KiB of shared memory"
        for target, room in SHARED_KIB.items() if v.shared_bytes > room * 1024
    }  # fmt: skip
    if not states and held != own:
        refused["gfx950"] = NO_TF32
    one = Variant(kernel, constants, v.warps, v.stages)
    return Build(one, signature | dict.fromkeys(strides, "i32"), ("steps", *strides[:-1]), refused)


OPERATIONS = (
    Operation(
        name="gated_linear_attention", run=gated_linear_attention, reference=reference, inputs=inputs, cost=cost,
        conditioned=conditioned, beyond=case("bf16", b=1030, h=8, t=2048, dk=64, dv=128),
        checks=(
            *(case(d, b=2, h=2, t=t, dk=dk, dv=dv) for d in ("f32", "f16")
              for t, dk, dv in ((1, 16, 16), (70, 64, 64), (65, 20, 33))),
            case("f32", b=0, h=1, t=5, dk=16, dv=16),
            case("f32", b=1, h=2, t=0, dk=16, dv=16),
            case("f32", b=1, h=2, t=100, dk=32, dv=16, state=True, final=True, rows_first=True),
            case("f16", b=1, h=2, t=130, dk=128, dv=64, forget=5.0, final=True),
            case("f16", b=1, h=1, t=200, dk=64, dv=128, forget=0.001, scale=1.0, state=True),
            case("f16", b=1, h=2, t=300, dk=32, dv=20, forget=1e-5, size=30.0, final=True),
            case("bf16", b=2, h=2, t=130, dk=128, dv=128, final=True),
            case("f16", b=2, h=3, t=150, dk=96, dv=80, state=True, final=True),
        ),
        cases=(
            case("bf16", b=8, h=16, t=2048, dk=128, dv=128),
            case("bf16", b=8, h=32, t=2048, dk=64, dv=64, rows_first=True),
        ),
        builds=tuple(
            build_of(space(128, 128, 2048, TORCH_DTYPES[name])[number], states, name)
            for name, number in (("bf16", 0), ("bf16", 4), ("f16", 1)) for states in (False, True)
        ),
        wrong_interpreted=("bf16",), fixed=("dk", "dv"),
    ),
)  # fmt: skip
