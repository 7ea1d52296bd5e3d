"""Linear recurrence along time, each channel by itself: h[t] = a[t] * h[t - 1] + b[t], h[-1] = 0, and its gradients.

Reference: the loop in PyTorch, for more than 256 steps the doubling scan that log2(T) tensor operations make. Traffic
forward: a and b read once, h written once, 3 n itemsize bytes; backward: dh, a and h read, da and db written, 5 n.
Time is cut into segments that lie in different warps of one program: each thread walks its segment in registers and
keeps product and sum, a scan over the segments gives what enters each. Long sequences of few channels are cut into
chunks for several programs as well; a first launch then reads a and b to sum every chunk up: 2 n itemsize more.
An infinite coefficient can make NaN where a strict loop has infinity (infinite product of a segment times zero).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

tuner = Tuner("linear_recurrence")

LOOPED = 256
"""Steps up to which the reference is a loop; torch.compile unrolls it."""


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    if 0 < a.shape[1] <= LOOPED:
        h, states = torch.zeros_like(b[:, 0]), []
        for t in range(b.shape[1]):
            h = a[:, t] * h + b[:, t]
            states.append(h)
        return torch.stack(states, 1)
    step, product, total = 1, a, b
    while step < a.shape[1]:
        total = torch.cat((total[:, :step], total[:, step:] + product[:, step:] * total[:, :-step]), 1)
        product = torch.cat((product[:, :step], product[:, step:] * product[:, :-step]), 1)
        step *= 2
    return total.clone() if total is b else total


def backward_reference(dh: torch.Tensor, a: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What autograd computes of it: the same recurrence backwards in time, and its product with the state before."""
    nothing = torch.zeros_like(a[:, :1])
    g = reference(torch.cat((a[:, 1:], nothing), 1).flip(1), dh.flip(1)).flip(1)
    return g * torch.cat((nothing, h[:, :-1]), 1), g


@triton.jit
def chained(a, x, b, y):
    """Two stretches of time as one: (product, sum) of the earlier, then of the later."""
    return a * b, y + b * x


@triton.jit
def chained_twice(a, x, c, u, b, y, d, v):
    """The same, and next to it all but the last stretch: an inclusive and an exclusive scan in one."""
    return a * b, y + b * x, a * d, v + d * x


@triton.jit
def entering(sums_ptr, batch, chunk, channels, col, inside, CHUNKS: tl.constexpr):
    """The state before this chunk, [BLOCK], from product and sum of every chunk before it."""
    row = tl.arange(0, CHUNKS)[:, None]
    at = sums_ptr + (batch * CHUNKS + row) * 2 * channels + col[None, :]
    before = (row < chunk) & inside[None, :]
    product = tl.load(at, mask=before, other=1.0)
    total = tl.load(at + channels, mask=before, other=0.0)
    product, total = tl.associative_scan((product, total), 0, chained)
    return tl.sum(tl.where(row == CHUNKS - 1, total, 0.0), 0)


@triton.jit
def recurrence_kernel(
    a_ptr, b_ptr, h_ptr, y_ptr, z_ptr, sums_ptr, length, channels, span, STEPS: tl.constexpr, SEGMENTS: tl.constexpr,
    BLOCK: tl.constexpr, CHUNKS: tl.constexpr, PHASE: tl.constexpr, BACKWARD: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """BLOCK channels of one sequence, or of one of its CHUNKS of `span` steps, a program; f32 inside.

    PHASE: 0 all of a sequence; 1 product and sum of a chunk alone, into sums [B, CHUNKS, 2, C]; 2 a chunk with what
    enters it from sums. BACKWARD: a is one step later, b is dh, time runs backwards, y is db and z is da.
    WHOLE: no tile ends outside.
    """
    blocks = tl.cdiv(channels, BLOCK)
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    chunk = tl.program_id(1)
    col = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    present = col < channels
    segment = tl.arange(0, SEGMENTS)[:, None]
    base = batch * length * channels
    first = chunk * span
    last = tl.minimum(first + span, length)
    if PHASE == 2:
        carry = entering(sums_ptr, batch, chunk, channels, col, present, CHUNKS)
    else:
        carry = tl.zeros((BLOCK,), tl.float32)
    through = tl.full((BLOCK,), 1.0, tl.float32)
    for start in range(first, last, SEGMENTS * STEPS):
        factors = ()
        addends = ()
        for u in tl.static_range(STEPS):
            i = start + segment * STEPS + u
            inside = (i < last) & present[None, :]
            if BACKWARD:
                at = base + (length - 1 - i).to(tl.int64) * channels + col[None, :]
                # nothing enters the last step, so that its factor does not matter
                factors = factors + (tl.load(a_ptr + at + channels, mask=inside & (i > 0), other=1.0),)  # noqa: RUF005
            else:
                at = base + i.to(tl.int64) * channels + col[None, :]
                if WHOLE:
                    factors = factors + (tl.load(a_ptr + at),)  # noqa: RUF005 - Triton's tuples know only this
                else:
                    factors = factors + (tl.load(a_ptr + at, mask=inside, other=1.0),)  # noqa: RUF005
            if WHOLE:
                addends = addends + (tl.load(b_ptr + at),)  # noqa: RUF005
            else:
                addends = addends + (tl.load(b_ptr + at, mask=inside, other=0.0),)  # noqa: RUF005
        product = tl.full((SEGMENTS, BLOCK), 1.0, tl.float32)
        # one segment alone goes on from the state itself, step by step as the loop does
        total = tl.zeros((SEGMENTS, BLOCK), tl.float32) + (carry[None, :] if SEGMENTS == 1 else 0.0)
        products = ()
        totals = ()
        for u in tl.static_range(STEPS):
            factor = factors[u].to(tl.float32)
            total = factor * total + addends[u].to(tl.float32)
            product = product * factor
            products = products + (product,)  # noqa: RUF005
            totals = totals + (total,)  # noqa: RUF005
        if SEGMENTS == 1:
            enters = tl.zeros((SEGMENTS, BLOCK), tl.float32)
            carry = tl.sum(total, 0)
            through = through * tl.sum(product, 0)
        else:
            one = tl.full((SEGMENTS, BLOCK), 1.0, tl.float32)
            nothing = tl.zeros((SEGMENTS, BLOCK), tl.float32)
            product, total, before, enters = tl.associative_scan((product, total, one, nothing), 0, chained_twice)
            ends = total + product * carry[None, :]
            enters = enters + before * carry[None, :]
            carry = tl.sum(tl.where(segment == SEGMENTS - 1, ends, 0.0), 0)
            through = through * tl.sum(tl.where(segment == SEGMENTS - 1, product, 0.0), 0)
        if PHASE != 1:
            for u in tl.static_range(STEPS):
                i = start + segment * STEPS + u
                inside = (i < last) & present[None, :]
                state = totals[u]
                if SEGMENTS > 1:
                    state = state + products[u] * enters
                if BACKWARD:
                    at = base + (length - 1 - i).to(tl.int64) * channels + col[None, :]
                    earlier = tl.load(h_ptr + at - channels, mask=inside & (i < length - 1), other=0.0)
                    tl.store(z_ptr + at, state * earlier.to(tl.float32), mask=inside)
                else:
                    at = base + i.to(tl.int64) * channels + col[None, :]
                if WHOLE:
                    tl.store(y_ptr + at, state)
                else:
                    tl.store(y_ptr + at, state, mask=inside)
    if PHASE == 1:
        at = sums_ptr + (batch * CHUNKS + chunk) * 2 * channels + col
        tl.store(at, through, mask=present)
        tl.store(at + channels, carry, mask=present)


TILES = ((8, 1, 128, 4), (32, 1, 32, 1), (16, 8, 32, 8), (32, 4, 32, 4), (8, 16, 32, 4), (16, 4, 64, 4))
"""Steps of a segment, segments, channels, warps."""
MOST_CHUNKS = 64
PROGRAMS = 1024
"""About as many as keep every multiprocessor of a large GPU full."""


def variant(
    shape: tuple[int, ...], backward: bool, steps: int, segments: int, block: int, warps: int, chunks: int = 1
) -> Variant:
    """One way to launch for tensors [B, T, C] of this shape; block and chunks are powers of two."""
    whole = shape[2] % block == 0 and shape[1] % (chunks * steps * segments) == 0
    follows = (("PHASE", 2 if chunks > 1 else 0), ("BACKWARD", backward), ("WHOLE", whole))
    tile = (("STEPS", steps), ("SEGMENTS", segments), ("BLOCK", block), ("CHUNKS", chunks))
    # factors, addends or totals, and products of a thread, and what its addresses need
    registers = 40 + 3 * steps * max(1, segments * block // (32 * warps))
    tuned = ("STEPS", "SEGMENTS", "BLOCK", "CHUNKS")
    return Variant(recurrence_kernel, (*tile, *follows), warps, tuned=tuned, registers=registers)


def space(shape: tuple[int, ...], backward: bool) -> list[Variant]:
    """Variants worth timing: of one launch, and where that leaves multiprocessors idle, of chunks."""
    batches, length, channels = shape
    variants = []
    for steps, segments, block, warps in TILES:
        width = min(block, triton.next_power_of_2(channels))
        variants.append(variant(shape, backward, steps, segments, width, warps))
        programs = batches * triton.cdiv(channels, width)
        chunks = min(MOST_CHUNKS, triton.cdiv(PROGRAMS, programs), length // (2 * steps * segments))
        if chunks >= 2 and segments > 4:
            chunks = 1 << (chunks.bit_length() - 1)
            variants.append(variant(shape, backward, steps, segments, width, warps, chunks))
    return list(dict.fromkeys(variants))


def launch(
    variant: Variant, a: torch.Tensor, b: torch.Tensor, h: torch.Tensor, y: torch.Tensor, z: torch.Tensor
) -> None:
    """Run one variant on contiguous a, b [B, T, C] into y; backward: on a, dh, h into db and da."""
    batches, length, channels = a.shape
    chunks, round_of = variant["CHUNKS"], variant["STEPS"] * variant["SEGMENTS"]
    span = triton.cdiv(triton.cdiv(length, chunks), round_of) * round_of
    grid = (batches * triton.cdiv(channels, variant["BLOCK"]), chunks)
    sums = a
    if chunks > 1:
        sums = torch.empty((batches, chunks, 2, channels), dtype=torch.float32, device=a.device)
        meta = {**variant.meta, "PHASE": 1}
        recurrence_kernel[grid](a, b, h, y, z, sums, length, channels, span, **meta)
    recurrence_kernel[grid](a, b, h, y, z, sums, length, channels, span, **variant.meta)


def _run(a: torch.Tensor, b: torch.Tensor, h: torch.Tensor, y: torch.Tensor, z: torch.Tensor, backward: bool) -> None:
    if not y.numel():
        return
    made = (a.contiguous(), b.contiguous(), h.contiguous(), y, z)
    key = (*a.shape, a.dtype, backward)
    launch(tuner.pick(key, lambda: space(tuple(a.shape), backward), launch, *made), *made)


def _checked(*tensors: torch.Tensor) -> None:
    if any(t.dtype not in DTYPES or t.dtype != tensors[0].dtype for t in tensors):
        raise TypeError(f"all are f32, f16 or bf16 alike, not {', '.join(str(t.dtype) for t in tensors)}")
    if any(t.dim() != 3 or t.shape != tensors[0].shape for t in tensors):
        raise ValueError(f"all have one shape [B, T, C], not {', '.join(str([*t.shape]) for t in tensors)}")


def linear_recurrence(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """h [B, T, C] with h[:, t] = a[:, t] * h[:, t - 1] + b[:, t] from zero; f32, f16 or bf16 alike, computed in f32.

    Strided tensors are copied. Raises TypeError for other dtypes, ValueError for other shapes.
    """
    _checked(a, b)
    h = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    _run(a, b, a, h, h, False)
    return h


def linear_recurrence_backward(dh: torch.Tensor, a: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of a and b from dh [B, T, C], where h is what forward gave; dtypes and errors as forward."""
    _checked(dh, a, h)
    da, db = (torch.empty(a.shape, dtype=a.dtype, device=a.device) for _ in range(2))
    _run(a, dh, h, db, da, True)
    return da, db


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor]:
    """Arguments to try it on."""
    shape = (c["b"], c["t"], c["c"])
    return make.normal(shape, c.torch_dtype), make.normal(shape, c.torch_dtype)


def backward_inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Arguments to try the backward on: any h will do."""
    return (*inputs(c, make), make.normal((c["b"], c["t"], c["c"]), c.torch_dtype))


SIZES = ((0, 3, 4), (1, 1, 1), (1, 27, 5), (2, 8, 140))
CHECKS = (
    *(case(d, b=b, t=t, c=c) for d in ("f32", "f16", "bf16") for b, t, c in SIZES),
    case("f32", b=2, t=0, c=3),
    case("f32", b=1, t=64, c=33),
    case("f32", b=2, t=30, c=48),
)
CASES = (case("f32", b=8, t=4096, c=2048), case("bf16", b=8, t=4096, c=2048), case("f32", b=1, t=65536, c=1024))
POINTERS = ("a_ptr", "b_ptr", "h_ptr", "y_ptr", "z_ptr", "sums_ptr")
SIGNATURE = dict.fromkeys(POINTERS, "*fp32") | dict.fromkeys(("length", "channels", "span"), "i32")


def builds(backward: bool) -> tuple[Build, ...]:
    """The region's, and both phases of a sequence in chunks."""
    chunked = next(v for v in space((1, 65536, 1024), backward) if v["CHUNKS"] > 1)
    summed = Variant(
        chunked.kernel, tuple((n, 1 if n == "PHASE" else v) for n, v in chunked.constants), chunked.warps
    )  # fmt: skip
    variants = (*space((64, 128, 256), backward)[:4], chunked, summed)
    return tuple(Build(v, SIGNATURE, divisible=("length", "channels", "span")) for v in variants)


OPERATIONS = (
    Operation(
        name="linear_recurrence", run=linear_recurrence, reference=reference, inputs=inputs,
        beyond=case("bf16", b=260, t=4096, c=2048),
        cost=lambda c: Cost(bytes=3 * c["b"] * c["t"] * c["c"] * c.itemsize), checks=CHECKS,
        cases=(case("f32", region="linear_recurrence_loop", b=64, t=128, c=256), *CASES), builds=builds(False),
    ),
    Operation(
        name="linear_recurrence_backward", run=linear_recurrence_backward, reference=backward_reference,
        beyond=case("bf16", b=260, t=4096, c=2048),
        inputs=backward_inputs, cost=lambda c: Cost(bytes=5 * c["b"] * c["t"] * c["c"] * c.itemsize), checks=CHECKS,
        cases=(case("f32", b=64, t=128, c=256), *CASES), builds=builds(True),
    ),
)  # fmt: skip
