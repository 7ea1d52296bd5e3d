"""Rotary position embedding, rotate-half: y = x * cos + cat(-x2, x1) * sin, of queries and keys in one launch.

Reference: the same line in PyTorch. Traffic: x read once, y written once, 2 itemsize bytes an element, and cos and sin
once. A program keeps the cos and sin of its positions for several heads: read again for each head, they would be two
thirds of what comes through L2. Backward is the transpose, which for cos and sin with equal halves is the rotation by
the opposite angle.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

tuner = Tuner("rope")


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, transposed: bool) -> torch.Tensor:
    half = x.shape[-1] // 2
    if cos.dim() == 3:
        cos, sin = cos[:, None], sin[:, None]
    if transposed:
        z = x * sin
        return x * cos + torch.cat((z[..., half:], -z[..., :half]), -1)
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def reference(
    q: torch.Tensor, k: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """What is computed, in plain PyTorch."""
    turned = _rotated(q, cos, sin, False)
    return turned if k is None else (turned, _rotated(k, cos, sin, False))


def backward_reference(
    dq: torch.Tensor, dk: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """What autograd computes of it."""
    turned = _rotated(dq, cos, sin, True)
    return turned if dk is None else (turned, _rotated(dk, cos, sin, True))


@triton.jit
def rotate_heads(
    x_ptr, y_ptr, c1, c2, s1, s2, head, heads, x_stride, y_stride, x_step, y_step, position, inside, HALF: tl.constexpr,
    BLOCK: tl.constexpr, HEADS: tl.constexpr, TRANSPOSED: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """HEADS heads at one tile of positions; every load is issued before the first use."""
    col = tl.arange(0, BLOCK)[None, :]
    firsts = ()
    seconds = ()
    for i in tl.static_range(HEADS):
        at = x_ptr + (head + i).to(tl.int64) * x_stride + position * x_step + col
        if WHOLE:
            firsts = firsts + (tl.load(at),)  # noqa: RUF005 - Triton's tuples know only this
            seconds = seconds + (tl.load(at + HALF),)  # noqa: RUF005
        else:
            firsts = firsts + (tl.load(at, mask=inside & (head + i < heads), other=0.0),)  # noqa: RUF005
            seconds = seconds + (tl.load(at + HALF, mask=inside & (head + i < heads), other=0.0),)  # noqa: RUF005
    for i in tl.static_range(HEADS):
        a = firsts[i].to(tl.float32)
        b = seconds[i].to(tl.float32)
        to = y_ptr + (head + i).to(tl.int64) * y_stride + position * y_step + col
        if TRANSPOSED:
            low = a * c1 + b * s2
            high = b * c2 - a * s1
        else:
            low = a * c1 - b * s1
            high = b * c2 + a * s2
        if WHOLE:
            tl.store(to, low)
            tl.store(to + HALF, high)
        else:
            tl.store(to, low, mask=inside & (head + i < heads))
            tl.store(to + HALF, high, mask=inside & (head + i < heads))


@triton.jit
def rope_kernel(
    q_ptr, k_ptr, u_ptr, v_ptr, cos_ptr, sin_ptr, length, q_heads, k_heads, q_batch, q_head, q_step, k_batch, k_head,
    k_step, u_batch, u_head, u_step, v_batch, v_head, v_step, c_batch, c_step, HALF: tl.constexpr, BLOCK: tl.constexpr,
    POSITIONS: tl.constexpr, HEADS: tl.constexpr, TRANSPOSED: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """POSITIONS positions of HEADS heads of q into u, or of k into v, a program. WHOLE: no tile ends outside."""
    tiles = tl.cdiv(length, POSITIONS)
    q_groups = tl.cdiv(q_heads, HEADS)
    groups = q_groups + tl.cdiv(k_heads, HEADS)
    pid = tl.program_id(0)
    group = (pid // tiles) % groups
    batch = (pid // (tiles * groups)).to(tl.int64)
    position = (pid % tiles).to(tl.int64) * POSITIONS + tl.arange(0, POSITIONS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (position < length) & (col < HALF)
    at = batch * c_batch + position * c_step + col
    if WHOLE:
        c1 = tl.load(cos_ptr + at).to(tl.float32)
        c2 = tl.load(cos_ptr + at + HALF).to(tl.float32)
        s1 = tl.load(sin_ptr + at).to(tl.float32)
        s2 = tl.load(sin_ptr + at + HALF).to(tl.float32)
    else:
        c1 = tl.load(cos_ptr + at, mask=inside, other=0.0).to(tl.float32)
        c2 = tl.load(cos_ptr + at + HALF, mask=inside, other=0.0).to(tl.float32)
        s1 = tl.load(sin_ptr + at, mask=inside, other=0.0).to(tl.float32)
        s2 = tl.load(sin_ptr + at + HALF, mask=inside, other=0.0).to(tl.float32)
    if group < q_groups:
        rotate_heads(
            q_ptr + batch * q_batch, u_ptr + batch * u_batch, c1, c2, s1, s2, group * HEADS, q_heads, q_head, u_head,
            q_step, u_step, position, inside, HALF, BLOCK, HEADS, TRANSPOSED, WHOLE,
        )  # fmt: skip
    else:
        rotate_heads(
            k_ptr + batch * k_batch, v_ptr + batch * v_batch, c1, c2, s1, s2, (group - q_groups) * HEADS, k_heads,
            k_head, v_head, k_step, v_step, position, inside, HALF, BLOCK, HEADS, TRANSPOSED, WHOLE,
        )  # fmt: skip


TILES = (
    (2048, 4, 4),
    (1024, 4, 4),
    (1024, 8, 4),
    (2048, 2, 4),
    (4096, 4, 8),
    (1024, 2, 4),
    (512, 4, 2),
    (512, 2, 1),
    (256, 4, 1),
)
"""Elements of half a tile, heads, warps."""


def space(length: int, heads: tuple[int, ...], half: int, transposed: bool) -> list[Variant]:
    """Variants worth timing for heads of 2 * half elements. heads: of each tensor."""
    block = triton.next_power_of_2(half)
    variants = []
    for elements, count, warps in TILES:
        positions = max(1, min(elements // block, triton.next_power_of_2(length)))
        count = min(count, triton.next_power_of_2(max(heads)))
        whole = half == block and length % positions == 0 and all(n % count == 0 for n in heads)
        tile = (("HALF", half), ("BLOCK", block), ("POSITIONS", positions), ("HEADS", count))
        constants = (*tile, ("TRANSPOSED", transposed), ("WHOLE", whole))
        variants.append(Variant(rope_kernel, constants, warps, tuned=("POSITIONS", "HEADS")))
    return list(dict.fromkeys(variants))


def launch(variant: Variant, *tensors: torch.Tensor) -> None:
    """Run one variant on q, k, their results, cos and sin [1 or B, S, D]; k with no heads: q alone."""
    q, k, u, v, cos, _ = tensors
    batch, heads, length, _ = q.shape
    groups = triton.cdiv(heads, variant["HEADS"]) + triton.cdiv(k.shape[1], variant["HEADS"])
    strides = [s for t in (q, k, u, v) for s in t.stride()[:3]]
    c_batch = cos.stride(0) if cos.shape[0] > 1 else 0
    rope_kernel[(triton.cdiv(length, variant["POSITIONS"]) * groups * batch,)](
        *tensors, length, heads, k.shape[1], *strides, c_batch, cos.stride(1), **variant.meta
    )


def _run(
    q: torch.Tensor, k: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor, transposed: bool
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    both = (q,) if k is None else (q, k)
    if any(t.dtype not in DTYPES or t.dtype != q.dtype for t in (*both, cos, sin)):
        raise TypeError(f"all are f32, f16 or bf16 alike, not {', '.join(str(t.dtype) for t in (*both, cos, sin))}")
    if q.dim() != 4 or q.shape[-1] % 2 or (k is not None and (k.dim() != 4 or k.shape[::2] != q.shape[::2])):
        raise ValueError(f"q is [B, H, S, D] with D even, k [B, H', S, D], not {[[*t.shape] for t in both]}")
    if k is not None and k.shape[3] != q.shape[3]:
        raise ValueError(f"q has heads of {q.shape[3]}, k of {k.shape[3]}")
    cos, sin = (t.unsqueeze(0) if t.dim() == 2 else t for t in (cos, sin))
    if cos.dim() != 3 or cos.shape != sin.shape or cos.shape[1:] != q.shape[2:] or cos.shape[0] not in (1, q.shape[0]):
        raise ValueError(f"cos and sin are [S, D] or [1 or B, S, D] of q's S and D, not {[*cos.shape]}, {[*sin.shape]}")
    q = q if q.stride(3) == 1 else q.contiguous()
    u = torch.empty_like(q)
    if k is None:
        k = v = q[:, :0]
    else:
        k = k if k.stride(3) == 1 else k.contiguous()
        v = torch.empty_like(k)
    if u.numel() or v.numel():
        if cos.stride(2) != 1 or cos.stride() != sin.stride():
            cos, sin = cos.contiguous(), sin.contiguous()
        heads, length, half = (q.shape[1], k.shape[1]), q.shape[2], q.shape[3] // 2
        made = (q, k, u, v, cos, sin)
        key = (q.shape[0], *heads, length, half, q.dtype, transposed, q.stride(), k.stride(), cos.shape[0])
        variant = tuner.pick(key, lambda: space(length, heads, half, transposed), launch, *made)
        launch(variant, *made)
    return u if len(both) == 1 else (u, v)


def rope(
    q: torch.Tensor, k: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """q [B, H, S, D] and k [B, H', S, D], or q alone, turned by their positions; f32, f16 or bf16, computed in f32.

    cos, sin: [S, D], or [1 or B, S, D] where positions differ in a batch, in the same dtype. Any strides with D
    contiguous are taken as they are, [B, S, H, D] seen as [B, H, S, D] too; results have the strides of their inputs
    where those are dense. Raises TypeError for other dtypes, ValueError for other shapes.
    """
    return _run(q, k, cos, sin, False)


def rope_backward(
    dq: torch.Tensor, dk: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Gradients of q and k from those of their results; shapes, dtypes and errors as forward."""
    return _run(dq, dk, cos, sin, True)


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """Arguments to try it on. layout "bshd": heads inside positions. tables: batches of cos and sin."""
    order, dtype, half = c.get("layout", "bhsd"), c.torch_dtype, c["d"] // 2

    def heads(count: int) -> torch.Tensor:
        if order == "bshd":
            return make.normal((c["b"], c["s"], count, c["d"]), dtype).transpose(1, 2)
        return make.normal((c["b"], count, c["s"], c["d"]), dtype)

    q = heads(c["h"])
    k = heads(c["k"]) if c.get("k") else None
    shape = (c["s"], 2 * half) if not c.get("tables") else (c["tables"], c["s"], 2 * half)
    return q, k, make.normal(shape, dtype), make.normal(shape, dtype)


def cost(c: Case) -> Cost:
    """q and k read and written, cos and sin read once."""
    moved = 2 * c["b"] * (c["h"] + c.get("k", 0)) + 2 * (c.get("tables") or 1)
    return Cost(bytes=moved * c["s"] * c["d"] * c.itemsize)


CHECKS = (
    *(case(d, b=b, h=h, k=k, s=s, d=n)
      for d in ("f32", "f16", "bf16")
      for b, h, k, s, n in ((1, 1, 0, 1, 2), (2, 3, 1, 5, 6), (1, 8, 2, 33, 64), (1, 2, 2, 20, 80))),
    case("f32", b=2, h=2, k=1, s=0, d=8),
    case("f32", b=1, h=0, k=2, s=3, d=8),
    case("bf16", b=2, h=4, k=4, s=16, d=64, tables=2),
    case("f16", b=2, h=5, k=3, s=7, d=32, layout="bshd", tables=1),
    case("f32", b=2, h=4, k=2, s=16, d=64),
)  # fmt: skip
CASES = (
    case("bf16", region="rope_rotate_half", b=4, h=32, k=0, s=2048, d=128),
    case("bf16", b=4, h=32, k=8, s=4096, d=128, layout="bshd", tables=1),
)
PEER = case("bf16", "rope_fwd", b=4, h=32, k=8, s=4096, d=128, tables=1)
TENSORS = ("q_ptr", "k_ptr", "u_ptr", "v_ptr", "cos_ptr", "sin_ptr")
STRIDES = (*(f"{t}_{axis}" for t in "qkuv" for axis in ("batch", "head", "step")), "c_batch", "c_step")
SIZES = ("length", "q_heads", "k_heads")
SIGNATURE = dict.fromkeys(TENSORS, "*bf16") | dict.fromkeys((*SIZES, *STRIDES), "i32")
FORMS = ("plain", "strided", "misaligned")
OPERATIONS = (
    Operation(
        name="rope", run=rope, reference=reference, inputs=inputs, cost=cost, checks=CHECKS, cases=(PEER, *CASES),
        loses={
            "bf16 b=4 h=32 k=0 s=2048 d=128":
                "torch.compile takes 34.5 us, this 35.9: of 31.7 at the copy rate. Tried: 2 to 8 heads by 8 to 64 "
                "positions a program (35.8 to 46).",
        },
        beyond=case("bf16", b=130, h=32, k=8, s=4096, d=128, tables=1),
        builds=tuple(Build(v, SIGNATURE, divisible=STRIDES) for v in space(4096, (32, 8), 64, False)[1:2]), forms=FORMS,
    ),
    Operation(
        name="rope_backward", run=rope_backward, reference=backward_reference, inputs=inputs, cost=cost, checks=CHECKS,
        beyond=case("bf16", b=130, h=32, k=8, s=4096, d=128, tables=1),
        cases=(case("bf16", b=4, h=32, k=8, s=4096, d=128, tables=1), *CASES[1:]),
        builds=tuple(Build(v, SIGNATURE, divisible=STRIDES) for v in space(4096, (32, 8), 64, True)[1:2]), forms=FORMS,
    ),
)  # fmt: skip
