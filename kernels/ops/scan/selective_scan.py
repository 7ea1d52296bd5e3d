"""Selective scan, the recurrence of Mamba: a state of N numbers a channel, decayed and fed by what each step says.

h[t] = exp(delta[t] * A) * h[t - 1] + delta[t] * B[t] * x[t], y[t] = C[t] . h[t] + D * x[t], times silu(z[t]); delta is
dt + bias, through softplus where it is asked for. Forward and backward.

Traffic forward: x, dt, z read, y written, B and C small: 4 n itemsize bytes; backward: dy too, and three gradients
written, 7 n. One exponential for each of N states a step (three backward) is more than the bytes on a Hopper GPU, where
a multiprocessor makes 16 a clock: N = 16 states of bf16 take twice as long as their bytes.

Each thread walks one channel and holds its N states, so that the sum over states needs no other thread (those of more
than fit its registers are shared among lanes, and warps), and channels lie side by side in memory: tensors with time
side by side are copied first. Few channels of a long sequence are cut
into CHUNKS: a first launch leaves what each chunk makes of no state, and the sum of its delta, by which any state
decays through it; a second one puts in front of a chunk what comes of those before it.

The backward walks a sequence twice: forwards, leaving the state every STEPS steps, then backwards from one of these to
the one before, with the states between in registers (N * STEPS of them: all variants spill some). In chunks it has a
launch before, which leaves of each chunk also what it hands back of no gradient behind it. Gradients of B and C, sums
over channels, are written by each program and added in a fixed order, as those of A, D and the bias are. What nobody
wants is not made.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.ops.scan import linear_recurrence as recurrence
from kernels.ops.shared.activations import activation, activation_and_slope
from kernels.ops.shared.rows import DTYPES, held_dtype
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

Tensor = torch.Tensor

MOST_STATES = 256
MOST_CHUNKS = 64
ALL = 255
"""Gradients wanted, a bit for each argument in order: x, dt, A, B, C, D, z, bias."""
MOST_REGISTERS = 255
PROGRAMS = 132 * 8
"""Warps that keep a large GPU busy."""
tuner = Tuner("selective_scan")
backward_tuner = Tuner("selective_scan_backward")


def _steps(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, bias: Tensor | None, softplus: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x, delta [B, T, C], B [B, T, N], factors and addends of the recurrence [B, T, C * N], all in f32 or wider."""
    u, raw, b = wide(x).transpose(1, 2), wide(dt).transpose(1, 2), wide(b).transpose(1, 2)
    raw = raw if bias is None else raw + bias
    delta = F.softplus(raw) if softplus else raw
    factors = torch.exp(delta[..., None] * a).flatten(2)
    return u, delta, b, factors, ((delta * u)[..., None] * b[:, :, None]).flatten(2)


def reference(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None = None, z: Tensor | None = None,
    bias: Tensor | None = None, softplus: bool = False, final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """What is computed, in plain PyTorch."""
    u, _, _, factors, addends = _steps(x, dt, a, b, bias, softplus)
    h = recurrence.reference(factors, addends).unflatten(2, a.shape)
    y = (h * wide(c).transpose(1, 2)[:, :, None]).sum(-1)
    y = y if skip is None else y + skip * u
    y = y if z is None else y * F.silu(wide(z).transpose(1, 2))
    y = y.transpose(1, 2).to(x.dtype)
    return (y, h[:, -1].clone()) if final else y


def backward_reference(
    dy: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None = None,
    z: Tensor | None = None, bias: Tensor | None = None, softplus: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What autograd computes of it: gradients in the order of the arguments, of those that are given."""
    u, delta, wide_b, factors, addends = _steps(x, dt, a, b, bias, softplus)
    h = recurrence.reference(factors, addends)
    up, wide_c = wide(dy).transpose(1, 2), wide(c).transpose(1, 2)
    states = h.unflatten(2, a.shape)
    dz = None
    if z is not None:
        gate = wide(z).transpose(1, 2)
        before = (states * wide_c[:, :, None]).sum(-1) + (0.0 if skip is None else skip * u)
        dz = torch.ops.aten.silu_backward(up * before, gate)
        up = up * F.silu(gate)
    dfactors, g = recurrence.backward_reference((up[..., None] * wide_c[:, :, None]).flatten(2), factors, h)
    g = g.unflatten(2, a.shape)
    decayed = dfactors.unflatten(2, a.shape) * factors.unflatten(2, a.shape)
    fed = (g * wide_b[:, :, None]).sum(-1)
    ddelta = (decayed * a).sum(-1) + fed * u
    if softplus:
        raw = wide(dt).transpose(1, 2)
        ddelta = ddelta * torch.sigmoid(raw if bias is None else raw + bias)
    dx = fed * delta if skip is None else fed * delta + skip * up
    db, dc = (g * (delta * u)[..., None]).sum(2), (up[..., None] * states).sum(2)
    da = (decayed * delta[..., None]).sum((0, 1))
    made = [dx.transpose(1, 2).to(x.dtype), ddelta.transpose(1, 2).to(dt.dtype), da,
            db.transpose(1, 2).to(b.dtype), dc.transpose(1, 2).to(c.dtype)]  # fmt: skip
    if skip is not None:
        made.append((up * u).sum((0, 1)))
    if dz is not None:
        made.append(dz.transpose(1, 2).to(x.dtype))
    if bias is not None:
        made.append(ddelta.sum((0, 1)))
    return tuple(made)


@triton.jit
def delta_of(raw, there, SOFT: tl.constexpr):
    """delta and its slope, both 0 where there is no step: nothing decays and nothing comes in.

    log(1 + e) to the last digit also of a small e: what rounding adds to 1 + e is divided out again.
    """
    if SOFT:
        e = tl.exp2(tl.minimum(raw, 20.0) * 1.4426950408889634)
        more = 1.0 + e
        near = tl.where(more == 1.0, e, tl.log2(more) * 0.6931471805599453 * (e / tl.maximum(more - 1.0, 1e-30)))
        delta = tl.where(raw > 20.0, raw, near)
        slope = tl.where(raw > 20.0, 1.0, e / more)
    else:
        delta = raw
        slope = raw * 0.0 + 1.0
    return tl.where(there, delta, 0.0), tl.where(there, slope, 0.0)


@triton.jit
def scan_kernel(
    x_ptr, d_ptr, a_ptr, b_ptr, c_ptr, k_ptr, z_ptr, o_ptr, y_ptr, f_ptr, s_ptr, p_ptr, channels, steps, span, x_b,
    x_t, d_b, d_t, z_b, z_t, y_b, y_t, b_b, b_n, b_t, c_b, c_n, c_t, N: tl.constexpr, NP: tl.constexpr,
    BLOCK: tl.constexpr, STEPS: tl.constexpr, CHUNKS: tl.constexpr, PHASE: tl.constexpr, SKIP: tl.constexpr,
    GATE: tl.constexpr, BIAS: tl.constexpr, SOFT: tl.constexpr, FINAL: tl.constexpr,
):  # fmt: skip
    """BLOCK channels of one sequence, or of one of its CHUNKS of `span` steps.

    k: D; o: bias; f: final state [B, C, N]; s, p: of each chunk its state [B, CHUNKS, N, C] and its sum of delta
    [B, CHUNKS, C]. PHASE: 0 all of a sequence; 1 s and p of a chunk; 2 a chunk behind those before it.
    """
    chunk = tl.program_id(0) % CHUNKS
    blocks = tl.cdiv(channels, BLOCK)
    batch = (tl.program_id(0) // CHUNKS // blocks).to(tl.int64)
    col = (tl.program_id(0) // CHUNKS % blocks) * BLOCK + tl.arange(0, BLOCK)
    here = col < channels
    n = tl.arange(0, NP)[:, None]
    kept = (n < N) & here[None, :]
    lo = chunk * span
    hi = tl.minimum(lo + span, steps)
    rate = tl.load(a_ptr + col[None, :] * N + n, mask=kept, other=0.0) * 1.4426950408889634
    bias = tl.load(o_ptr + col, mask=here, other=0.0).to(tl.float32) if BIAS else 0.0
    skip = tl.load(k_ptr + col, mask=here, other=0.0).to(tl.float32) if SKIP else 0.0
    at_x = x_ptr + batch * x_b + lo.to(tl.int64) * x_t + col
    at_d = d_ptr + batch * d_b + lo.to(tl.int64) * d_t + col
    at_z = z_ptr + batch * z_b + lo.to(tl.int64) * z_t + col
    at_y = y_ptr + batch * y_b + lo.to(tl.int64) * y_t + col
    at_b = b_ptr + batch * b_b + lo.to(tl.int64) * b_t + n.to(tl.int64) * b_n
    at_c = c_ptr + batch * c_b + lo.to(tl.int64) * c_t + n.to(tl.int64) * c_n
    h = tl.zeros((NP, BLOCK), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    if PHASE == 2:
        for before in range(0, chunk):
            past = batch * CHUNKS + before
            gone = tl.load(p_ptr + past * channels + col, mask=here, other=0.0)
            state = tl.load(s_ptr + (past * N + n) * channels + col[None, :], mask=kept, other=0.0)
            h = tl.exp2(rate * gone[None, :]) * h + state
    for t in range(lo, hi, STEPS):
        inputs = ()
        deltas = ()
        for u in tl.static_range(STEPS):
            there = here & (t + u < hi)
            inputs = inputs + (tl.load(at_x + u * x_t, mask=there, other=0.0).to(tl.float32),)  # noqa: RUF005
            raw = tl.load(at_d + u * d_t, mask=there, other=0.0).to(tl.float32) + bias
            delta, _ = delta_of(raw, there, SOFT)
            deltas = deltas + (delta,)  # noqa: RUF005 - Triton's tuples know only this
        for u in tl.static_range(STEPS):
            there = here & (t + u < hi)
            fed = tl.load(at_b + u * b_t, mask=(n < N) & (t + u < hi), other=0.0).to(tl.float32)
            h = tl.exp2(rate * deltas[u][None, :]) * h + (deltas[u] * inputs[u])[None, :] * fed
            if PHASE == 1:
                total += deltas[u]
            else:
                seen = tl.load(at_c + u * c_t, mask=(n < N) & (t + u < hi), other=0.0).to(tl.float32)
                y = tl.sum(h * seen, 0) + skip * inputs[u]
                if GATE:
                    gate = tl.load(at_z + u * z_t, mask=there, other=0.0).to(tl.float32)
                    y = y * activation(gate, "silu")
                tl.store(at_y + u * y_t, y, mask=there)
        at_x += STEPS * tl.cast(x_t, tl.int64)
        at_d += STEPS * tl.cast(d_t, tl.int64)
        at_z += STEPS * tl.cast(z_t, tl.int64)
        at_y += STEPS * tl.cast(y_t, tl.int64)
        at_b += STEPS * tl.cast(b_t, tl.int64)
        at_c += STEPS * tl.cast(c_t, tl.int64)
    if PHASE == 1:
        mine = batch * CHUNKS + chunk
        tl.store(s_ptr + (mine * N + n) * channels + col[None, :], h, mask=kept)
        tl.store(p_ptr + mine * channels + col, total, mask=here)
    elif FINAL:
        if hi == steps:
            tl.store(f_ptr + (batch * channels + col[None, :]) * N + n, h, mask=kept & (lo < steps))


@triton.jit
def chunk_ends_kernel(
    g_ptr, x_ptr, d_ptr, a_ptr, b_ptr, c_ptr, z_ptr, o_ptr, s_ptr, r_ptr, p_ptr, channels, steps, span, g_b, g_t, x_b,
    x_t, d_b, d_t, z_b, z_t, b_b, b_n, b_t, c_b, c_n, c_t, N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr,
    STEPS: tl.constexpr, CHUNKS: tl.constexpr, GATE: tl.constexpr, BIAS: tl.constexpr, SOFT: tl.constexpr,
):  # fmt: skip
    """Of BLOCK channels of a chunk: s and p as `scan_kernel` has them, and r, like s, the gradient of the state before.

    That is the sum of what each step hands back, decayed by the steps up to it: so it is found walking forwards too.
    """
    chunk = tl.program_id(0) % CHUNKS
    blocks = tl.cdiv(channels, BLOCK)
    batch = (tl.program_id(0) // CHUNKS // blocks).to(tl.int64)
    col = (tl.program_id(0) // CHUNKS % blocks) * BLOCK + tl.arange(0, BLOCK)
    here = col < channels
    n = tl.arange(0, NP)[:, None]
    kept = (n < N) & here[None, :]
    lo = chunk * span
    hi = tl.minimum(lo + span, steps)
    rate = tl.load(a_ptr + col[None, :] * N + n, mask=kept, other=0.0) * 1.4426950408889634
    bias = tl.load(o_ptr + col, mask=here, other=0.0).to(tl.float32) if BIAS else 0.0
    x_ptr += batch * x_b + col
    d_ptr += batch * d_b + col
    z_ptr += batch * z_b + col
    g_ptr += batch * g_b + col
    b_ptr += batch * b_b + n.to(tl.int64) * b_n
    c_ptr += batch * c_b + n.to(tl.int64) * c_n
    h = tl.zeros((NP, BLOCK), tl.float32)
    back = tl.zeros((NP, BLOCK), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(lo, hi, STEPS):
        for u in tl.static_range(STEPS):
            t = tl.cast(first + u, tl.int64)
            there = here & (t < hi)
            inside = (n < N) & (t < hi)
            x = tl.load(x_ptr + t * x_t, mask=there, other=0.0).to(tl.float32)
            delta, _ = delta_of(tl.load(d_ptr + t * d_t, mask=there, other=0.0).to(tl.float32) + bias, there, SOFT)
            fed = tl.load(b_ptr + t * b_t, mask=inside, other=0.0).to(tl.float32)
            seen = tl.load(c_ptr + t * c_t, mask=inside, other=0.0).to(tl.float32)
            up = tl.load(g_ptr + t * g_t, mask=there, other=0.0).to(tl.float32)
            if GATE:
                up = up * activation(tl.load(z_ptr + t * z_t, mask=there, other=0.0).to(tl.float32), "silu")
            total += delta
            h = tl.exp2(rate * delta[None, :]) * h + (delta * x)[None, :] * fed
            back += tl.exp2(rate * total[None, :]) * (up[None, :] * seen)
    mine = batch * CHUNKS + chunk
    tl.store(s_ptr + (mine * N + n) * channels + col[None, :], h, mask=kept)
    tl.store(r_ptr + (mine * N + n) * channels + col[None, :], back, mask=kept)
    tl.store(p_ptr + mine * channels + col, total, mask=here)


@triton.jit
def scan_backward_kernel(
    g_ptr, x_ptr, d_ptr, a_ptr, b_ptr, c_ptr, k_ptr, z_ptr, o_ptr, dx_ptr, dd_ptr, dz_ptr, da_ptr, db_ptr, dc_ptr,
    dk_ptr, do_ptr, h_ptr, s_ptr, r_ptr, p_ptr, channels, steps, span, g_b, g_t, x_b, x_t, d_b, d_t, z_b, z_t, y_b,
    y_t, b_b, b_n, b_t, c_b, c_n, c_t, N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr,
    CHUNKS: tl.constexpr, SKIP: tl.constexpr, GATE: tl.constexpr, BIAS: tl.constexpr, SOFT: tl.constexpr,
    WANTED: tl.constexpr,
):  # fmt: skip
    """BLOCK channels of one sequence, or of one of its CHUNKS of `span` steps, a multiple of STEPS.

    g: dy; dx, dd, dz: strides y; da [B, CHUNKS, N, C]; db, dc: [B, blocks, T, N], in f32. dk, do: of D and bias,
    [B, CHUNKS, C]. h: room for the states before every STEPS steps, [B, T / STEPS, N, C]. s, r, p: of
    `chunk_ends_kernel`. WANTED: bits as in ALL.
    """
    chunk = tl.program_id(0) % CHUNKS
    blocks = tl.cdiv(channels, BLOCK)
    batch = (tl.program_id(0) // CHUNKS // blocks).to(tl.int64)
    block = tl.program_id(0) // CHUNKS % blocks
    col = block * BLOCK + tl.arange(0, BLOCK)
    here = col < channels
    n = tl.arange(0, NP)[:, None]
    row = tl.arange(0, NP)
    kept = (n < N) & here[None, :]
    rate = tl.load(a_ptr + col[None, :] * N + n, mask=kept, other=0.0)
    fast = rate * 1.4426950408889634
    bias = tl.load(o_ptr + col, mask=here, other=0.0).to(tl.float32) if BIAS else 0.0
    skip = tl.load(k_ptr + col, mask=here, other=0.0).to(tl.float32) if SKIP else 0.0
    lo = chunk * span
    start = lo // STEPS
    rounds = tl.cdiv(tl.maximum(tl.minimum(lo + span, steps) - lo, 0), STEPS)
    x_ptr += batch * x_b + col
    d_ptr += batch * d_b + col
    z_ptr += batch * z_b + col
    g_ptr += batch * g_b + col
    dx_ptr += batch * y_b + col
    dd_ptr += batch * y_b + col
    dz_ptr += batch * y_b + col
    b_ptr += batch * b_b + n.to(tl.int64) * b_n
    c_ptr += batch * c_b + n.to(tl.int64) * c_n
    h_ptr += ((batch * tl.cdiv(steps, STEPS) + start) * N + n) * channels + col[None, :]
    db_ptr += (batch * blocks + block) * steps * N + row
    dc_ptr += (batch * blocks + block) * steps * N + row
    h = tl.zeros((NP, BLOCK), tl.float32)
    back = tl.zeros((NP, BLOCK), tl.float32)  # the gradient of the state behind the step
    if CHUNKS > 1:
        for before in range(0, chunk):
            past = batch * CHUNKS + before
            gone = tl.load(p_ptr + past * channels + col, mask=here, other=0.0)
            made = tl.load(s_ptr + (past * N + n) * channels + col[None, :], mask=kept, other=0.0)
            h = tl.exp2(fast * gone[None, :]) * h + made
        for j in range(0, CHUNKS - 1 - chunk):
            later = batch * CHUNKS + (CHUNKS - 1 - j)
            gone = tl.load(p_ptr + later * channels + col, mask=here, other=0.0)
            made = tl.load(r_ptr + (later * N + n) * channels + col[None, :], mask=kept, other=0.0)
            back = tl.exp2(fast * gone[None, :]) * back + made
    for i in range(0, rounds):
        tl.store(h_ptr + i * tl.cast(N, tl.int64) * channels, h, mask=kept)
        for u in tl.static_range(STEPS):
            t = tl.cast(lo + i * STEPS + u, tl.int64)
            there = here & (t < steps)
            x = tl.load(x_ptr + t * x_t, mask=there, other=0.0).to(tl.float32)
            delta, _ = delta_of(tl.load(d_ptr + t * d_t, mask=there, other=0.0).to(tl.float32) + bias, there, SOFT)
            fed = tl.load(b_ptr + t * b_t, mask=(n < N) & (t < steps), other=0.0).to(tl.float32)
            h = tl.exp2(fast * delta[None, :]) * h + (delta * x)[None, :] * fed
    tl.debug_barrier()
    rates = tl.zeros((NP, BLOCK), tl.float32)
    skips = tl.zeros((BLOCK,), tl.float32)
    biases = tl.zeros((BLOCK,), tl.float32)
    for j in range(0, rounds):
        i = rounds - 1 - j
        state = tl.load(h_ptr + i * tl.cast(N, tl.int64) * channels, mask=kept, other=0.0)
        states = ()
        for u in tl.static_range(STEPS):
            t = tl.cast(lo + i * STEPS + u, tl.int64)
            there = here & (t < steps)
            x = tl.load(x_ptr + t * x_t, mask=there, other=0.0).to(tl.float32)
            delta, _ = delta_of(tl.load(d_ptr + t * d_t, mask=there, other=0.0).to(tl.float32) + bias, there, SOFT)
            fed = tl.load(b_ptr + t * b_t, mask=(n < N) & (t < steps), other=0.0).to(tl.float32)
            states = states + (state,)  # noqa: RUF005
            state = tl.exp2(fast * delta[None, :]) * state + (delta * x)[None, :] * fed
        for v in tl.static_range(STEPS):
            t = tl.cast(lo + i * STEPS + STEPS - 1 - v, tl.int64)
            there = here & (t < steps)
            inside = (n < N) & (t < steps)
            x = tl.load(x_ptr + t * x_t, mask=there, other=0.0).to(tl.float32)
            raw = tl.load(d_ptr + t * d_t, mask=there, other=0.0).to(tl.float32) + bias
            delta, slope = delta_of(raw, there, SOFT)
            fed = tl.load(b_ptr + t * b_t, mask=inside, other=0.0).to(tl.float32)
            seen = tl.load(c_ptr + t * c_t, mask=inside, other=0.0).to(tl.float32)
            up = tl.load(g_ptr + t * g_t, mask=there, other=0.0).to(tl.float32)
            if GATE:
                gate, rise = activation_and_slope(
                    tl.load(z_ptr + t * z_t, mask=there, other=0.0).to(tl.float32), "silu"
                )  # fmt: skip
                if WANTED & 64:
                    y = tl.sum(state * seen, 0) + skip * x
                    tl.store(dz_ptr + t * y_t, up * y * rise, mask=there)
                up = up * gate
            if WANTED & 16:
                tl.store(dc_ptr + t * N, tl.sum(up[None, :] * state, 1), mask=(row < N) & (t < steps))
            if WANTED & 32:
                skips += up * x
            own = back + up[None, :] * seen
            if WANTED & 8:
                tl.store(db_ptr + t * N, tl.sum(own * (delta * x)[None, :], 1), mask=(row < N) & (t < steps))
            back = own * tl.exp2(fast * delta[None, :])
            decayed = back * states[STEPS - 1 - v]
            if WANTED & 4:
                rates += decayed * delta[None, :]
            brought = tl.sum(own * fed, 0)
            if WANTED & 130:
                ddelta = (tl.sum(decayed * rate, 0) + brought * x) * slope
                biases += ddelta
                if WANTED & 2:
                    tl.store(dd_ptr + t * y_t, ddelta, mask=there)
            if WANTED & 1:
                tl.store(dx_ptr + t * y_t, brought * delta + skip * up, mask=there)
            state = states[STEPS - 1 - v]
    mine = batch * CHUNKS + chunk
    if WANTED & 4:
        tl.store(da_ptr + (mine * N + n) * channels + col[None, :], rates, mask=kept)
    if WANTED & 32:
        tl.store(dk_ptr + mine * channels + col, skips, mask=here)
    if WANTED & 128:
        tl.store(do_ptr + mine * channels + col, biases, mask=here)


FORWARD_SHAPES = ((1, 8), (1, 4), (2, 8), (4, 4), (1, 16))
BACKWARD_SHAPES = ((1, 4), (1, 8), (2, 4), (1, 2))
SHARED_SHAPES = ((4, 2), (8, 2))
"""Warps and steps at once; with the last ones too where lanes share a channel's states, so that a program has more."""


def space(
    shape: tuple[int, int, int], states: int, settings: tuple[tuple[str, Any], ...], forward: bool
) -> list[Variant]:
    """Variants worth timing for x [B, C, T]: a thread a channel, or as many as its states need; chunks where that
    leaves a GPU idle. settings: of `_settings`, then FINAL forward and WANTED backward.
    """
    batches, channels, steps = shape
    padded = triton.next_power_of_2(states)
    variants = []
    crowded = padded * 6 + 60 > MOST_REGISTERS
    for warps, length in FORWARD_SHAPES if forward else (*BACKWARD_SHAPES, *(SHARED_SHAPES if crowded else ())):
        each, fixed_ones = 3 if forward else length + 4, 60 + 4 * length
        lanes = 1
        while lanes < 32 and padded // lanes * each + fixed_ones > MOST_REGISTERS:
            lanes *= 2
        block = 32 * warps // lanes
        programs = batches * triton.cdiv(channels, block)
        registers = fixed_ones + padded // lanes * each
        fixed = (("N", states), ("NP", padded), ("BLOCK", block), ("STEPS", length))
        chunks = min(MOST_CHUNKS, triton.cdiv(PROGRAMS, programs * warps), steps // (8 * length))
        for cut in sorted({1, 1 << (max(1, chunks).bit_length() - 1), 2 << (max(1, chunks).bit_length() - 1)}):
            if cut == 1 or (chunks >= 2 and cut <= MOST_CHUNKS):
                phase = (("PHASE", 2 if cut > 1 else 0),) if forward else ()
                constants = (*fixed, ("CHUNKS", cut), *phase, *settings)
                kernel, tuned = scan_kernel if forward else scan_backward_kernel, ("BLOCK", "STEPS", "CHUNKS")
                variants.append(Variant(kernel, constants, warps, tuned=tuned, registers=registers))
    return list(dict.fromkeys(variants))


def _span(variant: Variant, steps: int) -> int:
    """Steps of a chunk, whole rounds of them."""
    return int(triton.cdiv(triton.cdiv(steps, variant["CHUNKS"]), variant["STEPS"]) * variant["STEPS"])


def launch(
    variant: Variant, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None, z: Tensor | None,
    bias: Tensor | None, y: Tensor, end: Tensor | None,
) -> None:  # fmt: skip
    """Run one variant on x, dt, z [B, C, T] with channels side by side, a [C, N] f32, into y and the final state."""
    batches, channels, steps = x.shape
    chunks, states = variant["CHUNKS"], variant["N"]
    sums = times = a
    if chunks > 1:
        sums = torch.empty((batches, chunks, states, channels), dtype=torch.float32, device=x.device)
        times = torch.empty((batches, chunks, channels), dtype=torch.float32, device=x.device)
    gate = x if z is None else z
    arguments = (
        x, dt, a, b, c, a if skip is None else skip, gate, a if bias is None else bias, y, y if end is None else end,
        sums, times, channels, steps, _span(variant, steps),
        *(s for t in (x, dt, gate, y) for s in (t.stride(0), t.stride(2))), *b.stride(), *c.stride(),
    )  # fmt: skip
    grid = (batches * triton.cdiv(channels, variant["BLOCK"]) * chunks,)
    if chunks > 1:
        scan_kernel[grid](*arguments, **{**variant.meta, "PHASE": 1})
    scan_kernel[grid](*arguments, **variant.meta)


def launch_backward(
    variant: Variant, dy: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None,
    z: Tensor | None, bias: Tensor | None, *made: Tensor | None,
) -> None:  # fmt: skip
    """Run one variant into dx, ddt, dz of one layout, and f32 da [N, C], db, dc [B, T, N], dD and dbias [C].

    What the variant's WANTED leaves out may be None. The layout is [B, T, C], contiguous, turned.
    """
    batches, channels, steps = x.shape
    chunks, states, blocks = variant["CHUNKS"], variant["N"], triton.cdiv(channels, variant["BLOCK"])

    def room(*size: int) -> Tensor:
        return torch.empty(size, dtype=torch.float32, device=x.device)

    sizes = ((batches * chunks, states, channels), *((batches, blocks, steps, states),) * 2,
             *((batches * chunks, channels),) * 2)  # fmt: skip
    parts = [None if into is None else room(*size) for into, size in zip(made[3:], sizes, strict=True)]
    gate, shift = x if z is None else z, a if bias is None else bias
    span, grid = _span(variant, steps), (batches * blocks * chunks,)
    ends = (a, a, a)
    if chunks > 1:
        ends = (*(room(batches, chunks, states, channels) for _ in range(2)), room(batches, chunks, channels))
        strides = tuple(s for t in (dy, x, dt, gate) for s in (t.stride(0), t.stride(2)))
        meta = {n: v for n, v in variant.meta.items() if n not in ("SKIP", "WANTED")}
        chunk_ends_kernel[grid](
            dy, x, dt, a, b, c, gate, shift, *ends, channels, steps, span, *strides, *b.stride(), *c.stride(), **meta
        )
    rounds = triton.cdiv(steps, variant["STEPS"])
    scan_backward_kernel[grid](
        dy, x, dt, a, b, c, a if skip is None else skip, gate, shift, *(a if t is None else t for t in made[:3]),
        *(a if t is None else t for t in parts), room(batches, rounds, states, channels), *ends, channels, steps, span,
        *(s for t in (dy, x, dt, gate) for s in (t.stride(0), t.stride(2))), steps * channels, channels, *b.stride(),
        *c.stride(), **variant.meta,
    )  # fmt: skip
    for part, into, axis in zip(parts, made[3:], (0, 1, 1, 0, 0), strict=True):
        if part is not None:
            torch.sum(part, axis, out=into)


def refuse(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None, z: Tensor | None, bias: Tensor | None
) -> None:
    """Raises TypeError or ValueError for what selective_scan does not take."""
    along = [t for t in (x, dt, b, c, z) if t is not None]
    if any(t.dtype not in DTYPES for t in along) or (z is not None and z.dtype != x.dtype):
        raise TypeError(f"x, dt, B, C and z are f32, f16 or bf16, z as x, not {', '.join(str(t.dtype) for t in along)}")
    vectors = [t for t in (a, skip, bias) if t is not None]
    if any(t.dtype != torch.float32 for t in vectors):
        raise TypeError(f"A, D and the bias are f32, not {', '.join(str(t.dtype) for t in vectors)}")
    if x.dim() != 3 or dt.shape != x.shape or (z is not None and z.shape != x.shape):
        raise ValueError(f"x, dt and z are [B, C, T] alike, not {[*x.shape]}, {[*dt.shape]}")
    batch, channels, steps = x.shape
    if a.dim() != 2 or a.shape[0] != channels or not 1 <= a.shape[1] <= MOST_STATES:
        raise ValueError(f"A is [{channels}, 1 to {MOST_STATES}], not {[*a.shape]}")
    if b.shape != (batch, a.shape[1], steps) or c.shape != b.shape:
        raise ValueError(f"B and C are {[batch, a.shape[1], steps]}, not {[*b.shape]} and {[*c.shape]}")
    if any(t.shape != (channels,) for t in (skip, bias) if t is not None):
        raise ValueError(f"D and the bias are [{channels}]")
    if not steps:
        raise ValueError("selective_scan takes a step or more")


def _side_by_side(x: Tensor) -> Tensor:
    """x [B, C, T] with its channels side by side: a copy where they are not."""
    fits = x.stride(1) == 1 and x.stride(2) >= x.shape[1] and x.stride(0) > 0
    return x if fits else x.transpose(1, 2).contiguous().transpose(1, 2)


def _empty(x: Tensor) -> Tensor:
    batch, channels, steps = x.shape
    return torch.empty((batch, steps, channels), dtype=held_dtype(x.dtype), device=x.device).transpose(1, 2)


def _settings(skip: object, z: object, bias: object, softplus: bool) -> tuple[tuple[str, Any], ...]:
    return ("SKIP", skip is not None), ("GATE", z is not None), ("BIAS", bias is not None), ("SOFT", softplus)


def selective_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None = None, z: Tensor | None = None,
    bias: Tensor | None = None, softplus: bool = False, final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """y [B, C, T] of x and dt [B, C, T], a [C, N], b and c [B, N, T], D (`skip`) and bias [C], gate z [B, C, T].

    As mamba_ssm's selective_scan_fn with one group. x, dt, b, c, z: f32, f16 or bf16; a, skip, bias: f32; computed in
    f32. N up to 256. With `final` also the state after the last step, f32 [B, C, N]. y has x's dtype, channels side by
    side. Raises TypeError for other dtypes, ValueError for other shapes and no steps.
    """
    refuse(x, dt, a, b, c, skip, z, bias)
    y = _empty(x)
    end = torch.empty((*x.shape[:2], a.shape[1]), dtype=torch.float32, device=x.device) if final else None
    if y.numel():
        x, dt, a = _side_by_side(x), _side_by_side(dt), a.contiguous()
        z = None if z is None else _side_by_side(z)
        skip, bias = (None if t is None else t.contiguous() for t in (skip, bias))
        settings = (*_settings(skip, z, bias, softplus), ("FINAL", final))
        shape = (x.shape[0], x.shape[1], x.shape[2])
        key = (*shape, a.shape[1], x.dtype, dt.dtype, b.dtype, *(v for _, v in settings), b.stride(2) == 1)
        given = (x, dt, a, b, c, skip, z, bias, y, end)
        launch(tuner.pick(key, lambda: space(shape, a.shape[1], settings, True), launch, *given), *given)
    return y.to(x.dtype) if end is None else (y.to(x.dtype), end)


def selective_scan_backward(
    dy: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None = None,
    z: Tensor | None = None, bias: Tensor | None = None, softplus: bool = False, wanted: int = ALL,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of the forward's arguments from dy [B, C, T] of x's dtype, in their order, of those that are given.

    wanted: bits as in ALL; what nobody wants is not made, and is None. Otherwise as the forward. The same numbers every
    time.
    """
    refuse(x, dt, a, b, c, skip, z, bias)
    if dy.dtype != x.dtype:
        raise TypeError(f"dy has x's dtype {x.dtype}, not {dy.dtype}")
    if dy.shape != x.shape:
        raise ValueError(f"dy is {[*x.shape]} as x is, not {[*dy.shape]}")
    given = (x, dt, a, b, c, skip, z, bias)
    asked = [t is not None and bool(wanted >> i & 1) for i, t in enumerate(given)]
    wanted = sum(1 << i for i, one in enumerate(asked) if one)
    (batch, channels, steps), states = x.shape, a.shape[1]
    made: list[Tensor | None] = [
        _empty(like) if one else None for like, one in ((x, asked[0]), (dt, asked[1]), (x, asked[6]))
    ]
    narrow = (batch, steps, states)
    for size, one in (((states, channels), asked[2]), (narrow, asked[3]), (narrow, asked[4]), ((channels,), asked[5]),
                      ((channels,), asked[7])):  # fmt: skip
        made.append(torch.zeros(size, dtype=torch.float32, device=x.device) if one else None)
    if x.numel() and wanted:
        dy, x, dt, a = _side_by_side(dy), _side_by_side(x), _side_by_side(dt), a.contiguous()
        z = None if z is None else _side_by_side(z)
        skip, bias = (None if t is None else t.contiguous() for t in (skip, bias))
        settings, shape = (*_settings(skip, z, bias, softplus), ("WANTED", wanted)), (batch, channels, steps)
        key = (*shape, states, x.dtype, dt.dtype, b.dtype, *(v for _, v in settings), b.stride(2) == 1)
        own: tuple[Any, ...] = (dy, x, dt, a, b, c, skip, z, bias, *made)
        chosen = backward_tuner.pick(key, lambda: space(shape, states, settings, False), launch_backward, *own)
        launch_backward(chosen, *own)
    dx, ddt, dz, da, db, dc, dskip, dbias = made
    da = None if da is None else da.t().contiguous()
    db, dc = (None if g is None else g.transpose(1, 2) for g in (db, dc))
    results = (dx, ddt, da, db, dc, dskip, dz, dbias)
    return tuple(
        None if g is None else g.to(t.dtype) for g, t in zip(results, given, strict=True) if t is not None
    )  # fmt: skip


# ---- cases
# What it is tried on, what it costs at least, and how its variants are compiled offline.
def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on. plain: without D, z and bias, delta as it is; last: channels side by side."""
    b, channels, t, n = c["b"], c["c"], c["t"], c["n"]

    def along(count: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
        if c.get("last"):
            return make.normal((b, t, count), c.torch_dtype, scale, mean).transpose(1, 2)
        return make.normal((b, count, t), c.torch_dtype, scale, mean)

    a = -torch.exp(make.normal((channels, n), torch.float32, 0.5))
    if c.get("plain"):
        return along(channels), along(channels, 0.1).abs(), a, along(n), along(n), None, None, None, False, False
    skip, bias = make.normal((channels,), torch.float32), make.normal((channels,), torch.float32, 0.5, -2.0)
    x, dt, fed, seen, z = along(channels), along(channels), along(n), along(n), along(channels)
    return x, dt, a, fed, seen, skip, z, bias, True, c.get("final", False)


def backward_inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try the backward on."""
    arguments = inputs(c, make)
    return inputs(c, make)[0], *arguments[:-1]


def cost(count: int, c: Case) -> Cost:
    """So many tensors [B, C, T] once; B and C, and backward their gradients, twice each at most."""
    narrow = 2 if count < 5 else 4
    return Cost(bytes=c["b"] * c["t"] * (count * c["c"] + narrow * c["n"]) * c.itemsize)


def conditioned(arguments: Any) -> float:
    """A state and the sums over time go through as many roundings of f32 as there are steps, which average out."""
    return float(2.0**-24 * arguments[0].shape[-1] ** 0.5)


CHECKS = (
    *(case(d, b=b, c=channels, t=t, n=n, last=last) for d in ("f32", "f16", "bf16")
      for b, channels, t, n, last in ((1, 1, 1, 1, False), (2, 5, 19, 4, True), (1, 40, 37, 16, False))),
    case("f32", b=0, c=3, t=5, n=4),
    case("f32", b=1, c=33, t=70, n=5, plain=True),
    case("f32", b=2, c=6, t=9, n=16, plain=True, last=True),
    case("f32", b=1, c=3, t=130, n=8, final=True, last=True),
    case("bf16", b=2, c=33, t=64, n=16, final=True, last=True),
)  # fmt: skip
CASES = (
    case("bf16", b=8, c=2048, t=2048, n=16, last=True),
    case("bf16", b=8, c=2048, t=2048, n=16),
    case("bf16", b=1, c=4096, t=8192, n=16, last=True),
)
LONG = (8, 2048, 2048)
STRIDES = ("x_b", "x_t", "d_b", "d_t", "z_b", "z_t", "y_b", "y_t", "b_b", "b_n", "b_t", "c_b", "c_n", "c_t")


def builds(forward: bool) -> tuple[Build, ...]:
    """Of a sequence whole and in chunks."""
    settings = _settings(1, 1, 1, True)
    if forward:
        pointers = dict.fromkeys(("x_ptr", "d_ptr", "b_ptr", "c_ptr", "z_ptr", "y_ptr"), "*bf16")
        pointers |= dict.fromkeys(("a_ptr", "k_ptr", "o_ptr", "f_ptr", "s_ptr", "p_ptr"), "*fp32")
        order = ("x_ptr", "d_ptr", "a_ptr", "b_ptr", "c_ptr", "k_ptr", "z_ptr", "o_ptr", "y_ptr", "f_ptr", "s_ptr",
                 "p_ptr")  # fmt: skip
        sizes = ("channels", "steps", "span", *STRIDES)
        few = [v for v in space((1, 2048, 8192), 16, (*settings, ("FINAL", True)), True) if v["CHUNKS"] > 1][:1]
        chosen = [*space(LONG, 16, (*settings, ("FINAL", False)), True)[:1], *few]
    else:
        order = ("g_ptr", "x_ptr", "d_ptr", "a_ptr", "b_ptr", "c_ptr", "k_ptr", "z_ptr", "o_ptr", "dx_ptr", "dd_ptr",
                 "dz_ptr", "da_ptr", "db_ptr", "dc_ptr", "dk_ptr", "do_ptr", "h_ptr", "s_ptr", "r_ptr",
                 "p_ptr")  # fmt: skip
        narrow = ("g_ptr", "x_ptr", "d_ptr", "b_ptr", "c_ptr", "z_ptr", "dx_ptr", "dd_ptr", "dz_ptr")
        pointers = {p: "*bf16" if p in narrow else "*fp32" for p in order}
        sizes, more = ("channels", "steps", "span", "g_b", "g_t", *STRIDES), (*settings, ("WANTED", ALL))
        few = [v for v in space((1, 2048, 8192), 16, more, False) if v["CHUNKS"] > 1][:1]
        chosen = [*space(LONG, 16, more, False)[:2], *few, *space(LONG, 256, more, False)[-1:]]
    signature = {p: pointers[p] for p in order} | dict.fromkeys(sizes, "i32")
    return tuple(Build(v, signature, tuple(s for s in sizes if s not in ("b_n", "c_n"))) for v in chosen)


OPERATIONS = (
    Operation(
        name="selective_scan", run=selective_scan, reference=reference, inputs=inputs,
        beyond=case("bf16", b=1030, c=2048, t=1040, n=4, last=True),
        cost=lambda c: cost(3 if c.get("plain") else 4, c), checks=CHECKS, cases=CASES, builds=builds(True),
        fixed=("n",), conditioned=conditioned,
    ),
    Operation(
        name="selective_scan_backward", run=selective_scan_backward, reference=backward_reference,
        inputs=backward_inputs, cost=lambda c: cost(5 if c.get("plain") else 7, c), checks=CHECKS, cases=CASES,
        builds=builds(False), fixed=("n",), conditioned=conditioned,
    ),
)  # fmt: skip
