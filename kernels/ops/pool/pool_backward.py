"""Gradients of max and average pooling of planes, contiguous and channels-last.

Every input gathers from the windows that it is in, so nothing is added by atomics and nothing is cleared before: dy
(and places) read, dx written once.

A thread takes patches of SH by SW inputs, ROWS of them below one another. Which windows have which input of a patch,
and at which of their positions, is known when compiling: position i of a window is in row (i - PH) mod SH of a patch,
and the window's own number is that of the patch less floor((i - PH) / SH). So what windows give is read once a thread,
without a division or a remainder, and compared or added as often as a window has positions. Sizes are constants as in
pool.py. For windows or patches of more than UNROLLED positions each input visits the windows that it can be in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.ops.norm.group_norm_silu import is_channels_last
from kernels.ops.pool.pool import (
    BEYOND,
    CASES,
    CHECKS,
    DILATED,
    FORMS,
    THREE,
    TUNED,
    UNCOUNTED,
    UNROLLED,
    WIDE,
    Window,
    checked,
    cost,
    divided,
    edged,
    inputs,
    is_far,
    lanes_of,
    like,
    most_rows,
    placed_as,
    rows_of,
    sized,
    tiles,
    window_of,
)
from kernels.ops.shared.pairs import rounded
from kernels.spec import Build, Case, Maker, Operation, wide
from kernels.tuning import Tuner, Variant

tuner = Tuner("pool_backward")


def reference_max_backward(
    dy: torch.Tensor, places: torch.Tensor, shape: Sequence[int], window: Window
) -> torch.Tensor:
    """The gradient of x, of this shape, in plain PyTorch. places: in the window, as max_pool_with_places gives them."""
    place = places.long()
    row = torch.arange(dy.shape[2], device=dy.device)[:, None] * window.strides[0] - window.padding[0]
    col = torch.arange(dy.shape[3], device=dy.device)[None, :] * window.strides[1] - window.padding[1]
    row = row + place // window.size[1] * window.dilation[0]
    col = col + place % window.size[1] * window.dilation[1]
    dx = torch.zeros((shape[0], shape[1], shape[2] * shape[3]), dtype=wide(dy).dtype, device=dy.device)
    dx.scatter_add_(2, (row * shape[3] + col).flatten(2), wide(dy).flatten(2))
    return dx.view(*shape).to(dy.dtype)


def reference_average_backward(dy: torch.Tensor, shape: Sequence[int], window: Window) -> torch.Tensor:
    """The gradient of x, of this shape, in plain PyTorch."""
    x = torch.zeros(tuple(shape), dtype=dy.dtype, device=dy.device)
    dx: torch.Tensor = torch.ops.aten.avg_pool2d_backward(
        dy, x, window.size, window.strides, window.padding, window.ceil, window.counted, None
    )
    return dx


@triton.jit
def given(
    dy_at, place_at, there, oh, ow, PLACE: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr,
    OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr,
    PW: tl.constexpr, MAX: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    """What the windows at these pointers give to their position PLACE, in f32: 0 where they are not there."""
    g = tl.load(dy_at, mask=there, other=0.0).to(tl.float32)
    if MAX:
        place = tl.load(place_at, mask=there, other=255)
        g = tl.where(place == PLACE, g, 0.0)
    else:
        g = divided(g, oh, ow, H, W, OH, OW, KH, KW, SH, SW, PH, PW, COUNTED)
    return g


@triton.jit(do_not_specialize=("total",))
def pool_patches(
    dy_ptr, place_ptr, dx_ptr, total, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    INNER: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr,
    PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr,
    ROWS: tl.constexpr, MAX: tl.constexpr, COUNTED: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """ROWS patches below one another of POSITIONS columns, of `total` in all planes, and CHANNELS channels of each."""
    wide: tl.constexpr = (W + SW - 1) // SW
    strips: tl.constexpr = ((H + SH - 1) // SH + ROWS - 1) // ROWS
    position, channel, inside, lanes = lanes_of(total, POSITIONS, CHANNELS, INNER, FAR)
    line = position // wide
    across = (position - line * wide).to(tl.int32)
    plane = line // strips
    strip = (line - plane * strips).to(tl.int32)
    at = plane * (OH * OW * INNER) + ((strip * (ROWS * OW) + across) * INNER + channel)
    dy_at, place_at = dy_ptr + at, place_ptr + at
    results = ()
    # All is read before anything is written: what several positions are given is then read once.
    for r in tl.static_range(ROWS):
        for down in tl.static_range(SH):
            for right in tl.static_range(SW):
                result = tl.zeros((POSITIONS, CHANNELS), tl.float32)
                # Position i is in row down of its patch, and its window -((i * DH - PH) // SH) further than the patch.
                for i in tl.static_range(KH):
                    if (i * DH - PH) % SH == down:
                        row = edged(lanes, strip, r - (i * DH - PH) // SH, 1, OH, strips, ROWS)
                        for j in tl.static_range(KW):
                            if (j * DW - PW) % SW == right:
                                there = edged(row, across, -((j * DW - PW) // SW), 1, OW, wide, 1)
                                away = ((r - (i * DH - PH) // SH) * OW - (j * DW - PW) // SW) * INNER
                                result += given(
                                    dy_at + away, place_at + away, there, strip * ROWS + (r - (i * DH - PH) // SH),
                                    across - (j * DW - PW) // SW, i * KW + j, H, W, OH, OW, KH, KW, SH, SW, PH, PW,
                                    MAX, COUNTED,
                                )  # fmt: skip
                results = results + (result,)  # noqa: RUF005 - Triton has no other way
    dx_at = dx_ptr + (plane * (H * W * INNER) + ((strip * (ROWS * SH * W) + across * SW) * INNER + channel))
    for r in tl.static_range(ROWS):
        for down in tl.static_range(SH):
            row = edged(lanes & inside, strip, r * SH + down, 1, H, strips, ROWS * SH)
            if SW == 2 and INNER == 1 and W % 2 == 0:
                both = tl.join(results[(r * SH + down) * SW], results[(r * SH + down) * SW + 1])
                pair = (dx_at + (r * SH + down) * W)[:, :, None] + tl.arange(0, 2)[None, None, :]
                tl.store(pair, rounded(both, dx_ptr), mask=row[:, :, None])
            else:
                for right in tl.static_range(SW):
                    tl.store(dx_at + ((r * SH + down) * W + right) * INNER,
                             rounded(results[(r * SH + down) * SW + right], dx_ptr),
                             mask=edged(row, across, right, 1, W, wide, SW))  # fmt: skip


@triton.jit(do_not_specialize=("total",))
def pool_visits(
    dy_ptr, place_ptr, dx_ptr, total, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    INNER: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr,
    PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr,
    MAX: tl.constexpr, COUNTED: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """POSITIONS of `total` inputs of all planes, and CHANNELS channels of each; every window that may have one is
    visited, from the last on."""
    position, channel, inside, lanes = lanes_of(total, POSITIONS, CHANNELS, INNER, FAR)
    line = position // W
    iw = (position - line * W).to(tl.int32)
    plane = line // H
    ih = (line - plane * H).to(tl.int32)
    at = plane * (OH * OW * INNER) + channel
    result = tl.zeros((POSITIONS, CHANNELS), tl.float32)
    for down in range(((KH - 1) * DH + SH) // SH):
        oh = (ih + PH) // SH - down
        i = (ih + PH - oh * SH) // DH
        row = lanes & (oh >= 0) & (oh < OH) & (i < KH) & ((ih + PH - oh * SH) % DH == 0)
        for right in range(((KW - 1) * DW + SW) // SW):
            ow = (iw + PW) // SW - right
            j = (iw + PW - ow * SW) // DW
            there = row & (ow >= 0) & (ow < OW) & (j < KW) & ((iw + PW - ow * SW) % DW == 0)
            away = at + (oh * OW + ow) * INNER
            result += given(dy_ptr + away, place_ptr + away, there, oh, ow, i * KW + j, H, W, OH, OW, KH, KW, SH, SW,
                            PH, PW, MAX, COUNTED)  # fmt: skip
    dx_at = dx_ptr + (plane * (H * W * INNER) + ((ih * W + iw) * INNER + channel))
    tl.store(dx_at, rounded(result, dx_ptr), mask=lanes & inside)


def space(
    window: Window, planes: int, sizes: Sequence[int], itemsize: int, constants: Sequence[tuple[str, object]]
) -> list[Variant]:
    """Variants worth timing. sizes: H, W, OH, OW, INNER; planes: how many there are of each tensor."""
    fixed = (*sized(sizes, window), *constants, ("FAR", is_far(planes, sizes, window)))
    work = max(math.prod(window.size), math.prod(window.strides))
    if work > UNROLLED.value:
        return [
            Variant(pool_visits, (*tiles(w, accesses, sizes[4], itemsize), *fixed), w, tuned=TUNED[:2])
            for accesses, w in ((1, 4), (2, 4), (1, 8))
        ]
    most = most_rows(work, sizes[4])
    return [
        Variant(pool_patches, (*tiles(w, accesses, sizes[4], itemsize), ("ROWS", rows), *fixed), w, tuned=TUNED)
        for accesses, rows, w in rows_of(triton.cdiv(sizes[0], window.strides[0]), most)
    ]


def launch(variant: Variant, planes: int, *tensors: torch.Tensor) -> None:
    """Run one variant on dense tensors dy, places, dx of one layout with as many planes each."""
    meta = variant.meta
    down, across = meta["H"], meta["W"]
    if variant.kernel is pool_patches:
        down = triton.cdiv(triton.cdiv(down, meta["SH"]), meta["ROWS"])
        across = triton.cdiv(across, meta["SW"])
    total = planes * down * across
    cuts = triton.cdiv(meta["INNER"], meta["CHANNELS"])
    variant.kernel[(triton.cdiv(total, meta["POSITIONS"]) * cuts,)](*tensors, total, **meta)


def _backward(
    name: str, dy: torch.Tensor, places: torch.Tensor | None, shape: Sequence[int], window: Window
) -> torch.Tensor:
    dy = checked(name, dy)
    n, c, h, w = shape
    wanted = (n, c, window.of(h, 0), window.of(w, 1))
    if dy.shape != wanted:
        raise ValueError(f"dy has shape {[*dy.shape]}, the windows of {[*shape]} {[*wanted]}")
    dx = like(dy, shape, dy.dtype)
    if not dx.numel():
        return dx
    checked(name, dx)
    at = dy
    if places is not None:
        if places.shape != dy.shape or places.dtype != torch.uint8:
            raise ValueError(f"places are {places.dtype}{[*places.shape]}, not u8{[*wanted]}")
        at = like(dy, wanted, torch.uint8).copy_(places) if places.stride() != dy.stride() else places
    last = is_channels_last(dy)
    sizes = (h, w, *wanted[2:], c if last else 1)
    planes = n if last else n * c
    constants = (("MAX", places is not None), ("COUNTED", window.counted))
    key = (n, c, *sizes, dy.dtype, window, constants)

    def variants() -> list[Variant]:
        return space(window, planes, sizes, dy.dtype.itemsize, constants)

    launch(tuner.pick(key, variants, launch, planes, dy, at, dx, uncopied=(dy, at)), planes, dy, at, dx)
    return dx


def max_pool_backward(dy: torch.Tensor, places: torch.Tensor, shape: Sequence[int], window: Window) -> torch.Tensor:
    """The gradient of max_pool's x, of this shape, laid out like dy. Raises as max_pool does."""
    return _backward("max_pool_backward", dy, places, shape, window)


def average_pool_backward(dy: torch.Tensor, shape: Sequence[int], window: Window) -> torch.Tensor:
    """The gradient of average_pool's x, of this shape, laid out like dy. Raises as average_pool does."""
    if window.dilation != (1, 1):
        raise ValueError("average_pool takes no dilation")
    return _backward("average_pool_backward", dy, None, shape, window)


def _gradient(c: Case, make: Maker) -> torch.Tensor:
    window, (n, channels, h, w) = window_of(c), c["shape"]
    return placed_as(make.normal((n, channels, window.of(h, 0), window.of(w, 1)), c.torch_dtype), c)


def max_backward_inputs(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try it on; places by torch's indices."""
    x, window = inputs(c, make)
    dy = _gradient(c, make)
    _, indices = F.max_pool2d(
        x.float(), window.size, window.strides, window.padding, window.dilation, window.ceil, return_indices=True
    )
    height = torch.arange(dy.shape[2], device=dy.device)[:, None] * window.strides[0] - window.padding[0]
    width = torch.arange(dy.shape[3], device=dy.device)[None, :] * window.strides[1] - window.padding[1]
    row = (indices // x.shape[3] - height) // window.dilation[0]
    places = row * window.size[1] + (indices % x.shape[3] - width) // window.dilation[1]
    return dy, placed_as(places.to(torch.uint8), c), c["shape"], window


def average_backward_inputs(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try it on."""
    return _gradient(c, make), c["shape"], window_of(c)


def deciding(arguments: Sequence[Any], part: slice) -> tuple[Any, ...]:
    """The arguments that give these images' gradients."""
    *tensors, shape, window = arguments
    images = [t[part].clone(memory_format=torch.preserve_format) for t in tensors]
    return *images, (len(images[0]), *shape[1:]), window


def _build(largest: bool, window: Window, inner: int, choice: int) -> Build:
    sizes = (112, 112, window.of(112, 0), window.of(112, 1), inner)
    chosen = space(window, 64, sizes, 2, (("MAX", largest), ("COUNTED", True)))[choice]
    return Build(chosen, {"dy_ptr": "*bf16", "place_ptr": "*u8", "dx_ptr": "*bf16", "total": "i32"})


OPERATIONS = (
    Operation(
        name="max_pool_backward", run=max_pool_backward, reference=reference_max_backward, inputs=max_backward_inputs,
        beyond=BEYOND, deciding=deciding, cost=lambda c: cost(c, 1),
        checks=(DILATED, *CHECKS), cases=CASES, forms=FORMS,
        builds=(_build(True, THREE, 1, 1), _build(True, THREE, 64, 2), _build(True, WIDE, 64, 0)),
    ),
    Operation(
        name="average_pool_backward", run=average_pool_backward, reference=reference_average_backward,
        inputs=average_backward_inputs, cost=cost, beyond=BEYOND, deciding=deciding,
        checks=(*UNCOUNTED, *CHECKS), cases=CASES, forms=FORMS,
        builds=(_build(False, THREE, 1, 1), _build(False, THREE, 64, 2), _build(False, WIDE, 64, 0)),
    ),
)  # fmt: skip
