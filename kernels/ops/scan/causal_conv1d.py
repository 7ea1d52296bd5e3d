"""Causal depthwise convolution along time, filters of 2 to 4 taps, with a state before and after, and its gradients.

y[b, c, t] = act(bias[c] + sum over j of w[c, j] * x[b, c, t - (W - 1) + j]); what lies before the first step is the
initial state [B, C, W - 1], or zeros. The final state is the last W - 1 steps of what was read: the next call's initial
one. A call with one step and both states is the update of a decoding loop.

Traffic forward: x read once, y written once, 2 n itemsize bytes; backward: dy and x read, dx written, 3 n. Each thread
walks STEPS of time and keeps the last W - 1 inputs in registers. With channels side by side, STEPS of 1 to 16 load
nearly everything once, 16 bytes a thread. With time side by side neighbours are neighbouring steps, and STEPS of 1
load every input W times, W - 1 of them from L1: which is better is for the tuner to say.

The backward computes the convolution anew for SiLU's slope. Gradients of filter and bias are sums over batch and time:
each program writes its own, [programs, W + 1, C] in f32, which are then added in a fixed order, so that the result is
the same every time.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.ops.shared.activations import activation, activation_and_slope
from kernels.ops.shared.rows import DTYPES, held_dtype
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

WIDEST = 4
"""Most taps of a filter, as causal_conv1d has it."""

tuner = Tuner("causal_conv1d")
backward_tuner = Tuner("causal_conv1d_backward")

Tensor = torch.Tensor


def _extended(x: Tensor, initial: Tensor | None, width: int) -> Tensor:
    """x [B, C, T] behind its W - 1 earlier steps."""
    return F.pad(x, (width - 1, 0)) if initial is None else torch.cat((initial, x), 2)


def reference(
    x: Tensor, w: Tensor, bias: Tensor | None = None, act: str | None = None, initial: Tensor | None = None,
    final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """What is computed, in plain PyTorch."""
    before = _extended(x, initial, w.shape[1])
    y = F.conv1d(before, w[:, None], bias, groups=w.shape[0])
    y = F.silu(y) if act == "silu" else y
    return (y, before[:, :, before.shape[2] - w.shape[1] + 1 :].clone()) if final else y


def backward_reference(
    dy: Tensor, x: Tensor, w: Tensor, bias: Tensor | None = None, act: str | None = None,
    initial: Tensor | None = None, dfinal: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What autograd computes of it: gradients of x, w, and of bias and initial state where they are given."""
    (channels, width), steps = w.shape, x.shape[2]
    before = _extended(x, initial, width)
    if act == "silu":
        dy = torch.ops.aten.silu_backward(dy, F.conv1d(before, w[:, None], bias, groups=channels))
    dbefore = F.conv_transpose1d(dy, w[:, None], groups=channels)
    if dfinal is not None:
        dbefore = dbefore + F.pad(dfinal, (steps, 0))
    dw = torch.stack([(dy.float() * before[:, :, j : j + steps]).sum((0, 2)) if dy.dtype != torch.float64
                      else (dy * before[:, :, j : j + steps]).sum((0, 2)) for j in range(width)], 1)  # fmt: skip
    made = [dbefore[:, :, width - 1 :].contiguous(), dw.to(w.dtype)]
    if bias is not None:
        made.append(dy.sum((0, 2)))
    if initial is not None:
        made.append(dbefore[:, :, : width - 1].contiguous())
    return tuple(made)


@triton.jit
def earlier(x_ptr, i_ptr, at, before, present, i_at, x_t, BACK: tl.constexpr, WIDTH: tl.constexpr, STATE: tl.constexpr):
    """The input BACK steps before the tile's first ones [segments, channels]; before: their time.

    From the initial state where that is before the sequence begins, zeros where there is none.
    """
    inside = present & (before >= 0)
    x = tl.load(x_ptr + (at - BACK * x_t), mask=inside, other=0.0).to(tl.float32)
    if STATE:
        state = tl.load(i_ptr + (i_at + WIDTH - 1 + before), mask=present & (before < 0), other=0.0).to(tl.float32)
        x = tl.where(before < 0, state, x)
    return x


@triton.jit
def conv_kernel(
    x_ptr, w_ptr, b_ptr, i_ptr, y_ptr, f_ptr, channels, steps, x_b, x_c, x_t, y_b, y_c, y_t, WIDTH: tl.constexpr,
    STEPS: tl.constexpr, SEGMENTS: tl.constexpr, BLOCK: tl.constexpr, BIAS: tl.constexpr, STATE: tl.constexpr,
    FINAL: tl.constexpr, ACT: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """SEGMENTS stretches of STEPS steps of BLOCK channels a program.

    i_ptr, f_ptr: states [B, C, WIDTH - 1], contiguous. WHOLE: no tile ends outside.
    """
    blocks = tl.cdiv(channels, BLOCK)
    tiles = tl.cdiv(steps, STEPS * SEGMENTS)
    batch = (tl.program_id(0) // (blocks * tiles)).to(tl.int64)
    first = tl.program_id(0) // blocks % tiles * (STEPS * SEGMENTS)
    col = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)[None, :]
    t0 = first + tl.arange(0, SEGMENTS)[:, None] * STEPS
    present = col < channels
    wide = col.to(tl.int64)
    at = batch * x_b + t0.to(tl.int64) * x_t + wide * x_c
    to = batch * y_b + t0.to(tl.int64) * y_t + wide * y_c
    i_at = (batch * channels + wide) * (WIDTH - 1)
    taps = ()
    for j in tl.static_range(WIDTH):
        taps = taps + (tl.load(w_ptr + col * WIDTH + j, mask=present, other=0.0).to(tl.float32),)  # noqa: RUF005
    bias = tl.load(b_ptr + col, mask=present, other=0.0).to(tl.float32) if BIAS else 0.0
    held = ()
    for j in tl.static_range(WIDTH - 1):
        back = t0 - (WIDTH - 1 - j)
        x = earlier(x_ptr, i_ptr, at, back, present & (back < steps), i_at, x_t, WIDTH - 1 - j, WIDTH, STATE)
        held = held + (x,)  # noqa: RUF005 - Triton's tuples know only this
        if FINAL:
            # A sequence shorter than the state: its early part comes from the state before.
            kept = present & (back < 0) & (back >= steps - (WIDTH - 1)) & (t0 == 0)
            tl.store(f_ptr + (i_at + back - steps + WIDTH - 1), x, mask=kept)
    for u in tl.static_range(STEPS):
        t = t0 + u
        if WHOLE:
            x = tl.load(x_ptr + (at + u * x_t)).to(tl.float32)
        else:
            x = tl.load(x_ptr + (at + u * x_t), mask=present & (t < steps), other=0.0).to(tl.float32)
        total = taps[WIDTH - 1] * x + bias
        for j in tl.static_range(WIDTH - 1):
            total += taps[j] * held[j]
        if ACT:
            total = activation(total, "silu")
        if WHOLE:
            tl.store(y_ptr + (to + u * y_t), total)
        else:
            tl.store(y_ptr + (to + u * y_t), total, mask=present & (t < steps))
        if FINAL:
            if first + STEPS * SEGMENTS > steps - (WIDTH - 1):
                kept = present & (t < steps) & (t >= steps - (WIDTH - 1))
                tl.store(f_ptr + (i_at + t - steps + WIDTH - 1), x, mask=kept)
        later = ()
        for j in tl.static_range(WIDTH - 2):
            later = later + (held[j + 1],)  # noqa: RUF005
        held = later + (x,)  # noqa: RUF005


@triton.jit
def conv_backward_kernel(
    d_ptr, x_ptr, w_ptr, b_ptr, i_ptr, f_ptr, g_ptr, h_ptr, s_ptr, channels, steps, d_b, d_c, d_t, x_b, x_c, x_t, g_b,
    g_c, g_t, WIDTH: tl.constexpr, STEPS: tl.constexpr, SEGMENTS: tl.constexpr, BLOCK: tl.constexpr,
    BIAS: tl.constexpr, STATE: tl.constexpr, FINAL: tl.constexpr, ACT: tl.constexpr, ALONG: tl.constexpr,
    SUMS: tl.constexpr,
):  # fmt: skip
    """The same tile of gradients: of x into g, of the initial state into h, of filter and bias into s.

    ALONG: those of x and the initial state are wanted; SUMS: those of filter and bias. d: of the result; f: of
    the final state, [B, C, WIDTH - 1]; s [batch and tile, WIDTH + 1, C].
    """
    blocks = tl.cdiv(channels, BLOCK)
    tiles = tl.cdiv(steps, STEPS * SEGMENTS)
    outer = (tl.program_id(0) // blocks).to(tl.int64)
    batch = outer // tiles
    first = (outer % tiles).to(tl.int32) * (STEPS * SEGMENTS)
    lanes = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    col = lanes[None, :]
    t0 = first + tl.arange(0, SEGMENTS)[:, None] * STEPS
    present = col < channels
    wide = col.to(tl.int64)
    at = batch * x_b + t0.to(tl.int64) * x_t + wide * x_c
    upstream = batch * d_b + t0.to(tl.int64) * d_t + wide * d_c
    to = batch * g_b + t0.to(tl.int64) * g_t + wide * g_c
    i_at = (batch * channels + wide) * (WIDTH - 1)
    taps = ()
    for j in tl.static_range(WIDTH):
        taps = taps + (tl.load(w_ptr + col * WIDTH + j, mask=present, other=0.0).to(tl.float32),)  # noqa: RUF005
    bias = tl.load(b_ptr + col, mask=present, other=0.0).to(tl.float32) if BIAS else 0.0
    held = ()  # inputs of the last WIDTH - 1 steps, and gradients behind the activation of as many
    slopes = ()
    sums = ()
    for j in tl.static_range(WIDTH - 1):
        back = t0 - (WIDTH - 1 - j)
        x = earlier(x_ptr, i_ptr, at, back, present & (back < steps), i_at, x_t, WIDTH - 1 - j, WIDTH, STATE)
        held = held + (x,)  # noqa: RUF005
        slopes = slopes + (tl.zeros((SEGMENTS, BLOCK), tl.float32),)  # noqa: RUF005
    for _ in tl.static_range(WIDTH):
        sums = sums + (tl.zeros((SEGMENTS, BLOCK), tl.float32),)  # noqa: RUF005
    total_slope = tl.zeros((SEGMENTS, BLOCK), tl.float32)
    for u in tl.static_range(STEPS + WIDTH - 1):
        t = t0 + u
        inside = present & (t < steps)
        x = tl.load(x_ptr + (at + u * x_t), mask=inside, other=0.0).to(tl.float32)
        slope = tl.load(d_ptr + (upstream + u * d_t), mask=inside, other=0.0).to(tl.float32)
        if ACT:
            total = taps[WIDTH - 1] * x + bias
            for j in tl.static_range(WIDTH - 1):
                total += taps[j] * held[j]
            _, rise = activation_and_slope(total, "silu")
            slope = tl.where(inside, slope * rise, 0.0)
        if SUMS and u < STEPS:
            added = ()
            for j in tl.static_range(WIDTH - 1):
                added = added + (sums[j] + slope * held[j],)  # noqa: RUF005
            sums = added + (sums[WIDTH - 1] + slope * x,)  # noqa: RUF005
            total_slope += slope
        # The input WIDTH - 1 steps ago has met its last filter tap.
        after = slopes + (slope,)  # noqa: RUF005
        if ALONG:
            made = tl.zeros((SEGMENTS, BLOCK), tl.float32)
            for j in tl.static_range(WIDTH):
                made += taps[WIDTH - 1 - j] * after[j]
            past = t - (WIDTH - 1)
            if FINAL:
                ends = present & (past >= steps - (WIDTH - 1)) & (past < steps)
                made += tl.load(f_ptr + (i_at + past - steps + WIDTH - 1), mask=ends, other=0.0).to(tl.float32)
            if u >= WIDTH - 1:
                tl.store(g_ptr + (to + (u - WIDTH + 1) * g_t), made, mask=present & (past < steps))
            elif STATE:
                tl.store(h_ptr + (i_at + u + t0), made, mask=present & (t0 == 0))
        later = ()
        slopes = ()
        for j in tl.static_range(WIDTH - 2):
            later = later + (held[j + 1],)  # noqa: RUF005
        for j in tl.static_range(WIDTH - 1):
            slopes = slopes + (after[j + 1],)  # noqa: RUF005
        held = later + (x,)  # noqa: RUF005
    if SUMS:
        s_ptr += outer * (WIDTH + 1) * channels + lanes
        for j in tl.static_range(WIDTH):
            tl.store(s_ptr + j * tl.cast(channels, tl.int64), tl.sum(sums[j], 0), mask=lanes < channels)
        tl.store(s_ptr + WIDTH * tl.cast(channels, tl.int64), tl.sum(total_slope, 0), mask=lanes < channels)


TILES = {
    (True, True): ((8, 4, 256, 4), (8, 16, 64, 4), (16, 4, 128, 2), (4, 8, 128, 4), (16, 8, 256, 8), (8, 1, 256, 1),
                   (4, 4, 128, 4), (4, 4, 128, 2), (2, 8, 128, 4), (2, 16, 64, 4), (2, 16, 128, 8), (1, 16, 128, 4)),
    (True, False): ((1, 512, 4, 4), (1, 1024, 2, 8), (2, 512, 2, 4), (4, 256, 4, 4), (8, 128, 8, 4), (1, 256, 8, 4)),
    (False, True): ((8, 4, 128, 4), (8, 4, 256, 8), (16, 4, 64, 2), (4, 8, 64, 4), (8, 2, 256, 8), (8, 4, 256, 4),
                    (16, 8, 128, 8), (16, 8, 64, 4), (16, 16, 64, 8)),
    (False, False): ((1, 512, 2, 8), (2, 256, 2, 4), (4, 128, 4, 4), (8, 64, 4, 2), (1, 1024, 2, 8), (1, 512, 4, 4)),
}  # fmt: skip
"""Forward or backward, channels or time side by side -> steps of a segment, segments, channels, warps.

Eight channels a thread are one access of 16 bytes; the backward, which holds three times as much, has room for four. It
writes and reads sums of W + 1 numbers of f32 a tile and channel: a fifth of its other bytes in bf16 for tiles of 32
steps and W = 4, a twentieth for 128.
"""


def space(
    shape: tuple[int, int, int], last: bool, settings: tuple[tuple[str, Any], ...], forward: bool
) -> list[Variant]:
    """Variants worth timing for x [B, C, T]; last: channels lie side by side."""
    _, channels, steps = shape
    variants = []
    for length, segments, block, warps in TILES[forward, last]:
        width = min(block, triton.next_power_of_2(channels))
        count = max(1, min(segments * max(1, block // width // 2), triton.next_power_of_2(triton.cdiv(steps, length))))
        tile = (("STEPS", length), ("SEGMENTS", count), ("BLOCK", width))
        # Inputs, gradients and sums of a thread, and what its addresses need.
        registers = 40 + (5 if forward else 14) * max(1, count * width // (32 * warps))
        whole = (("WHOLE", channels % width == 0 and steps % (length * count) == 0),) if forward else ()
        kernel = conv_kernel if forward else conv_backward_kernel
        tuned = ("STEPS", "SEGMENTS", "BLOCK")
        variants.append(Variant(kernel, (*settings, *tile, *whole), warps, tuned=tuned, registers=registers))
    return list(dict.fromkeys(variants))


def launch(
    variant: Variant, x: Tensor, w: Tensor, bias: Tensor | None, initial: Tensor | None, y: Tensor, end: Tensor | None
) -> None:
    """Run one variant on x [B, C, T] into y and, where it is wanted, the final state."""
    batches, channels, steps = x.shape
    tiles = triton.cdiv(steps, variant["STEPS"] * variant["SEGMENTS"]) * triton.cdiv(channels, variant["BLOCK"])
    conv_kernel[(batches * tiles,)](
        x, w, w if bias is None else bias, x if initial is None else initial, y, y if end is None else end, channels,
        steps, *x.stride(), *y.stride(), **variant.meta,
    )  # fmt: skip


def launch_backward(
    variant: Variant, dy: Tensor, x: Tensor, w: Tensor, bias: Tensor | None, initial: Tensor | None,
    dfinal: Tensor | None, dx: Tensor | None, dinitial: Tensor | None, sums: Tensor | None,
) -> None:  # fmt: skip
    """Run one variant into dx, the initial state's gradient and sums [W + 1, C] over all its tiles.

    dx may be None where the variant is not ALONG, sums where it has no SUMS.
    """
    batches, channels, steps = x.shape
    tiles = triton.cdiv(steps, variant["STEPS"] * variant["SEGMENTS"])
    parts = w
    if sums is not None:
        parts = torch.empty((batches * tiles, w.shape[1] + 1, channels), dtype=torch.float32, device=x.device)
    into = x if dx is None else dx
    conv_backward_kernel[(batches * tiles * triton.cdiv(channels, variant["BLOCK"]),)](
        dy, x, w, w if bias is None else bias, x if initial is None else initial, x if dfinal is None else dfinal,
        into, into if dinitial is None else dinitial, parts, channels, steps, *dy.stride(), *x.stride(),
        *into.stride(), **variant.meta,
    )  # fmt: skip
    if sums is not None:
        torch.sum(parts, 0, out=sums)


def refuse(x: Tensor, w: Tensor, bias: Tensor | None, act: str | None, state: Tensor | None) -> None:
    """Raises TypeError or ValueError for what causal_conv1d does not take."""
    given = [t for t in (x, w, bias, state) if t is not None]
    if any(t.dtype not in DTYPES for t in given):
        raise TypeError(f"causal_conv1d takes f32, f16 or bf16, not {', '.join(str(t.dtype) for t in given)}")
    if state is not None and state.dtype != x.dtype:
        raise TypeError(f"a state has x's dtype {x.dtype}, not {state.dtype}")
    if x.dim() != 3 or w.dim() != 2 or w.shape[0] != x.shape[1] or not 2 <= w.shape[1] <= WIDEST:
        raise ValueError(f"causal_conv1d takes x [B, C, T] and w [C, 2 to {WIDEST}], not {[*x.shape]} and {[*w.shape]}")
    if bias is not None and bias.shape != w.shape[:1]:
        raise ValueError(f"bias is [{w.shape[0]}], not {[*bias.shape]}")
    if act not in (None, "silu"):
        raise ValueError(f"act is None or 'silu', not {act!r}")
    if state is not None and state.shape != (*x.shape[:2], w.shape[1] - 1):
        raise ValueError(f"a state is {[*x.shape[:2], w.shape[1] - 1]}, not {[*state.shape]}")


def _laid_out(x: Tensor) -> Tensor:
    """x with time or channels side by side, and no element in two places."""
    return x if (x.stride(1) == 1 or x.stride(2) == 1) and 0 not in x.stride() else x.contiguous()


def _last(x: Tensor) -> bool:
    """Channels lie side by side, and steps do not."""
    return x.stride(1) == 1 and x.stride(2) != 1


def _settings(w: Tensor, bias: object, state: object, final: bool, act: str | None) -> tuple[tuple[str, Any], ...]:
    return (
        ("WIDTH", w.shape[1]), ("BIAS", bias is not None), ("STATE", state is not None), ("FINAL", final),
        ("ACT", act == "silu"),
    )  # fmt: skip


def causal_conv1d(
    x: Tensor, w: Tensor, bias: Tensor | None = None, act: str | None = None, initial: Tensor | None = None,
    final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Causal convolution of x [B, C, T] with w [C, 2 to 4], each channel with its own filter; summed in f32.

    bias [C]; act: None or "silu". initial: what came before, [B, C, W - 1] of x's dtype, zeros where None. With `final`
    also the state after, [B, C, W - 1]. f32, f16 or bf16; the result has x's dtype, and its layout where time or
    channels are contiguous, else x is copied. Raises TypeError for other dtypes, ValueError for shapes and settings.
    """
    refuse(x, w, bias, act, initial)
    x, w = _laid_out(x), w.contiguous()
    bias, initial = (None if t is None else t.contiguous() for t in (bias, initial))
    y = torch.empty_like(x, dtype=held_dtype(x.dtype))
    end = torch.zeros((*x.shape[:2], w.shape[1] - 1), dtype=y.dtype, device=x.device) if final else None
    if y.numel():
        settings = _settings(w, bias, initial, final, act)
        key = (*x.shape, x.dtype, w.dtype, w.shape[1], bias is None, initial is None, final, act, _last(x))
        shape = (x.shape[0], x.shape[1], x.shape[2])
        given = (x, w, bias, initial, y, end)
        launch(tuner.pick(key, lambda: space(shape, _last(x), settings, True), launch, *given), *given)
    elif end is not None and initial is not None:
        end.copy_(initial)
    return y.to(x.dtype) if end is None else (y.to(x.dtype), end.to(x.dtype))


def causal_conv1d_backward(
    dy: Tensor, x: Tensor, w: Tensor, bias: Tensor | None = None, act: str | None = None,
    initial: Tensor | None = None, dfinal: Tensor | None = None, along: bool = True, filters: bool = True,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of x and w, then of bias and initial state where they are given, from dy [B, C, T].

    dfinal: the gradient of the final state, None where it has none. along: whether those of x and the initial state are
    made, filters: whether those of w and bias are; None in their place where not. Otherwise the forward's arguments and
    errors; dy of x's dtype and shape. The same numbers every time.
    """
    refuse(x, w, bias, act, initial)
    refuse(x, w, bias, act, dfinal)
    if dy.dtype != x.dtype:
        raise TypeError(f"dy has x's dtype {x.dtype}, not {dy.dtype}")
    if dy.shape != x.shape:
        raise ValueError(f"dy is {[*x.shape]} as x is, not {[*dy.shape]}")
    x, w = _laid_out(x), w.contiguous()
    dy = dy if _last(dy) == _last(x) and _laid_out(dy) is dy else torch.empty_like(x).copy_(dy)
    bias, initial, dfinal = (None if t is None else t.contiguous() for t in (bias, initial, dfinal))
    dx = torch.empty_like(x, dtype=held_dtype(x.dtype)) if along else None
    dinitial = None
    if along and initial is not None:
        dinitial = torch.zeros(initial.shape, dtype=held_dtype(x.dtype), device=x.device)
    sums = torch.zeros((w.shape[1] + 1, w.shape[0]), dtype=torch.float32, device=x.device) if filters else None
    if x.numel() and (along or filters):
        settings = (*_settings(w, bias, initial, dfinal is not None, act), ("ALONG", along), ("SUMS", filters))
        key = (*x.shape, x.dtype, w.dtype, w.shape[1], bias is None, initial is None, dfinal is None, act, _last(x),
               along, filters)  # fmt: skip
        shape = (x.shape[0], x.shape[1], x.shape[2])
        given = (dy, x, w, bias, initial, dfinal, dx, dinitial, sums)
        chosen = backward_tuner.pick(key, lambda: space(shape, _last(x), settings, False), launch_backward, *given)
        launch_backward(chosen, *given)
    elif dinitial is not None and dfinal is not None:
        dinitial.copy_(dfinal)
    made: list[Tensor | None] = [None if dx is None else dx.to(x.dtype)]
    made.append(None if sums is None else sums[:-1].t().to(w.dtype).contiguous())
    if bias is not None:
        made.append(None if sums is None else sums[-1].to(bias.dtype))
    if initial is not None:
        made.append(None if dinitial is None else dinitial.to(x.dtype))
    return tuple(made)


# ---- cases
# What it is tried on, what it costs at least, and how its variants are compiled offline.
def _sequence(c: Case, make: Maker) -> Tensor:
    b, channels, t = c["b"], c["c"], c["t"]
    if c.get("last"):
        return make.normal((b, t, channels), c.torch_dtype).transpose(1, 2)
    return make.normal((b, channels, t), c.torch_dtype)


def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on. last: channels side by side. state: with an initial one; final: the one after too."""
    x = _sequence(c, make)
    w = make.normal((c["c"], c["w"]), c.torch_dtype, 0.5)
    bias = make.normal((c["c"],), c.torch_dtype) if c.get("bias") else None
    initial = make.normal((c["b"], c["c"], c["w"] - 1), c.torch_dtype) if c.get("state") else None
    return x, w, bias, c.get("act"), initial, c.get("final", False)


def backward_inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try the backward on."""
    x, w, bias, act, initial, final = inputs(c, make)
    dfinal = make.normal((c["b"], c["c"], c["w"] - 1), c.torch_dtype) if final else None
    return _sequence(c, make), x, w, bias, act, initial, dfinal


def _cost(count: int, c: Case) -> Cost:
    return Cost(bytes=count * c["b"] * c["c"] * c["t"] * c.itemsize)


CHECKS = (
    *(case(d, b=b, c=channels, t=t, w=w, act="silu", bias=True, last=last)
      for d in ("f32", "f16", "bf16") for last in (False, True)
      for b, channels, t, w in ((2, 5, 1, 4), (1, 70, 37, 3), (2, 3, 130, 2))),
    case("f32", b=0, c=3, t=5, w=4),
    *(case("f32", b=2, c=6, t=t, w=w, state=True, final=True, bias=True, last=t % 2 == 0)
      for t, w in ((1, 4), (2, 4), (3, 2), (40, 3))),
    case("bf16", b=1, c=33, t=50, w=4, final=True, act="silu"),
    case("f16", b=2, c=64, t=64, w=4, state=True, act="silu", last=True),
    case("f32", b=2, c=8, t=70, w=4, state=True, final=True, act="silu", bias=True),
)  # fmt: skip
CASES = (
    case("bf16", region="causal_conv1d_silu", b=1, c=4096, t=2048, w=4, act="silu"),
    case("bf16", b=8, c=4096, t=4096, w=4, act="silu", bias=True),
    case("bf16", b=8, c=4096, t=4096, w=4, act="silu", bias=True, last=True),
    case("f32", b=8, c=2048, t=4096, w=3, last=True),
)
BEYOND = case("bf16", b=130, c=4096, t=4160, w=4, act="silu", bias=True, last=True)
STRIDES = ("x_b", "x_c", "x_t", "y_b", "y_c", "y_t")
BACKWARD_STRIDES = tuple(f"{n}_{axis}" for n in "dxg" for axis in "bct")


def builds(forward: bool) -> tuple[Build, ...]:
    """With channels side by side, and with time."""
    made = []
    for last in (True, False):
        settings = _settings(torch.empty((1, 4), device="meta"), 1, None, False, "silu")
        tensors = ("x_ptr", "w_ptr", "b_ptr", "i_ptr", "y_ptr", "f_ptr")
        if not forward:
            tensors = ("d_ptr", "x_ptr", "w_ptr", "b_ptr", "i_ptr", "f_ptr", "g_ptr", "h_ptr")
        strides = STRIDES if forward else BACKWARD_STRIDES
        sums = {} if forward else {"s_ptr": "*fp32"}
        one = [s for s in strides if s.endswith("_c" if last else "_t")]
        signature = dict.fromkeys(tensors, "*bf16") | sums | dict.fromkeys(("channels", "steps"), "i32")
        signature |= dict.fromkeys(strides, "i32")
        divisible = ("channels", "steps", *(s for s in strides if s not in one))
        settings += () if forward else (("ALONG", True), ("SUMS", True))
        longer = slice(6, 7 if last and not forward else 6)
        variants = space((8, 4096, 4096), last, settings, forward)
        for v in (*variants[:2], *variants[longer]):
            constants = (*v.constants, *((s, 1) for s in one))
            fixed = Variant(v.kernel, constants, v.warps, v.stages, v.tuned, v.shared_bytes, v.registers)
            made.append(Build(fixed, {k: t for k, t in signature.items() if k not in one}, divisible))
    return tuple(made)


OPERATIONS = (
    Operation(
        name="causal_conv1d", run=causal_conv1d, reference=reference, inputs=inputs, beyond=BEYOND,
        cost=lambda c: _cost(2, c), checks=CHECKS, cases=CASES, builds=builds(True), fixed=("w",),
    ),
    Operation(
        name="causal_conv1d_backward", run=causal_conv1d_backward, reference=backward_reference,
        inputs=backward_inputs, beyond=BEYOND, cost=lambda c: _cost(3, c), checks=CHECKS, cases=CASES[1:],
        builds=builds(False), fixed=("w",),
    ),
)  # fmt: skip
